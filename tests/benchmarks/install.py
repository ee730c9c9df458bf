"""Wall time of `envdoctor install` compared with uv and the same lock, measured alternately.

    python tests/benchmarks/install.py [--profile NAME] [--python 3.11] [--rounds 5] [--folder DIR] [--small]

The uv commands are `uv venv` and `uv pip sync --require-hashes`. Both use a warm cache and a new target, which is
removed afterwards. DIR must be on the file system of uv's cache, otherwise files are copied instead of hard-linked.
The last row is the install of a lock that is already installed. Direct wheels are removed from the profile, since
`uv pip sync` of the lock does not install them. The goals apply to the minima, because other load on the machine only
adds time. The exit code is 1 if a goal is missed.
"""

# ruff: noqa: E402  the imported modules are in the parent folder

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.command import ROOT
from support.local_packages import PYTHON, write_cpu_torch, write_profile, write_wheel

from envdoctor.core.processes import clean_environment
from envdoctor.download.sources import read_sources, uv_environment
from envdoctor.install.plan import sync_arguments
from envdoctor.locking.lock import Lock, Target
from envdoctor.locking.lock_files import find_lock, lock_folder, lock_path, write_lock
from envdoctor.locking.resolve import resolve, target_for_machine
from envdoctor.locking.uv import find_uv
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import profile_file, read_profile

SECONDS, SHARE = 0.5, 1.03  # goal: at most the time of uv * 1.03 + 0.5 s
UNCHANGED_SECONDS = 1.0


def main() -> None:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="x86-cu128-vllm")
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--small", action="store_true", help="three local packages instead of a profile")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="envdoctor-install-") as folder:
        home = Path(folder)
        if options.small:
            os.environ |= small_sources(home)
            profile, python = make_small_profile(home), PYTHON
            os.environ["UV_CACHE_DIR"] = str(home / "cache")
        else:
            profile, python = without_wheels(options.profile, home), options.python
        good = compare(profile, python, home, options.rounds)
    sys.exit(not good)


def compare(profile: str, python: str, home: Path, rounds: int) -> bool:
    """Run both alternately and print their times. Returns whether the goals are met."""
    lock = read_lock_of_profile(profile, python)
    uv_times, offline_times, install_times, unchanged_times = [], [], [], []
    for round_number in range(rounds + 1):
        uv_seconds, offline_seconds = run_uv(lock, home), run_uv(lock, home, "--offline")
        install_seconds = run_envdoctor(profile, python, home)
        unchanged_seconds = run_envdoctor(profile, python, home)
        shutil.rmtree(home / "envs")
        if round_number:  # the first round warms the caches
            uv_times.append(uv_seconds)
            offline_times.append(offline_seconds)
            install_times.append(install_seconds)
            unchanged_times.append(unchanged_seconds)
    head = f"{Path(profile).stem}, Python {python}, {len(lock.packages)} packages, {rounds} rounds"
    print(f"{head}: minimum (median) in seconds")
    for name, samples in (
        ("uv venv + uv pip sync", uv_times),
        ("uv, --offline", offline_times),
        ("envdoctor install", install_times),
        ("envdoctor, unchanged", unchanged_times),
    ):
        print(f"{name:22} {min(samples):6.2f} ({statistics.median(samples):.2f})")
    fastest_uv, fastest_install = min(uv_times), min(install_times)
    goal = fastest_uv * SHARE + SECONDS
    difference, percent = fastest_install - fastest_uv, (fastest_install / fastest_uv - 1) * 100
    print(f"goal {goal:.2f} s: compared with uv {difference:+.2f} s, {percent:+.0f} %")
    return fastest_install <= goal and min(unchanged_times) <= UNCHANGED_SECONDS


def without_wheels(profile: str, home: Path) -> str:
    """Copy a bundled profile and its locks, without its direct wheels. Returns the path."""
    text = re.sub(r"(?ms)^(\[\[wheels\]\]|\[fallbacks\]).*?(?=^\[|\Z)", "", profile_file(profile).read_text())
    copy = home / f"{profile}.toml"
    copy.write_text(text)
    shutil.copytree(lock_folder(profile), lock_folder(str(copy)))
    return str(copy)


def read_lock_of_profile(profile: str, python: str) -> Lock:
    """The lock that both commands install."""
    target = target_for_machine(read_recorded("h200"), read_profile(profile))
    lock = find_lock(profile, target, python)
    if lock is None:
        sys.exit(f"{profile} has no lock for {target.platform} and Python {python}")
    return lock


def run_uv(lock: Lock, home: Path, *options: str) -> float:
    """Seconds of both uv commands. Without `--offline`, uv revalidates the cached index pages."""
    venv, file = home / "envs/uv", home / "lock.txt"
    file.write_text(lock.text)
    sources = read_sources()
    environment = clean_environment({"UV_NO_PROGRESS": "1"} | uv_environment(sources))
    shutil.rmtree(venv, ignore_errors=True)
    started = time.perf_counter()
    for arguments in (
        ("venv", "--quiet", "--python", lock.python, "--no-project", venv),
        ("pip", "sync", "--quiet", "--python", venv / "bin/python", *sync_arguments(lock, sources), *options, file),
    ):
        run([find_uv(), *map(str, arguments)], home, environment)
    return time.perf_counter() - started


def run_envdoctor(profile: str, python: str, home: Path) -> float:
    """Seconds of one install in its own process."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state")}
    command = [sys.executable, "-m", "envdoctor", "install", "--profile", profile, "--python", python, "--force"]
    started = time.perf_counter()
    run([*command, "--venv", str(home / "envs/envdoctor"), "--format", "json"], home, environment)
    return time.perf_counter() - started


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run a command, and exit if it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} failed: its time would be meaningless\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def small_sources(home: Path) -> dict[str, str]:
    """Write three wheels into a folder. Returns pip settings for this folder only."""
    wheels = home / "wheels"
    write_wheel(wheels, "alpha", "1.0", requires=["beta"])
    write_wheel(wheels, "beta", "1.0")
    write_cpu_torch(wheels)
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


def make_small_profile(home: Path) -> str:
    """Write a profile of these wheels, and its lock."""
    path = write_profile(home / "mine.toml", "alpha", "torch==9.9.0+cpu")
    resolution = resolve(read_profile(str(path)), Target("x86_64", "2.35", (PYTHON,)), read_sources())
    assert resolution.lock, resolution.attempts
    write_lock(lock_path(str(path), resolution.lock.platform, PYTHON), resolution.lock)
    return str(path)


if __name__ == "__main__":
    main()
