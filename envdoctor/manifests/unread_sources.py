"""What can bring packages into an environment and is not read: images, conda, repositories, modules, other files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.wording import join_words
from envdoctor.knowledge.git_builds import requirements_of_repository
from envdoctor.knowledge.images import is_bare_image, known_repository
from envdoctor.knowledge.releases import normalize_name, releases_of
from envdoctor.manifests.actions import Install, InstallSystemPackages, LoadModules
from envdoctor.manifests.certain_packages import FROM_CONDA, is_conda_base, is_full_export
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.install_texts import UNREAD_COMMANDS
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement

# Packages of the index under another name in the channels of conda.
PYPI_NAMES = {
    "pyg": "torch-geometric", "opencv": "opencv-python", "py-opencv": "opencv-python", "pytables": "tables",
    "msgpack-python": "msgpack", "pytorch-scatter": "torch-scatter", "pytorch-sparse": "torch-sparse",
    "pytorch": "torch", "pytorch-gpu": "torch", "matplotlib-base": "matplotlib", "tensorflow-gpu": "tensorflow",
    "ruamel-yaml": "ruamel-yaml", "gitpython": "gitpython", "dask-core": "dask",
}  # fmt: skip
# What the images of PyTorch have next to torch: conda, `conda install cmake conda-build pyyaml numpy ipython`, and
# requirements.txt of PyTorch, each with its requirements. Dockerfile of pytorch/pytorch at commit 01343dc and
# requirements.txt at commit 017c707, setup.py of conda-build, 2026-11-27.
_OF_PYTORCH_IMAGE = FROM_CONDA | frozenset({
    "tqdm", "ipython", "psutil", "packaging", "astunparse", "expecttest", "hypothesis", "types-dataclasses", "optree",
    "ninja", "cmake", "beautifulsoup4", "soupsieve", "chardet", "pytz", "cryptography", "pyopenssl", "jsonschema",
    "attrs", "ruamel-yaml", "ruamel-yaml-conda", "tomli", "toml", "click", "rich", "pygments", "pexpect", "traitlets",
    "decorator", "lintrunner", "platformdirs", "zstandard", "distro", "colorama", "dnspython", "pluggy", "boltons",
    "torchelastic", "python-etcd", "more-itertools", "conda", "conda-build", "patch", "lief", "libarchive-c",
})  # fmt: skip
# What NVIDIA's images of PyTorch may have: their release notes name some of it, and no list is complete.
_OF_NGC_IMAGE = _OF_PYTORCH_IMAGE | frozenset({
    "pandas", "scipy", "scikit-learn", "matplotlib", "tensorboard", "numba", "opencv", "opencv-python", "librosa",
    "soundfile", "onnx", "apex", "transformer-engine", "flash-attn", "dllogger", "jupyterlab", "notebook", "pytest",
    "sentencepiece", "spacy", "einops", "pyarrow", "cudf", "cuml", "cupy-cuda12x", "pycocotools", "nltk", "regex",
    "pydantic", "tabulate", "xgboost", "python-dateutil", "joblib", "dask", "torchtext", "protobuf", "absl-py",
    "pybind11", "cython", "seaborn", "polygraphy", "tensorrt", "torch-tensorrt", "nvidia-dali-cuda120", "mock",
})  # fmt: skip
_IMAGES: Mapping[str, frozenset[str]] = {"pytorch/pytorch": _OF_PYTORCH_IMAGE, "nvidia/pytorch": _OF_NGC_IMAGE}
# Modules of a cluster without packages of Python.
_OF_TOOLCHAIN = lazy_pattern(
    r"(?:cuda|cudnn|nccl|gcc|gnu|g\+\+|cmake|nvhpc|openmpi|mpi|intel|ninja|git|ffmpeg|java|slurm|llvm|clang|binutils"
    r"|cuda-?toolkit|cudatoolkit|nvidia|apptainer|singularity|rust)\b[\w./+-]*",
    re.IGNORECASE,
)
# Installs what is not read, also where the text mentions it: `make install`, `pip install -e .[train]`.
_UNREAD_STEP = lazy_pattern(
    rf"{UNREAD_COMMANDS}|\b(?:poetry|uv|pdm|rye|pixi) (?:sync|install)\b|\benv (?:create|update)\b"
    r"|\bpip3? install\s+[^\n`]{0,200}?(?:(?:-e|-r)\s*\S|\s[\"']?\.{1,2}(?:[\[/\"'\s]|$))"
)
_COMMAND_END = lazy_pattern(r"[`\n]|&&|;|\s#")
_BUILD = lazy_pattern(r"-(?:cu(?:da)?[\d-]*|gpu|cpu)$")  # `dgl-cuda10-2`
_AFFIX = lazy_pattern(r"^(?:python-|py-?)|(?:-python|-base|-core)$")  # `pysoundfile` has the module soundfile
_OF_SYSTEM = "python3-"  # python3-pandas
_PROJECT = lazy_pattern(r"git\+\w+://(?:[^/@]+@)?([^/]+/[^/]+/[\w.-]+?)(?:\.git)?/?(?:[@#]|$)")
_ON_GITHUB = lazy_pattern(r"github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?(?![\w.-])")
_MAX_NAMES = 3
_MAX_URL = 100


class UnreadSource(NamedTuple):
    """What can bring packages: the packages that it brings as far as that is known, and whether it has others."""

    line: int
    text: str
    packages: frozenset[str] = frozenset()
    is_open: bool = True

    def __str__(self) -> str:
        return f"{self.text} (line {self.line})" if self.line > 0 else self.text  # others are those of another file


def unread_sources(context: GuideContext, state: EnvironmentState) -> tuple[UnreadSource, ...]:
    """The sources of an environment that are not read, also those that the text only mentions."""
    return tuple(dict.fromkeys((*unread_steps(context, state), *_mentioned(context))))


def unread_steps(context: GuideContext, state: EnvironmentState) -> tuple[UnreadSource, ...]:
    """The image and the steps of an environment that are not read, each once."""
    found: list[UnreadSource] = []
    if state.image and not is_bare_image(state.image):
        packages = _IMAGES.get(known_repository(state.image.rpartition(":")[0]), frozenset())
        found.append(
            UnreadSource(state.image_line, f"the image {state.image}", packages, packages is not _OF_PYTORCH_IMAGE)
        )
    for install in context.trace.all_installs:
        found += _of_step(context, install, state)
    found += (_of_left_out(context, each) for each in context.guide.left_out)
    for action in context.actions(LoadModules):
        if names := [name for name in action.names if not _OF_TOOLCHAIN.fullmatch(name)]:
            found.append(UnreadSource(action.line, f"the module {_listed(names)}", FROM_CONDA))
    return tuple(dict.fromkeys(found))


def unread_repositories(context: GuideContext, state: EnvironmentState) -> tuple[UnreadSource, ...]:
    """The repositories, URLs and folders that the steps install, and whose requirements are not read."""
    actions = (each.action for each in context.trace.all_installs if each.action.tool != "conda")
    return tuple(dict.fromkeys(each for action in actions for each in _repositories(action, state)))


def list_sources(sources: Sequence[UnreadSource]) -> str:
    """The first sources with their lines, and the number of the others."""
    return _listed([str(each) for each in sources])


def _of_step(context: GuideContext, install: InstallStep, state: EnvironmentState) -> Iterator[UnreadSource]:
    action = install.action
    if action.tool == "conda":
        yield from _of_conda(context, action)
        return
    for each in action.unknown:
        yield UnreadSource(each.line or action.line, f"`{each.text or action.command}`"[:100])
    with_extras = {each.url[:_MAX_URL] for each in action.requirements if each.extras}
    for source in _repositories(action, state):
        yield source if source.text in with_extras else _of_project(context, source)
    if not action.requirements and re.search(r" -r\b| --requirement", action.command):
        yield UnreadSource(action.line, f"`{action.command[:100]}`")
    elif install.resolution.state not in ("solved", "partial"):
        named = {each.name: each.pin for each in action.requirements if each.name and not each.url}
        yield _with_required(
            context, named, UnreadSource(action.line, f"what `{action.command[:80]}` requires"), is_decisive=True
        )


def _repositories(action: Install, state: EnvironmentState) -> Iterator[UnreadSource]:
    for each in () if action.no_deps else action.requirements:
        package = state.packages.get(each.name)
        is_released = package is not None and package.origin == CLONE_ORIGIN
        if each.url and not each.wheel and each.url not in action.read and not is_released:
            own = frozenset({each.name} if each.name else ())
            yield UnreadSource(each.line or action.line, each.url[:_MAX_URL], own)


def _of_project(context: GuideContext, source: UnreadSource) -> UnreadSource:
    """The repository of a package of the tables, also a fork: it brings what the newest release requires.

    A repository of git_builds.toml brings the packages of its row. The requirements of packages without wheels are
    not read, and others can have the name of another project: the package clip is not the repository CLIP.
    """
    repositories = _PROJECT.findall(source.text)
    on_github = (each.removeprefix("github.com/") for each in repositories)
    if required := [name for each in on_github for name in requirements_of_repository(each)]:
        known = _with_required(context, dict.fromkeys(required, ""), source, is_decisive=True)
        return known._replace(packages=known.packages | source.packages)
    projects = {normalize_name(each.rpartition("/")[2]) for each in repositories}
    name = next((each for each in source.packages if each in projects and releases_of(each)), "")
    return _with_required(context, {name: ""}, source, is_decisive=True) if name else source


def packages_of_repositories(context: GuideContext, text: str) -> frozenset[str]:
    """What the repositories that a text names bring: those of git_builds.toml, with all that it requires."""
    names = {name for each in _ON_GITHUB.findall(text) for name in requirements_of_repository(each)}
    required = (
        context.index_facts.required_packages(dict.fromkeys(names, "")) if context.index_facts and names else {}
    )
    return frozenset({*names, *(required or ())})


def _of_left_out(context: GuideContext, requirement: InstallRequirement) -> UnreadSource:
    """A requirement that cannot be installed: a corrected step has another release of it, with its requirements."""
    source = UnreadSource(requirement.line, f"what {requirement.text} requires", frozenset({requirement.name}))
    if requirement.url or context.index_facts is None:
        return source
    required = context.index_facts.required_packages({requirement.name: requirement.pin})
    return source if required is None else source._replace(packages=frozenset(required), is_open=False)


def _of_conda(context: GuideContext, action: Install) -> Iterator[UnreadSource]:
    """The packages of conda whose requirements are not known, with what those of the index of that name require."""
    others = [each for each in action.requirements if not is_conda_base(each.name)]
    if not others:
        brings_numpy = any(re.fullmatch(r"numpy|(?:py)?torch.*", each.name) for each in action.requirements)
        yield UnreadSource(
            action.line, "conda", FROM_CONDA - frozenset(() if brings_numpy else ("numpy",)), is_open=False
        )
        return
    names = {PYPI_NAMES.get(each.name, _BUILD.sub("", each.name)) for each in others}
    if is_full_export(action.requirements):
        yield UnreadSource(others[0].line or action.line, "conda", FROM_CONDA | names, is_open=False)
        return
    noun = "package" if len(others) == 1 else "packages"
    text = f"the conda {noun} {_listed([each.name for each in others])}"
    yield _with_required(context, dict.fromkeys(names, ""), UnreadSource(others[0].line or action.line, text))


def _with_required(
    context: GuideContext, named: Mapping[str, str], source: UnreadSource, *, is_decisive: bool = False
) -> UnreadSource:
    """The source with the packages of the index that these names bring.

    With `is_decisive` it brings no others, if the index has all of them.
    """
    found = context.index_facts.required_packages(named) if context.index_facts and named else {}
    is_known = found is not None and all(found.values())
    packages = frozenset(found if found is not None else named) | FROM_CONDA
    return source._replace(packages=packages, is_open=not (is_decisive and is_known))


def _listed(names: Sequence[str]) -> str:
    return join_words(names if len(names) <= _MAX_NAMES else (*names[:_MAX_NAMES], f"{len(names) - _MAX_NAMES} more"))


def _mentioned(context: GuideContext) -> Iterator[UnreadSource]:
    """The commands in the text that install what is not read, without those of the steps."""
    numbers = {number for block in context.guide.blocks for number, _ in block.lines}
    numbers |= {each.line for each in context.actions(Install)}  # also those that only the text names
    steps = " ".join(" ".join(each.text.split()) for each in context.guide.commands)
    for number, line in enumerate(context.guide.lines, 1):
        match = _UNREAD_STEP.search(line) if number not in numbers else None
        if match:
            command = _COMMAND_END.split(line[match.start() :])[0].strip(" .,:)*")
            if " ".join(command.split()) not in steps:
                yield UnreadSource(number, f"`{command[:100]}`")


def named_otherwise(context: GuideContext) -> set[str]:
    """The packages of the index that steps of conda and of the operating system install under another name."""
    conda = (each.action for each in context.trace.all_installs if each.action.tool == "conda")
    names = {requirement.name for action in conda for requirement in (*action.requirements, *action.unknown)}
    found = {PYPI_NAMES.get(each, _BUILD.sub("", each)) for each in names}
    found |= {_AFFIX.sub("", each) for each in names}
    system = {name for action in context.actions(InstallSystemPackages) for name in action.names}
    return found | {normalize_name(each.removeprefix(_OF_SYSTEM)) for each in system if each.startswith(_OF_SYSTEM)}
