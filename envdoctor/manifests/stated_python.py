"""The Python, the GPU and the CUDA version that a project states outside of the commands of the audited file.

The order of trust: `--python`, version files next to the file, the text of the file, the manifests next to it, the
commands of its README, the text of the README, its Dockerfile. The commands and the fields of the audited file come
before all of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.notebook_services import notebook_services
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import Action, Install, SelectEnvironment, UseImage
from envdoctor.manifests.conda_environment import parse_environment_yml, stated_pip
from envdoctor.manifests.container_files import is_dockerfile
from envdoctor.manifests.environment_state import EnvironmentState, image_state
from envdoctor.manifests.files import READMES, Files, project_folder, small_text
from envdoctor.manifests.guide import Guide, guide_of_blocks, parse_guide
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document
from envdoctor.manifests.markdown import Block, Line
from envdoctor.manifests.pyproject import parse_pyproject
from envdoctor.manifests.python_range import python_range
from envdoctor.manifests.setup_py import parse_setup_py
from envdoctor.manifests.stated_cuda import StatedCuda, cuda_of_commands, cuda_of_guide
from envdoctor.manifests.stated_machine import gpu_of_text

USER = "--python"
_OF_RUNTIME = "the runtime of "
_MANIFESTS = frozenset({"requirements", "pyproject", "setup.py", "setup.cfg", "Pipfile"})
_WITH_PROJECT = _MANIFESTS | {"guide", "script"}  # kinds that run in the Python of their project
_EXACT = lazy_pattern(r"(?:==|~=|=)?\s*(3\.\d+)(?:\.\d+)?(?:\.\*)?")
VERSION_FILES = {
    ".python-version": lazy_pattern(r"(?m)^\s*(?:c?python-?)?(3\.\d+)(?:\.\d+)?\s*$"),
    "runtime.txt": lazy_pattern(r"(?m)^\s*python-(3\.\d+)"),
    ".tool-versions": lazy_pattern(r"(?m)^\s*python\s+(3\.\d+)"),
}
_CONDA_FILES = ("environment.yml", "environment.yaml")
_CONDA_FILE = lazy_pattern(r"(?:conda|env)[\w.-]*\.ya?ml")  # environment-cuda12.yaml, conda_env.yml
_MAX_CONDA_FILES = 8
_OF_PROJECT = lazy_pattern(
    r"\binstall\s(?:.{0,200}\s)?[\"']?\.(?:\[[^\]]*\])?[\"']?(?:\s|$)"
    r"|\b(?:uv sync|(?:poetry|pdm) install)\b|\bsetup\.py\b"
)
_FOR_COLAB = lazy_pattern(r"colab\.research\.google|google\.colab|/content/")
_KERNEL = lazy_pattern(r"3\.\d+")


class StatedTarget(NamedTuple):
    """The Python of a project with the place that states it, the Pythons that it permits, and its GPU."""

    version: str = ""
    origin: str = ""  # "README.md, line 12"
    permitted: str = ""  # a specifier
    pip: str = ""  # the release in the environment file that states the Python
    gpu: str = ""
    gpu_file: str = ""
    gpu_line: int = 0
    cuda: StatedCuda = StatedCuda()
    earlier: Guide | None = None

    def of(self, guide: Guide) -> Guide:
        """The guide with what its own text does not state."""
        machine = guide.stated_machine
        if self.gpu and not machine.gpu:
            machine = machine._replace(gpu=self.gpu, gpu_file=self.gpu_file, gpu_line=self.gpu_line)
        return guide._replace(
            python=self.version,
            python_origin=self.origin,
            pip=self.pip,
            permitted_python=guide.permitted_python or self.permitted,
            stated_machine=machine,
            cuda=self.cuda.version,
            cuda_origin=self.cuda.origin,
            earlier=self.earlier,
        )


def permits(specifier: str, python: str) -> bool:
    """Whether a range such as `>=3.10.4,<3.13` has a release of a minor version."""
    return not specifier or any(satisfies(f"{python}{patch}", specifier) is not False for patch in ("", ".99"))


def python_of_file(files: Files, *before: str) -> str:
    """The Python of the first text that states one, else of the file .python-version; empty without one."""
    texts = (*before, *(text for _, text in files.of_project(".python-version", 0)))
    return next((match[1] for text in texts if (match := VERSION_FILES[".python-version"].search(text))), "")


def exact_python(specifier: str) -> str:
    """The minor version that a specifier allows: `==3.12.*`, `>=3.12,<3.13`; empty if it allows several."""
    if match := _EXACT.fullmatch(specifier.strip()):
        return match[1]
    bounds = re.fullmatch(r">=\s*3\.(\d+)(?:\.\d+)?\s*,\s*<\s*3\.(\d+)(?:\.0)?", specifier.strip())
    return f"3.{bounds[1]}" if bounds and int(bounds[2]) == int(bounds[1]) + 1 else ""


def stated_target(path: Path, document: Document, text: str, python: str = "") -> StatedTarget:
    """The target of a file as far as its commands do not state it. `python` is the one of the user."""
    folder = project_folder(path)
    found = StatedTarget(python, USER) if python else StatedTarget()
    if path.name == STANDARD_INPUT:
        return found
    found = found if python else _stated_python(path, folder, document.kind, text, document.paths[0])
    if document.kind == "guide":
        return found._replace(cuda=cuda_of_guide(document.guide or document.paths[0]))
    guide = _readme(path, folder) if document.kind in _MANIFESTS else None
    if guide is None:
        return found
    gpu, line = gpu_of_text(guide.lines)
    of_commands = cuda_of_commands(guide.actions, guide.name)
    found = found._replace(cuda=of_commands if of_commands.version else cuda_of_guide(guide))
    return found._replace(gpu=gpu, gpu_file=guide.name, gpu_line=line) if gpu else found


def _stated_python(path: Path, folder: Path, kind: str, text: str, own: Guide) -> StatedTarget:
    if kind == "notebook":
        return _python_of_notebook(text, path.name)
    if kind not in _WITH_PROJECT:
        return StatedTarget()
    permitted = own.permitted_python or (_permitted(folder) if kind == "requirements" else "")
    permitted = permitted or _range_of_text(path, folder, kind, own)
    project = StatedTarget(permitted=permitted)
    for version, origin in _stated(path, folder, own):
        if permits(permitted, version):
            return project._replace(version=version, origin=origin, pip=_pip_of(folder, origin))
    return project


def _stated(path: Path, folder: Path, own: Guide) -> Iterator[tuple[str, str]]:
    """What states a Python, the most trusted first."""
    for name, pattern in VERSION_FILES.items():
        text = small_text(folder / name)
        if match := pattern.search(text):
            yield match[1], _place(name, text, match.start(1))
    machine = own.stated_machine
    if machine.python:
        yield machine.python, f"{own.name}, line {machine.python_line}"
    for read in (_of_manifest, _of_conda_file, _of_readme, _of_dockerfile):
        if found := read(path, folder):
            yield found


def _range_of_text(path: Path, folder: Path, kind: str, own: Guide) -> str:
    """The range of Pythons in the text of a guide, or in that of the README next to a requirements file."""
    guide = own if kind == "guide" else _readme(path, folder) if kind == "requirements" else None
    return python_range(guide.lines) if guide else ""


def _permitted(folder: Path) -> str:
    """`requires-python` of the project in a folder."""
    return next((specifier for specifier, _, _ in _requires_python(folder)), "")


def _requires_python(folder: Path) -> Iterator[tuple[str, str, str]]:
    """The range of a pyproject.toml or a setup.py, with the name and the text of the file."""
    parsers: dict[str, Callable[[tuple[Line, ...], Files], object]] = {
        "pyproject.toml": parse_pyproject, "setup.py": parse_setup_py,
    }  # fmt: skip
    for name, parse in parsers.items():
        text = small_text(folder / name)
        project = parse(_numbered(text), Files()) if text else None
        if specifier := getattr(project, "python", ""):
            yield specifier, name, text


def _of_manifest(path: Path, folder: Path) -> tuple[str, str] | None:
    for specifier, name, text in _requires_python(folder):
        if name != path.name and (version := exact_python(specifier)):
            match = re.search(r"(?m)^\s*(?:[\"']?(?:requires-python|python|python_requires)[\"']?)\s*=", text)
            return version, _place(name, text, match.end() if match else 0)
    return None


def _of_conda_file(path: Path, folder: Path) -> tuple[str, str] | None:
    """The Python of the environment file; with other names, the one that all environment files have."""
    for name in _CONDA_FILES:
        if name != path.name and (found := _python_of_conda_file(folder / name)):
            return found
    names = (each.name for each in _files_of(folder) if _CONDA_FILE.fullmatch(each.name) and each.name != path.name)
    named = [found for name in sorted(names)[:_MAX_CONDA_FILES] if (found := _python_of_conda_file(folder / name))]
    return named[0] if len({version for version, _ in named}) == 1 else None


def _python_of_conda_file(path: Path) -> tuple[str, str] | None:
    for package in parse_environment_yml(_numbered(small_text(path))).packages:
        if package.name == "python" and (version := exact_python(package.specifier)):
            return version, f"{path.name}, line {package.line}"
    return None


def _pip_of(folder: Path, origin: str) -> str:
    """The release of pip in the environment file that states the Python; empty for other places."""
    name = origin.partition(",")[0]
    is_conda_file = name in _CONDA_FILES or _CONDA_FILE.fullmatch(name)
    return stated_pip(parse_environment_yml(_numbered(small_text(folder / name))).packages) if is_conda_file else ""


def _files_of(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _of_readme(path: Path, folder: Path) -> tuple[str, str] | None:
    """The Python of a command of the README, else of its text; none if its commands name several."""
    guide = _readme(path, folder)
    if guide is None:
        return None
    machine = guide.stated_machine
    named = _of_commands(guide.actions, path) or {machine.python: machine.python_line}
    version, line = next(iter(named.items())) if len(named) == 1 else ("", 0)
    return (version, f"{guide.name}, line {line}") if version else None


def _readme(path: Path, folder: Path) -> Guide | None:
    """The README next to a file, which is another one."""
    texts = ((name, small_text(folder / name)) for name in READMES if name != path.name)
    return next((_parsed(text, name) for name, text in texts if text), None)


@lru_cache(maxsize=4)  # the files of a directory have the same one
def _parsed(text: str, name: str) -> Guide:
    return parse_guide(text, name)


def _of_commands(actions: tuple[Action, ...], path: Path) -> dict[str, int]:
    """The Pythons that commands name, with their lines: the one in which the file is installed, else all of them."""
    named: dict[str, int] = {}
    current = ""
    for action in actions:
        if isinstance(action, SelectEnvironment) and (action.python or action.new):
            current = action.python
            named |= {current: action.line} if current and current not in named else {}
        elif isinstance(action, Install) and current and _installs(action.command, path.name):
            return {current: named[current]}
    return named


def _installs(command: str, name: str) -> bool:
    """Whether a command installs a manifest, or runs a script."""
    is_project = name in ("pyproject.toml", "setup.py", "setup.cfg") and _OF_PROJECT.search(command)
    return bool(is_project) or bool(re.search(rf"(?:^|[\s/=]){re.escape(name)}(?:\s|$)", command))


def _of_dockerfile(path: Path, folder: Path) -> tuple[str, str] | None:
    """The Python of the image or the environment in which a Dockerfile installs the file."""
    text = small_text(folder / "Dockerfile") if path.name != "Dockerfile" else ""
    block = Block("dockerfile", "", _numbered(text))
    if not text or not is_dockerfile(block):
        return None
    python, line = "", 0
    for action in guide_of_blocks([block], text, "Dockerfile").actions:
        if isinstance(action, UseImage):
            python, line = image_state(action).python, action.line
        elif isinstance(action, SelectEnvironment) and action.python:
            python, line = action.python, action.line
        elif isinstance(action, Install) and python and _installs(action.command, path.name):
            return python, f"Dockerfile, line {line}"
    return None


def _python_of_notebook(text: str, name: str) -> StatedTarget:
    """The Python of Colab for its notebooks, else that of the kernel that wrote the file."""
    try:
        metadata = json.loads(text).get("metadata", {})
    except (ValueError, RecursionError, AttributeError):
        return StatedTarget()
    if not isinstance(metadata, dict):
        return StatedTarget()
    language = metadata.get("language_info")
    version = str(language.get("version", "")) if isinstance(language, dict) else ""
    # Colab writes no version of its kernel: another program has saved a notebook with one.
    kernel = metadata.get("kernelspec")
    title = str(kernel.get("display_name", "")) if isinstance(kernel, dict) else ""
    is_local = bool(version) and not re.fullmatch(r"(?:Python 3)?", title)  # `.venv`, `base`, `Python 3 (ipykernel)`
    if "colab" in metadata and not is_local and (not version or _FOR_COLAB.search(text)):
        service = next(each for each in notebook_services() if each.id == "colab")
        match = re.search(r"Python (3\.\d+)", service.image)
        return StatedTarget(match[1] if match else "", f"{_OF_RUNTIME}{service.title}, {service.date}")
    match = _KERNEL.match(version)
    line = next((number for number, each in _numbered(text) if f'"{version}"' in each), 1)
    return StatedTarget(match[0], f"{name}, line {line}") if match else StatedTarget()


def _numbered(text: str) -> tuple[Line, ...]:
    return tuple(enumerate(text.split("\n"), 1))


def _place(name: str, text: str, position: int) -> str:
    return f"{name}, line {text.count(chr(10), 0, position) + 1}"


def is_fixed_python(guide: Guide, state: EnvironmentState) -> bool:
    """Whether the Python is that of a service, which a user cannot replace."""
    return not state.python_line and guide.python_origin.startswith(_OF_RUNTIME)


def python_origin(guide: Guide, state: EnvironmentState) -> str:
    """The place that states the Python of an environment; empty if the user does, and if it is assumed."""
    if state.python and state.python_line:
        return guide.place(state.python_line)
    if guide.python:
        return "" if guide.python_origin == USER else guide.python_origin
    machine = guide.stated_machine
    return f"{guide.name}, line {machine.python_line}" if machine.python else ""
