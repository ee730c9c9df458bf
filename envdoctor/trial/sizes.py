"""How much a trial downloads at most, and whether the disk has the space for it."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.locking.uv import OWN_PYTHON, lookup_environment, run_uv
from envdoctor.trial.plan import PlannedStep, TrialPlan

SOLVE_SECONDS = 120.0
_UNPACKED = 2.5  # size of the unpacked files of torch's wheels compared with the wheels, and the wheels in the cache
_RESERVE = 1 << 30
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
    """The sizes of the files that a step installs, by their addresses; None if they are not known."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-trial-") as name:
        source, output = Path(name, "step.in"), Path(name, "pylock.toml")
        source.write_text("".join(f"{text}\n" for text, _ in step.lines if "://" not in text))
        links = [f"--find-links={link}" for link in sources.find_links]
        done = run_uv(
            [
                "pip", "compile", source, *OWN_PYTHON, "--python-version", python, "--format", "pylock.toml",
                "--output-file", output, "--no-build", "--quiet",
                *(["--no-deps"] if "--no-deps" in step.options else []), *links, *uv_arguments(sources),
            ],
            environment=lookup_environment() | uv_environment(sources), timeout=SOLVE_SECONDS,
        )  # fmt: skip
        if not done.ok:
            return None
        lock = tomllib.loads(output.read_text())
    return dict(_sizes(lock))


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
