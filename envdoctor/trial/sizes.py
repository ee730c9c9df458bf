"""How much a trial downloads at most, and whether the disk has the space for it."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.releases import normalize_name
from envdoctor.locking.uv import OWN_PYTHON, is_unreachable, lookup_environment, run_uv
from envdoctor.trial.environment import UvRun, require_reachable
from envdoctor.trial.plan import PlannedStep, TrialPlan

SOLVE_SECONDS = 120.0
_UNPACKED = 2.5  # size of the unpacked files of torch's wheels compared with the wheels, and the wheels in the cache
_RESERVE = 1 << 30
_MAX_WITHOUT = 6
_WITHOUT_WHEEL = re.compile(r"Wheels are required for `([^`]+)` because building from source is disabled")
_UNKNOWN_SIZE = 4 << 30  # assumed for a step whose files are not known


def require_space(plan: TrialPlan, sources: Sources, folder: Path) -> str:
    """What the trial downloads, in words. Raises EnvdoctorError if the disk has no space for it."""
    files: dict[str, int] = {}
    unknown = 0
    for step in plan.steps:
        found = _files_of(step, plan.python, sources)
        unknown += found is None
        files |= found or {}
    size = sum(files.values())
    needed = int(size * (1 + _UNPACKED)) + unknown * _UNKNOWN_SIZE + _RESERVE
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise EnvdoctorError(
            f"a trial needs about {_gib(needed)}, and {folder} has {_gib(free)} free",
            expected="a disk with free space for the packages of the file and the cache of uv",
            hint=shell_command("df -h {}", folder),
        )
    more = f", and the files of {unknown} steps of unknown size" if unknown else ""
    return f"downloads at most {_gib(size)}{more}; what uv has in its cache is not downloaded"


def _files_of(step: PlannedStep, python: str, sources: Sources) -> dict[str, int] | None:
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
) -> tuple[CompletedProcess, dict[str, object]]:
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


def _sizes(lock: dict[str, object]) -> list[tuple[str, int]]:
    """The largest file of each package: its wheel for this platform, or its source archive."""
    packages: list[dict[str, object]] = lock.get("packages", [])  # type: ignore[assignment]
    found = []
    for package in packages:
        wheels: list[dict[str, object]] = package.get("wheels") or [package.get("sdist") or {}]  # type: ignore[assignment]
        sizes = [size for wheel in wheels if isinstance(size := wheel.get("size"), int)]
        found.append((f"{package['name']}=={package.get('version', '')}", max(sizes, default=0)))
    return found


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
