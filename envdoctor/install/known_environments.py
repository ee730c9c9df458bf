"""The environments that envdoctor installed on this machine: where they are, and which one a command means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.directories import state_directory
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.files import read_file
from envdoctor.core.paths import exists, expand_home
from envdoctor.environment.find import resolve_python_argument
from envdoctor.environment.managed import EnvironmentPaths, environment_paths, interpreter_of, read_install_record
from envdoctor.machine.storage import environments_directory


def default_venv(profile: str) -> Path:
    """The default directory of a profile's environment."""
    return environments_directory(os.environ) / Path(profile).stem


def environments_file() -> Path:
    """A file with the path of every environment ever installed, one a line."""
    return state_directory() / "environments"


def register_environment(venv: Path) -> None:
    """Add an environment to the list, so that `envs` finds it outside the default directory."""
    path = environments_file()
    with suppress(OSError):  # the environment works without the entry
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = read_file(path).splitlines() if path.exists() else []
        if os.fsencode(venv) not in lines:
            with path.open("ab") as file:
                file.write(os.fsencode(venv) + b"\n")


def known_environments() -> list[EnvironmentPaths]:
    """Environments in the default directory, and listed ones elsewhere."""
    home = environments_directory(os.environ)
    hidden = (path for path in sorted(home.glob(".*.envdoctor")) if path.is_dir())
    names = [home / path.name.removeprefix(".").removesuffix(".envdoctor") for path in hidden]
    # `v` and `w/../v` are one environment; the path that was listed first is shown.
    paths: dict[str, Path] = {}
    for path in (*sorted(home.glob("[!.]*")), *names, *_listed_paths()):
        paths.setdefault(os.path.realpath(path), path)
    return [environment for path in paths.values() if (environment := _environment_at(path))]


def installed_environments() -> list[Path]:
    """The environments with an install record and an interpreter, newest first."""
    found = [
        (record.created, environment.venv)
        for environment in known_environments()
        if (record := read_install_record(environment.venv)) and exists(environment.venv / "bin/python")
    ]
    return [venv for _, venv in sorted(found, reverse=True)]


def _listed_paths() -> list[Path]:
    """The absolute paths in the list of environments; other lines of a damaged list are ignored."""
    try:
        # Bytes of names that the present locale lacks are kept: one such path must not hide the others.
        lines = os.fsdecode(read_file(environments_file())).splitlines()
    except OSError:
        return []
    return [Path(line) for line in lines if line.startswith("/")]


def _environment_at(path: Path) -> EnvironmentPaths | None:
    with suppress(BadInput, OSError):
        environment = environment_paths(path)
        return environment if read_install_record(path) or environment.folder.is_dir() else None
    return None


def find_environment(venv: str) -> EnvironmentPaths:
    """The named environment, or the only known one."""
    if venv:
        return environment_paths(expand_home(venv).absolute())
    found = known_environments()
    if len(found) == 1:
        return environment_paths(found[0].venv)
    names = ": " + ", ".join(str(environment.venv) for environment in found) if found else ""
    raise BadInput(
        f"{len(found) or 'no'} environments are known{names}",
        expected="--venv PATH to select one",
        hint="envdoctor envs" if found else "envdoctor paths",
    )


def resolve_interpreter(venv: str, python: str) -> Path:
    """The interpreter of --python or --venv, otherwise of the only environment that envdoctor installed."""
    if python and venv:
        raise BadInput("--venv cannot be combined with --python", expected="one of them", hint="envdoctor envs")
    if python:
        path = resolve_python_argument(python, os.environ, hint="envdoctor envs")
        return interpreter_of(path) if path.is_dir() else path
    if venv:
        return interpreter_of(expand_home(venv).absolute())
    installed = installed_environments()
    if len(installed) == 1:
        return interpreter_of(installed[0])
    names = ": " + ", ".join(map(str, installed)) if installed else ""
    raise BadInput(
        f"envdoctor has installed {len(installed) or 'no'} environments{names}",
        expected="--venv PATH or --python PATH to select one",
        hint="envdoctor envs" if installed else "envdoctor install",
    )


@contextmanager
def file_system_errors(environment: EnvironmentPaths) -> Iterator[None]:
    """Raise EnvdoctorError instead of OSError."""
    try:
        yield
    except OSError as error:
        raise EnvdoctorError(
            f"{error.filename or environment.folder}: {error.strerror or error}",
            expected=f"permission to modify {environment.venv} and {environment.folder}",
            hint=f"{command_line('ls', '-la', environment.venv.parent)}, then run this again",
        ) from error
