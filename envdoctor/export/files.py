"""Forms that package tools read: requirements, pylock.toml, conda's environment.yml, a project for uv."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envdoctor.core.errors import BadInput
from envdoctor.export.builds import (
    at_once_notes,
    build_file,
    build_notes,
    built,
    from_lock,
    named,
    pip_build,
    pip_wheels,
    settings,
    shell_steps,
)
from envdoctor.export.stack import (
    INDEX_VARIABLE,
    Exported,
    Locked,
    commented,
    demand_whole,
    heading,
    uv_sync,
)
from envdoctor.export.text import export_line, quoted

PLAIN = r"[A-Za-z0-9_./:,=+@% -]*"


def requirements(stack: Locked) -> Exported:
    """A hashed requirements file whose heading says how to install it."""
    lines = [*heading(stack), "", *(_steps_of_part(stack) if stack.file.without else _steps(stack))]
    lines += _build_steps(stack)
    exports = [export_line(name, value) for name, value in stack.profile.environment.items()]
    if shown := [f"  {line}" for line in exports if line.isprintable()]:
        lines += ["", "Before anything runs in it:", *shown]
    hidden = len(exports) - len(shown)
    missing = [f"{hidden} of its variables hold line breaks and are not in the heading"] if hidden else []
    notes = (*missing, *_part_notes(stack), *build_notes(stack))
    return Exported(stack.profile.id, "requirements", "requirements.txt", commented(lines) + stack.file.text, notes)


def _steps(stack: Locked) -> list[str]:
    python = stack.file.python
    index = f' --extra-index-url "${INDEX_VARIABLE}"' if stack.backend else ""
    return [
        "Into a new environment, with uv:",
        f"  uv venv --python {python} .venv",
        f"  {shlex.join(uv_sync(stack))} --python .venv/bin/python requirements.txt",
        f"or with Python {python} and pip"
        + (f", {INDEX_VARIABLE} being the address of the PyTorch index for {stack.backend}:" if index else ":"),
        f"  python{python} -m venv .venv",
        f"  .venv/bin/python {shlex.join(pip_wheels(stack))}{index} -r requirements.txt",
    ]


def _steps_of_part(stack: Locked) -> list[str]:
    wanted = _wanted(stack)
    install = "uv pip install --python .venv/bin/python --only-binary :all:"
    missing = shlex.join(wanted.get(name, name) for name in stack.file.without)
    return [
        f"This is a part of the stack: {', '.join(stack.file.without)}, and the CUDA libraries that they bring",
        "along, are not in it and have no hash here. They come first, the rest is laid over them:",
        f"  uv venv --python {stack.file.python} .venv",
        f"  {install} --torch-backend {stack.backend} {missing}",
        f"  {install} --no-deps --require-hashes -r requirements.txt",
        "  uv pip check --python .venv/bin/python",
    ]


def _build_steps(stack: Locked) -> list[str]:
    """What is compiled, by uv and by pip; the file itself has its hashes."""
    if not (packages := built(stack)):
        return []
    python = ".venv/bin/python"
    pip = [f"  {settings(stack)}{python} {shlex.join(pip_build(each))} -r {build_file(each)}" for each in packages]
    jobs, *uv = shell_steps(stack, python, ".")
    return [
        f"Then {named(packages)}, compiled against what is there by now, with build requirements from there:",
        *(f"  {from_lock(package, 'requirements.txt')}" for package in packages),
        f"  {jobs}",
        *(f"  {line}" for line in uv),
        "or, the last of it, with pip:",
        *pip,
        f"  {python} -m pip check",
    ]


def _part_notes(stack: Locked) -> tuple[str, ...]:
    if not stack.file.without:
        return ()
    left_out = ", ".join(stack.file.without)
    return (f"a partial lock: {left_out} come from the PyTorch index ({stack.backend}) without a hash",)


def conda(stack: Locked) -> Exported:
    """environment.yml: Python from conda, everything else by pip with hashes."""
    demand_whole(stack, "conda")
    _demand_wheels(stack)
    for name, value in stack.profile.environment.items():
        # conda writes variables into shell code of its own when an environment is activated.
        if not re.fullmatch(PLAIN, value):
            raise BadInput(
                f"environment.{name} = {value!r} cannot be handed to conda safely",
                expected="letters, digits, spaces and _ . / : , = + @ % -",
                hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format script",
            )
    # pip replaces ${NAME} in requirements by the variable.
    index = [f"--extra-index-url ${{{INDEX_VARIABLE}}}"] if stack.backend else []
    pins = ["--require-hashes", "--only-binary :all:", *index, *stack.file.text.splitlines()]
    lines = [*heading(stack), "", "  conda env create --file environment.yml"]
    if stack.backend:
        lines.append(f"with {INDEX_VARIABLE} being the address of the PyTorch index for {stack.backend}")
    text = commented(lines) + "".join(
        [
            f"name: {quoted(stack.profile.id)}\n",
            "channels:\n  - conda-forge\n",
            f"dependencies:\n  - {quoted('python=' + stack.file.python)}\n  - pip\n  - pip:\n",
            *(f"      - {quoted(pin)}\n" for pin in pins),
        ]
    )
    if stack.profile.environment:
        text += "variables:\n"
        text += "".join(f"  {name}: {quoted(value)}\n" for name, value in stack.profile.environment.items())
    notes = ["the hashes are of the pip packages; Python and pip are conda's newest builds"]
    if index:
        notes.append(f"{INDEX_VARIABLE} must hold the address of the PyTorch index ({stack.backend})")
    return Exported(stack.profile.id, "conda", "environment.yml", text, tuple(notes))


def _demand_wheels(stack: Locked) -> None:
    """Refuse what is compiled: the options that a requirements file may have do not include --no-build-isolation.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/#supported-options
    """
    if packages := built(stack):
        raise BadInput(
            f"{named(packages)} of '{stack.profile.id}' cannot be compiled from an environment.yml: conda hands its "
            "pip part to one `pip install`, which builds in isolation, with build requirements that are in no lock",
            expected="a form with a second step: requirements, whose commands take the Python of any environment",
            hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format requirements",
        )


def uv_project(stack: Locked) -> Exported:
    """pyproject.toml of a project that is no package: the profile's requirements, held to the lock's versions."""
    marker = f"sys_platform == 'linux' and platform_machine == '{stack.architecture}'"
    wanted = _wanted(stack)
    locked = {package.name: package.version for package in stack.file.packages}
    # A source can be named for direct dependencies alone.
    special = [*stack.file.without, *(name for name, version in locked.items() if "+" in version)]
    wanted |= {name: name for name in special if name not in wanted}
    lines = heading(stack)
    notes = [
        "the pins are the lock's, the hashes are not: uv.lock takes those that the source gives at the first sync"
    ]
    if special:
        address = f'UV_INDEX="pytorch=${INDEX_VARIABLE}"'
        # Measured with uv 0.13.8: `torch-backend` is taken in [tool.uv], and `uv lock` does not look at it.
        lines += [
            "",
            f"  {address} uv sync",
            f"{INDEX_VARIABLE} being the address of the PyTorch index for {stack.backend}",
        ]
        notes.append(f"{', '.join(special)}: run `{address} uv sync`; no address stands in the file")
    else:
        lines += ["", "  uv sync"]
    notes += [*_part_notes(stack), *build_notes(stack), *at_once_notes(stack)]
    if stack.profile.environment:
        notes.append(f"set before a run: {', '.join(stack.profile.environment)} (a project cannot)")
    text = commented(lines) + "".join(
        [
            f'[project]\nname = {quoted("stack-" + stack.profile.id.lower().strip("._-"))}\nversion = "0"\n',
            f'requires-python = "=={stack.file.python}.*"\n',
            _array("dependencies", wanted.values()),
            "\n[tool.uv]\npackage = false\nno-build = true  # no surprise build from source\n",
            _project_builds(stack),
            # The PyTorch index has old releases of common packages, which would hide PyPI's.
            'index-strategy = "unsafe-best-match"\n' if special else "",
            _array("environments", [marker]),
            _array("required-environments", [marker]),
            _array("constraint-dependencies", (f"{name}=={version}" for name, version in locked.items())),
            "\n[tool.uv.sources]\n" if special else "",
            *(f'{quoted(name)} = {{ index = "pytorch" }}\n' for name in special),
            _project_metadata(stack),
        ]
    )
    return Exported(stack.profile.id, "uv-project", "pyproject.toml", text, tuple(notes))


def _project_builds(stack: Locked) -> str:
    """The exceptions for what is compiled: uv installs the rest first, then compiles these against it."""
    if not (names := [package.name for package in built(stack)]):
        return ""
    return _array("no-binary-package", names) + _array("no-build-isolation-package", names)


def _project_metadata(stack: Locked) -> str:
    """What uv would else have to build a source for while it resolves: the lock has all that is required."""
    variables = stack.profile.build.environment if stack.profile.build else {}
    table = ", ".join(f"{name} = {quoted(value)}" for name, value in variables.items())
    texts = ["\n[tool.uv.extra-build-variables]\n"] if table and built(stack) else []
    texts += [f"{quoted(package.name)} = {{ {table} }}\n" for package in built(stack) if table]
    for package in built(stack):
        texts.append("\n[[tool.uv.dependency-metadata]]\n")
        texts.append(f"name = {quoted(package.name)}\nversion = {quoted(package.version)}\nrequires-dist = []\n")
    return "".join(texts)


def _array(name: str, values: Iterable[str]) -> str:
    items = "".join(f"  {quoted(value)},\n" for value in values)
    return f"{name} = [\n{items}]\n"


def _wanted(stack: Locked) -> dict[str, str]:
    """The profile's requirements by name; each as `packaging` writes it."""
    parsed = [Requirement(pin.spec) for pin in stack.profile.requirements]
    return {str(canonicalize_name(requirement.name)): str(requirement) for requirement in parsed}
