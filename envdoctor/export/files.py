"""Formats for package tools: requirements.txt, conda's environment.yml, and a uv project."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envdoctor.core.errors import BadInput
from envdoctor.core.shell_commands import shell_command
from envdoctor.export.builds import (
    build_commands,
    build_file,
    build_notes,
    build_variables,
    describe_packages,
    extract_line_command,
    packages_to_build,
    pip_build_arguments,
    pip_wheel_arguments,
    single_command_notes,
)
from envdoctor.export.stack import (
    INDEX_VARIABLE,
    ExportedFile,
    LockedStack,
    comment_lines,
    heading,
    require_complete,
    uv_sync_command,
)
from envdoctor.export.text import export_line, quote

SAFE_VALUE = r"[A-Za-z0-9_./:,=+@% -]*"


def requirements(stack: LockedStack) -> ExportedFile:
    """A requirements file with hashes, and with installation instructions in its heading."""
    lines = [*heading(stack), "", *(_partial_lock_steps(stack) if stack.lock.without else _install_steps(stack))]
    lines += _build_steps(stack)
    exports = [export_line(name, value) for name, value in stack.profile.environment.items()]
    if shown := [f"  {line}" for line in exports if line.isprintable()]:
        lines += ["", "Set before programs run in the environment:", *shown]
    hidden = len(exports) - len(shown)
    missing = [f"{hidden} of its variables contain line breaks and are omitted from the heading"] if hidden else []
    notes = (*missing, *_partial_notes(stack), *build_notes(stack))
    return ExportedFile(
        stack.profile.id, "requirements", "requirements.txt", comment_lines(lines) + stack.lock.text, notes
    )


def _install_steps(stack: LockedStack) -> list[str]:
    python = stack.lock.python
    index = f' --extra-index-url "${INDEX_VARIABLE}"' if stack.backend else ""
    return [
        "Install into a new environment with uv:",
        f"  uv venv --python {python} .venv",
        f"  {shlex.join(uv_sync_command(stack))} --python .venv/bin/python requirements.txt",
        f"or with Python {python} and pip"
        + (f", with the URL of the PyTorch index for {stack.backend} in {INDEX_VARIABLE}:" if index else ":"),
        f"  python{python} -m venv .venv",
        f"  .venv/bin/python {shlex.join(pip_wheel_arguments(stack))}{index} -r requirements.txt",
    ]


def _partial_lock_steps(stack: LockedStack) -> list[str]:
    wanted = _requirements_by_name(stack)
    install = "uv pip install --python .venv/bin/python --only-binary :all:"
    missing = shlex.join(wanted.get(name, name) for name in stack.lock.without)
    return [
        f"This lock is partial: it does not contain {', '.join(stack.lock.without)} and the CUDA libraries that they",
        "require. These are installed first, without hashes, and then the packages of the lock:",
        f"  uv venv --python {stack.lock.python} .venv",
        f"  {install} --torch-backend {stack.backend} {missing}",
        f"  {install} --no-deps --require-hashes -r requirements.txt",
        "  uv pip check --python .venv/bin/python",
    ]


def _build_steps(stack: LockedStack) -> list[str]:
    """Instructions to compile packages with uv and with pip."""
    if not (packages := packages_to_build(stack)):
        return []
    python = ".venv/bin/python"
    pip = [
        f"  {build_variables(stack)}{python} {shlex.join(pip_build_arguments(each))} -r {build_file(each)}"
        for each in packages
    ]
    jobs, *uv = build_commands(stack, python, ".")
    return [
        f"Then compile {describe_packages(packages)} with the installed packages, without build isolation:",
        *(f"  {extract_line_command(package, 'requirements.txt')}" for package in packages),
        f"  {jobs}",
        *(f"  {line}" for line in uv),
        "or, instead of the uv commands, with pip:",
        *pip,
        f"  {python} -m pip check",
    ]


def _partial_notes(stack: LockedStack) -> tuple[str, ...]:
    if not stack.lock.without:
        return ()
    left_out = ", ".join(stack.lock.without)
    return (f"a partial lock: {left_out} are installed from the PyTorch index ({stack.backend}) without a hash",)


def conda(stack: LockedStack) -> ExportedFile:
    """environment.yml: Python from conda, all other packages from pip with hashes."""
    require_complete(stack, "conda")
    _refuse_builds(stack)
    for name, value in stack.profile.environment.items():
        # conda inserts variables into shell code when an environment is activated.
        if not re.fullmatch(SAFE_VALUE, value):
            raise BadInput(
                f"environment.{name} = {value!r} cannot be passed to conda safely",
                expected="letters, digits, spaces and _ . / : , = + @ % -",
                hint=shell_command("envdoctor export {} --as script", stack.profile.id),
            )
    # pip expands ${NAME} in requirements files.
    index = [f"--extra-index-url ${{{INDEX_VARIABLE}}}"] if stack.backend else []
    pins = ["--require-hashes", "--only-binary :all:", *index, *stack.lock.text.splitlines()]
    lines = [*heading(stack), "", "  conda env create --file environment.yml"]
    if stack.backend:
        lines.append(f"with the URL of the PyTorch index for {stack.backend} in {INDEX_VARIABLE}")
    text = comment_lines(lines) + "".join(
        [
            f"name: {quote(stack.profile.id)}\n",
            "channels:\n  - conda-forge\n",
            f"dependencies:\n  - {quote('python=' + stack.lock.python)}\n  - pip\n  - pip:\n",
            *(f"      - {quote(pin)}\n" for pin in pins),
        ]
    )
    if stack.profile.environment:
        text += "variables:\n"
        text += "".join(f"  {name}: {quote(value)}\n" for name, value in stack.profile.environment.items())
    notes = ["only the pip packages have hashes; Python and pip are conda's newest builds"]
    if index:
        notes.append(f"{INDEX_VARIABLE} must contain the URL of the PyTorch index ({stack.backend})")
    return ExportedFile(stack.profile.id, "conda", "environment.yml", text, tuple(notes))


def _refuse_builds(stack: LockedStack) -> None:
    """Refuse packages to compile: a requirements file does not support the option --no-build-isolation.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/#supported-options
    """
    if packages := packages_to_build(stack):
        raise BadInput(
            f"{describe_packages(packages)} of '{stack.profile.id}' cannot be compiled from an environment.yml: "
            "conda runs one `pip install`, which builds in isolation, with build requirements that are not locked",
            expected="a format with a second step, such as requirements, which also works in a conda environment",
            hint=shell_command("envdoctor export {} --as requirements", stack.profile.id),
        )


def uv_project(stack: LockedStack) -> ExportedFile:
    """pyproject.toml of a uv project: the profile's requirements, constrained to the locked versions."""
    marker = f"sys_platform == 'linux' and platform_machine == '{stack.architecture}'"
    wanted = _requirements_by_name(stack)
    locked = {package.name: package.version for package in stack.lock.packages}
    # uv supports a source only for direct dependencies.
    special = [*stack.lock.without, *(name for name, version in locked.items() if "+" in version)]
    wanted |= {name: name for name in special if name not in wanted}
    lines = heading(stack)
    notes = ["the versions are locked, the hashes are not: uv.lock gets those of the sources at the first sync"]
    if special:
        address = f'UV_INDEX="pytorch=${INDEX_VARIABLE}"'
        # Measured with uv 0.13.8: [tool.uv] accepts `torch-backend`, but `uv lock` ignores it.
        lines += [
            "",
            f"  {address} uv sync",
            f"with the URL of the PyTorch index for {stack.backend} in {INDEX_VARIABLE}",
        ]
        notes.append(f"{', '.join(special)}: run `{address} uv sync`; the file contains no URL")
    else:
        lines += ["", "  uv sync"]
    notes += [*_partial_notes(stack), *build_notes(stack), *single_command_notes(stack)]
    if stack.profile.environment:
        notes.append(f"set before a run: {', '.join(stack.profile.environment)} (a project cannot set them)")
    text = comment_lines(lines) + "".join(
        [
            f'[project]\nname = {quote("stack-" + stack.profile.id.lower().strip("._-"))}\nversion = "0"\n',
            f'requires-python = "=={stack.lock.python}.*"\n',
            _toml_array("dependencies", wanted.values()),
            "\n[tool.uv]\npackage = false\nno-build = true  # never compile a package unexpectedly\n",
            _project_builds(stack),
            # The PyTorch index has old releases of common packages, which would hide those of PyPI.
            'index-strategy = "unsafe-best-match"\n' if special else "",
            _toml_array("environments", [marker]),
            _toml_array("required-environments", [marker]),
            _toml_array("constraint-dependencies", (f"{name}=={version}" for name, version in locked.items())),
            "\n[tool.uv.sources]\n" if special else "",
            *(f'{quote(name)} = {{ index = "pytorch" }}\n' for name in special),
            _project_metadata(stack),
        ]
    )
    return ExportedFile(stack.profile.id, "uv-project", "pyproject.toml", text, tuple(notes))


