"""Find the environment to examine: named by the user, active, the project's `.venv`, or installed by envdoctor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput
from envdoctor.core.files import read_file_head
from envdoctor.core.paths import exists, expand_home, is_folder, is_link
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.notebook_services import current_service

HINT_VENV = "envdoctor check --venv PATH"
HINT_PYTHON = "envdoctor check --python PATH"
NOT_FOUND = "no active one, and no .venv in this directory"
EXPECTED_PYTHON = "a Python interpreter: a path, or a name on PATH such as python3.12"


class EnvironmentSelection(Record, frozen=True):
    """The environment to examine and why it was selected. Without a path, the reason why there is none."""

    path: str  # a directory (venv, conda environment), or an interpreter outside any environment
    reason: str
    others: tuple[str, ...] = ()  # environments that envdoctor installed as well
    notebook: str = ""  # the notebook service whose Python it is


def find_environment(
    venv: str,
    python: str,
    environ: Mapping[str, str],
    *,
    installed: Callable[[], Sequence[Path]] = tuple,
    own: Path = Path(sys.prefix),
) -> EnvironmentSelection:
    """Find the environment to examine.

    Order: `--venv`, `--python`, $VIRTUAL_ENV, $CONDA_PREFIX, `.venv` in the current directory, the Python of a
    notebook service, the newest one of `installed`, which is sorted newest first. BadInput only for a path that the
    user gave. A stale variable is ignored, and so is envdoctor's own environment, unless torch is installed in it.
    """
    if venv and python:
        raise BadInput(f"{venv} cannot be combined with --python {python}", expected="one of them", hint=HINT_VENV)
    if venv:
        return EnvironmentSelection(str(_named_venv(venv)), "--venv")
    if python:
        return EnvironmentSelection(str(_named_python(python, environ)), "--python")
    skipped = ""
    for path, reason in _active_environments(environ):
        if not _is_same(path, own) or _has_torch(path):
            return EnvironmentSelection(str(path), reason)
        skipped = str(path)
    service = current_service(environ)
    if service and _on_path("python3", environ):
        interpreter = str(_named_python("python3", environ))
        return EnvironmentSelection(interpreter, f"the Python of {service.title}", notebook=service.title)
    try:
        found = installed()
    except OSError as error:
        return EnvironmentSelection("", f"{error.filename} could not be read: {error.strerror}")
    return _newest_of(found, f"{skipped} is envdoctor's own" if skipped else NOT_FOUND)


def _newest_of(found: Sequence[Path], reason: str) -> EnvironmentSelection:
    """The first of the installed environments; `reason` is why no other was selected."""
    if not found:
        return EnvironmentSelection("", reason)
    reason = "installed by envdoctor" + (f", the newest of {len(found)}" if len(found) > 1 else "")
    return EnvironmentSelection(str(found[0]), reason, tuple(map(str, found[1:])))


def _active_environments(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    active = Path(environ.get("VIRTUAL_ENV") or "/nonexistent")
    if exists(active / "pyvenv.cfg"):
        yield active, "active: $VIRTUAL_ENV"
    conda = Path(environ.get("CONDA_PREFIX") or "/nonexistent")
    if exists(conda / "conda-meta") and (_has_torch(conda) or not exists(conda / "condabin")):  # not conda's base
        yield conda, "active: $CONDA_PREFIX"
    project = Path(".venv").absolute()
    if exists(project / "pyvenv.cfg"):
        yield project, ".venv in this directory"


def _is_same(path: Path, other: Path) -> bool:
    return path.resolve() == other.resolve()


def environment_of_interpreter(interpreter: Path) -> Path | None:
    """The environment of an interpreter, found without resolving symlinks, as in site.py."""
    prefix = interpreter.parent.parent
    return prefix if exists(prefix / "pyvenv.cfg") or exists(prefix / "conda-meta") else None


def _named_venv(text: str) -> Path:
    path = Path(os.path.abspath(expand_home(text)))  # noqa: PTH100  keep symlinks: the interpreter is a symlink
    expected = "the directory of a virtual environment (with pyvenv.cfg) or of a conda environment (with conda-meta)"
    if problem := _problem_of(path):
        raise BadInput(f"{text}: {problem}", expected=expected, hint=HINT_VENV)
    if not is_folder(path):
        raise BadInput(
            f"{text} is a file", expected=expected, hint=command_line("envdoctor", "check", "--python", text)
        )
    if exists(path / "pyvenv.cfg") or exists(path / "conda-meta"):
        return path
    for inner in (path / ".venv", path / "venv", path.parent):
        if exists(inner / "pyvenv.cfg"):
            raise BadInput(
                f"{text} contains no pyvenv.cfg and no conda-meta; {inner} is an environment",
                expected=expected,
                hint=command_line("envdoctor", "check", "--venv", inner),
            )
    if exists(path / "bin/python3"):
        return path / "bin/python3"  # the prefix of a Python installation, such as ~/.pyenv/versions/3.12.1
    raise BadInput(f"{text} contains no pyvenv.cfg and no conda-meta", expected=expected, hint=HINT_VENV)


def resolve_python_argument(text: str, environ: Mapping[str, str], *, hint: str = HINT_PYTHON) -> Path:
    """Resolve the value of `--python`, a path or a name on PATH; BadInput if it does not exist or is unreadable."""
    path = None if "/" in text else _on_path(text, environ)
    if path is None and ("/" in text or exists(text)):
        path = Path(os.path.abspath(expand_home(text)))  # noqa: PTH100
    if path is None:
        raise BadInput(
            f"--python {text}: not on PATH and not in the current directory", expected=EXPECTED_PYTHON, hint=hint
        )
    if problem := _problem_of(path):
        raise BadInput(f"--python {text}: {problem}", expected=EXPECTED_PYTHON, hint=hint)
    return path


def _named_python(text: str, environ: Mapping[str, str]) -> Path:
    expected = EXPECTED_PYTHON
    path = resolve_python_argument(text, environ)
    if exists(path / "pyvenv.cfg") or exists(path / "conda-meta"):
        return path  # uv accepts `--python .venv` as well
    if is_folder(path):
        raise BadInput(
            f"--python {text} is a directory",
            expected=expected,
            hint=command_line("envdoctor", "check", "--venv", text),
        )
    if environment := environment_of_interpreter(path):
        return environment
    try:
        start = read_file_head(path, 4)
    except OSError as error:
        raise BadInput(
            f"--python {path}: {error.strerror}", expected="a readable Python interpreter", hint=HINT_PYTHON
        ) from error
    if start[:2] == b"#!":  # a shim of pyenv: its Python is only known by running it
        raise BadInput(
            f"--python {text} is a script, not an interpreter",
            expected=expected,
            hint=shell_command('envdoctor check --python "$({} -c "import sys; print(sys.executable)")"', text),
        )
    if start != b"\x7fELF":
        raise BadInput(
            f"--python {text} is not an executable (it starts with {start!r})", expected=expected, hint=HINT_PYTHON
        )
    return path


def _on_path(name: str, environ: Mapping[str, str]) -> Path | None:
    from shutil import which

    found = which(name, path=environ.get("PATH", ""))
    return Path(found).absolute() if found else None


def _problem_of(path: Path) -> str:
    """Why a path cannot be read; empty if it can."""
    try:
        path.stat()
        if is_folder(path):
            os.listdir(path)  # noqa: PTH208
    except OSError as error:
        return (error.strerror or str(error)) + (f" (a symlink to {path.readlink()})" if is_link(path) else "")
    except ValueError as error:  # a null byte
        return str(error)
    return ""


def _has_torch(prefix: Path) -> bool:
    return any(prefix.glob("lib/python3.*/site-packages/torch/version.py"))
