"""`envdoctor paths`: list everything that envdoctor stores on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.directories import cache_directory, state_directory
from envdoctor.core.paths import is_folder
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.environment.managed import size_on_disk
from envdoctor.install.known_environments import known_environments
from envdoctor.knowledge.installed import knowledge_directory
from envdoctor.locking.uv import run_uv
from envdoctor.profiles.files import user_folder


class PathEntry(Record, frozen=True):
    """One directory: its use, its size, and how to remove it."""

    path: str
    use: str
    size: int | None  # bytes; None: it does not exist
    remove: str


class PathList(Record, frozen=True):
    """Every directory that envdoctor uses."""

    paths: tuple[PathEntry, ...]


class PathsRequest(Record, frozen=True):
    """Prints the size of each folder, and the command that removes it.

    Example: envdoctor paths
    """


def run(_request: PathsRequest) -> CommandResult:
    """List every directory on this machine."""
    return CommandResult(PathList(tuple(_entries())))


def _entries() -> Iterator[PathEntry]:
    for environment in known_environments():
        venv = environment.venv
        yield _entry(venv, "environment", command_line("envdoctor", "uninstall", "--venv", venv))
        yield _entry(
            environment.folder,
            "previous environment, journal, lock",
            command_line("envdoctor", "clean", "--venv", venv),
        )
    yield _entry(state_directory(), "logs, verifications, list of environments", "envdoctor uninstall --all")
    yield _entry(
        cache_directory(),
        "parsed files, direct wheels, builds",
        "envdoctor uninstall --all",
    )
    yield _entry(knowledge_directory(), "tables of updates", "envdoctor uninstall --all")
    yield _entry(user_folder(os.environ), "user profiles", "manually")
    yield _entry(_uv_cache(), "uv's cache, shared with other tools", "uv cache prune")


def _entry(path: Path, use: str, remove: str) -> PathEntry:
    return PathEntry(str(path), use, size_on_disk(path) if is_folder(path) else None, remove)


def _uv_cache() -> Path:
    finished = run_uv(["cache", "dir"], environment={}, timeout=30)
    lines = finished.output.strip().splitlines()
    return Path(lines[-1]) if finished.ok and lines else Path("unknown")
