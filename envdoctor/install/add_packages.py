"""Add packages to a Python with uv, and keep its torch, what is compiled for it and its CUDA libraries."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.record import Record
from envdoctor.core.records import Distribution
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.notebook_services import is_kept
from envdoctor.locking.uv import describe_unreachable, is_unreachable, run_uv, summarize_error

SECONDS = 60 * 60.0
LINE = lazy_pattern(r"^ (?P<sign>[-+~]) (?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>\S+)", re.MULTILINE)


class PackageChange(Record, frozen=True):
    """A package that an installation adds or replaces. `before` is empty for a new one, `after` for a removed one."""

    name: str
    before: str
    after: str


def kept_packages(distributions: Mapping[str, Distribution]) -> tuple[str, ...]:
    """The constraints that keep torch and what belongs to its build."""
    return tuple(f"{each.name}=={each.version}" for name, each in sorted(distributions.items()) if is_kept(name))


def add_packages(
    python: Path,
    packages: Sequence[str],
    kept: Sequence[str],
    sources: Sources,
    *,
    log: Path,
    dry_run: bool,
    locked: str = "",
) -> tuple[PackageChange, ...]:
    """Install packages, and the lines of a lock, into a Python with uv. Raises Refused if they need another torch.

    uv downloads all wheels, and compares those of the lock with their hashes, before the first change. Wheels only: a
    source distribution such as flash-attn would be compiled for an hour.
    """
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        constraints, lock_file = Path(folder) / "constraints.txt", Path(folder) / "lock.txt"
        constraints.write_text("".join(f"{line}\n" for line in kept))
        lock_file.write_text(locked)
        done = run_uv(
            ["pip", "install", "--python", python, "--constraints", constraints, "--only-binary", ":all:",
             *uv_arguments(sources), *(["--dry-run"] if dry_run else []),
             *(("--requirements", str(lock_file)) if locked else ()), *packages],
            environment=uv_environment(sources), timeout=SECONDS, log=log,
        )  # fmt: skip
    if not done.ok and not dry_run and not is_unreachable(done.output):
        raise EnvdoctorError(  # after a solution was found
            f"the installation failed: {summarize_error(done.output)}",
            expected=f"wheels that can be downloaded and copied to {python}, with the hashes of the lock",
            hint=f"read {log}, and run the same command again",
        )
    if not done.ok:
        raise _error(done, python, packages or ["the lock"], kept, log)
    return read_changes(done.output)


def read_changes(output: str) -> tuple[PackageChange, ...]:
    """The changes that uv lists: `- numpy==2.1.3` and `+ numpy==2.2.0`."""
    removed, added = {}, {}
    for found in LINE.finditer(output):
        if found["sign"] in "-~":
            removed[found["name"]] = found["version"]
        if found["sign"] in "+~":
            added[found["name"]] = found["version"]
    names = sorted({*removed, *added})
    return tuple(PackageChange(name, removed.get(name, ""), added.get(name, "")) for name in names)


def _error(
    done: CompletedProcess, python: Path, packages: Sequence[str], kept: Sequence[str], log: Path
) -> EnvdoctorError:
    if is_unreachable(done.output):
        return EnvdoctorError(
            describe_unreachable(done.output),
            expected="the package index, or the wheels in a folder",
            hint=f"check the network and run the same command again; the log is {log}",
        )
    torch = next((line for line in kept if line.startswith("torch==")), "torch")
    return Refused(
        f"{' '.join(packages)}: no solution that keeps {torch}: {summarize_error(done.output)}",
        expected=f"wheels that fit the packages of {python}; nothing was changed",
        hint=command_line("envdoctor", "check", "--python", python),
    )