def _project_builds(stack: LockedStack) -> str:
    """The exceptions for packages to compile: uv installs all other packages first."""
    if not (names := [package.name for package in packages_to_build(stack)]):
        return ""
    return _toml_array("no-binary-package", names) + _toml_array("no-build-isolation-package", names)


def _project_metadata(stack: LockedStack) -> str:
    """Metadata of packages to compile, so that uv need not build them to resolve the project."""
    variables = stack.profile.build.environment if stack.profile.build else {}
    table = ", ".join(f"{name} = {quote(value)}" for name, value in variables.items())
    texts = ["\n[tool.uv.extra-build-variables]\n"] if table and packages_to_build(stack) else []
    texts += [f"{quote(package.name)} = {{ {table} }}\n" for package in packages_to_build(stack) if table]
    for package in packages_to_build(stack):
        texts.append("\n[[tool.uv.dependency-metadata]]\n")
        texts.append(f"name = {quote(package.name)}\nversion = {quote(package.version)}\nrequires-dist = []\n")
    return "".join(texts)


def _toml_array(name: str, values: Iterable[str]) -> str:
    items = "".join(f"  {quote(value)},\n" for value in values)
    return f"{name} = [\n{items}]\n"


def _requirements_by_name(stack: LockedStack) -> dict[str, str]:
    """The profile's requirements by normalized name, formatted by `packaging`."""
    parsed = [Requirement(pin.spec) for pin in stack.profile.requirements]
    return {str(canonicalize_name(requirement.name)): str(requirement) for requirement in parsed}
