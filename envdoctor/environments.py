"""Environments that envdoctor made: how they are recognised, and what is kept inside them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envdoctor.errors import BadInput
from envdoctor.model import Record

MARKER = "envdoctor.json"
LOCK_FILE = "envdoctor-lock.txt"
VERIFICATION = "envdoctor-verification.json"


class Installed(Record, frozen=True, kw_only=True):
    """The marker inside an environment that envdoctor made."""

    schema: int = 1
    profile: str
    lock: str  # digest
    torch_build: str
    torch_source: str
    packages: int
    size: int  # bytes on disk
    created: str  # ISO 8601, UTC
    required: tuple[str, ...]  # probes that must pass before anything is trained
    environment: dict[str, str]  # variables for what runs in it
    envdoctor: str


def read_installed(venv: Path) -> Installed | None:
    """The marker of an environment, or None where there is none that can be read."""
    try:
        return msgspec.json.decode((venv / MARKER).read_bytes(), type=Installed)
    except (OSError, msgspec.DecodeError):
        return None


def write_installed(venv: Path, installed: Installed) -> None:
    """Mark an environment as made by envdoctor."""
    data = {"schema": installed.schema} | msgspec.to_builtins(installed)
    unfinished = (
        venv / f"{MARKER}.new"
    )  # a marker is there whole or not at all: without it the folder is a stranger's
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
    unfinished.rename(venv / MARKER)


def interpreter_of(venv: Path) -> Path:
    """The interpreter of an environment; BadInput where there is none."""
    python = venv / "bin" / "python"
    if not python.exists():
        raise BadInput(
            f"there is no environment at {venv} (no bin/python)",
            expected="an environment made by `envdoctor install`",
            hint="envdoctor install",
        )
    return python


def refuse_foreign(venv: Path) -> None:
    """Refuse a path that is a file or below one, or a folder that envdoctor did not make and that is not empty."""
    above = next(place for place in venv.parents if place.exists())
    if not above.is_dir():
        raise BadInput(
            f"{above} is a file, and {venv} would lie below it",
            expected="a path below a folder",
            hint="envdoctor install --venv NEW_PATH",
        )
    if venv.is_symlink() or (venv.exists() and not venv.is_dir()):
        kind = "a link" if venv.is_symlink() else "a file"
        raise BadInput(
            f"{venv} is {kind}",
            expected="a new path, or an environment that envdoctor made",
            hint="envdoctor install --venv NEW_PATH",
        )
    if venv.is_dir() and any(venv.iterdir()) and read_installed(venv) is None:
        kind = "a virtual environment" if (venv / "pyvenv.cfg").exists() else "a folder"
        marker = f"its {MARKER} cannot be read" if (venv / MARKER).exists() else f"no {MARKER} in it"
        raise BadInput(
            f"{venv} is {kind} that envdoctor did not make ({marker})",
            expected="a new path, or an environment that envdoctor made",
            hint="envdoctor install --venv NEW_PATH",
        )
