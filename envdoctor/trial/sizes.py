"""How much a trial downloads at most, and whether the disk has the space for it."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.releases import normalize_name
from envdoctor.locking.uv import OWN_PYTHON, is_unreachable, lookup_environment, run_uv
from envdoctor.trial.environment import UvRun, require_reachable
from envdoctor.trial.plan import PlannedStep, TrialPlan

SOLVE_SECONDS = 120.0
# Unpacked files compared with wheels: 5.5 of 2.9 GB for torch 2.14.1 with its dependencies (2026-11-26). uv keeps no
# wheel, and links the files of its cache.
_UNPACKED = 2.0
_RESERVE = 1 << 30
_MAX_WITHOUT = 12
_WITHOUT_WHEEL = lazy_pattern(r"Wheels are required for `([^`]+)` because building from source is disabled")
_UNKNOWN_SIZE = 4 << 30  # unpacked, assumed for a step whose files are not known


class _File(NamedTuple):
    """A wheel or a source archive."""

    size: int
    is_remote: bool = True


def require_space(plan: TrialPlan, sources: Sources, folder: Path) -> str:
    """What the trial downloads, in words. Raises EnvdoctorError if the disk has no space for it."""
    files: dict[str, _File] = {}
    unknown = 0
    for step in plan.steps:
        found = _files_of(step, plan.python, sources)
        unknown += found is None
        files |= found or {}
    needed = int(sum(each.size for each in files.values()) * _UNPACKED) + unknown * _UNKNOWN_SIZE + _RESERVE
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise EnvdoctorError(
            f"a trial needs up to {_in_words(needed)}, and {folder} has {_in_words(free)} free",
            expected="a disk with free space for the packages of the file in the cache of uv",
            hint=shell_command("df -h {}", folder),
        )
    more = f", and files of unknown size in {unknown} step{'s' * (unknown != 1)}" if unknown else ""
    download = _in_words(sum(each.size for each in files.values() if each.is_remote))
    return f"downloads at most {download}{more}; what uv has in its cache is not downloaded"


def _files_of(step: PlannedStep, python: str, sources: Sources) -> dict[str, _File] | None:
    """The sizes of the files that a step installs, by their names; None if they are not known.

    Nothing is built for it: packages without a wheel do not count.
    """
    without: list[str] = []
    for _ in range(_MAX_WITHOUT):
        done, lock = _solve(step, python, sources, without)
        if done.ok:
            return dict(_sizes(lock))
        if is_unreachable(done.output) and not step.indexes:
            require_reachable(UvRun(ok=False, output=done.output))
        names = {normalize_name(name) for name in _WITHOUT_WHEEL.findall(done.output)} - set(without)
        if not names:
            return None
        without += names
    return None


def _solve(
    step: PlannedStep, python: str, sources: Sources, without: Sequence[str]
) -> tuple[CompletedProcess, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="envdoctor-trial-") as name:
        source, overrides, output = (Path(name, each) for each in ("step.in", "overrides.txt", "pylock.toml"))
        source.write_text("".join(f"{text}\n" for text, _ in step.lines if "://" not in text))
        overrides.write_text("".join(f"{each} ; python_version < '3'\n" for each in without))
        links = [f"--find-links={link}" for link in sources.find_links]
        done = run_uv(
            [
                "pip", "compile", source, *OWN_PYTHON, "--python-version", python, "--format", "pylock.toml",
                "--output-file", output, "--no-build", "--quiet", "--overrides", overrides,
                *(["--no-deps"] if "--no-deps" in step.options else []), *links, *uv_arguments(sources),
            ],
            environment=lookup_environment() | uv_environment(sources), timeout=SOLVE_SECONDS,
        )  # fmt: skip
        return done, tomllib.loads(output.read_text()) if done.ok else {}


def _sizes(lock: dict[str, Any]) -> Iterator[tuple[str, _File]]:
    """The largest file of each package: its wheel for this platform, or its source archive."""
    for package in lock.get("packages", ()):
        files = package.get("wheels") or [each for each in (package.get("sdist"), package.get("archive")) if each]
        found = [_File(_size(each), is_remote=_local_path(each) is None) for each in files]
        yield f"{package['name']}=={package.get('version', '')}", max(found, default=_File(0))


def _local_path(file: dict[str, Any]) -> Path | None:
    """The path of a file in a folder of wheels or an index on disk."""
    address = file.get("path") or file.get("url", "").partition("file://")[2]
    return Path(unquote(address)) if address.startswith("/") else None


def _size(file: dict[str, Any]) -> int:
    """The size that the index states, or that of a file on this disk; 0 if it is not known."""
    if path := _local_path(file):
        with suppress(OSError):
            return path.stat().st_size
    return int(file.get("size", 0))


def _in_words(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{max(1, size >> 20)} MiB"
