"""Removal of environments, for `clean` and `uninstall`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, Refused
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.environment.managed import EnvironmentPaths, size_on_disk
from envdoctor.install.swap import remove_environment

MIB = 1 << 20


class RemovalResult(Record, frozen=True):
    """Directories that were removed; for a dry run, directories that would be removed."""

    paths: tuple[str, ...]
    size: int  # bytes freed at most: files hard-linked to uv's cache are freed only with the cache
    kept: tuple[str, ...] = ()  # directories that were kept, with the reason
    dry_run: bool = False


def confirm_removal(planned: RemovalResult, reporter: Reporter, words: Sequence[str]) -> None:
    """Request confirmation to remove directories. `words`: the command line, for the hint in a pipe."""
    if not planned.paths:
        return
    count = f"{len(planned.paths)} director{'y' if len(planned.paths) == 1 else 'ies'}"
    confirmed = reporter.confirm(planned, f"Remove {count}?")
    if confirmed is None:
        raise BadInput(
            f"not confirmed: {count} of {planned.size / MIB:,.0f} MiB would be removed: {', '.join(planned.paths)}",
            expected="--yes, or a terminal to confirm on",
            hint=shlex.join(["envdoctor", *words, "--yes"]),
        )
    if not confirmed:
        raise Refused(
            "not confirmed: nothing was removed", expected="y to remove what is listed", hint="envdoctor envs"
        )


class Removal:
    """Removes directories, or only counts them in a dry run."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.paths: list[Path] = []
        self.kept: list[str] = []
        self.size = 0

    def remove(self, path: Path) -> None:
        """Remove a directory."""
        self.count(path)
        if not self.dry_run:
            remove_environment(path)

    def count(self, path: Path) -> None:
        """Count a directory that the caller removes."""
        self.paths.append(path)
        self.size += size_on_disk(path)

    def keep(self, path: Path, reason: str) -> None:
        """Record why a directory is kept."""
        self.kept.append(f"{path}: {reason}")

    def result(self) -> RemovalResult:
        """Everything removed and kept so far."""
        return RemovalResult(tuple(map(str, self.paths)), self.size, tuple(self.kept), self.dry_run)


def restore_command(environment: EnvironmentPaths, path: Path) -> str:
    """The command that restores a replaced environment to its original path, which its scripts contain."""
    if path == environment.previous:
        return command_line("envdoctor", "rollback", "--venv", environment.venv)
    venv = environment.venv
    return f"{command_line('mv', venv, f'{venv}.other')} && {command_line('mv', path, venv)}"
