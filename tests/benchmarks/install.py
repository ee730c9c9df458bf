"""`envdoctor install` as a whole process against bare uv with the same lock, alternating, in one run.

    python tests/benchmarks/install.py [--profile NAME] [--python 3.11] [--rounds 5] [--folder DIR] [--small]

Bare is what a person would type: `uv venv`, then `uv pip sync --require-hashes`. The cache is warm for both, each
target is new, and is removed before the next. DIR must be on the file system of uv's cache, else both copy.
The second figure is an install of a profile that is installed already. Wheels by address are left out of the profile:
bare uv does not install them.
The least of several is compared: what else runs on a machine only adds. Exit code 1 where a goal is missed.
"""

# ruff: noqa: E402  the modules of the tests lie in the folder above

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

from command import ROOT
from local_packages import PYTHON, write_cpu_torch, write_profile, write_wheel

from envdoctor.core.processes import clean_environment
from envdoctor.download.sources import read_sources, uv_environment
from envdoctor.install.plan import sync_arguments
from envdoctor.locking.lock import Lock, Target
from envdoctor.locking.lock_files import find_lock, lock_folder, lock_path, write_lock
from envdoctor.locking.resolve import resolve, target_for_machine
from envdoctor.locking.uv import find_uv
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import profile_file, read_profile

SECONDS, SHARE = 0.5, 1.03  # the goal: bare uv's time * 1.03 + 0.5 s
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
    """Run both by turns and print what they took; whether the goals were met."""
    lock = read_lock_of_profile(profile, python)
    bare, offline, ours, unchanged = [], [], [], []
    for turn in range(rounds + 1):
        new, cached = run_bare(lock, home), run_bare(lock, home, "--offline")
        mine, again = run_envdoctor(profile, python, home), run_envdoctor(profile, python, home)
        for path in home.glob("envs/*"), home.glob("envs/.*"):
            for each in path:
                shutil.rmtree(each)
        if turn:  # the first warms the caches
            bare.append(new)
            offline.append(cached)
            ours.append(mine)
            unchanged.append(again)
    head = f"{Path(profile).stem}, Python {python}, {len(lock.packages)} packages, {rounds} rounds"
    print(f"{head}: least (median) in seconds")
    for name, samples in (
        ("uv venv + uv pip sync", bare),
        ("the same, --offline", offline),
        ("envdoctor install", ours),
        ("the same again", unchanged),
    ):
        print(f"{name:22} {min(samples):6.2f} ({statistics.median(samples):.2f})")
    goal = min(bare) * SHARE + SECONDS
    print(
        f"goal {goal:.2f} s: over bare uv {min(ours) - min(bare):+.2f} s, {(min(ours) / min(bare) - 1) * 100:+.0f} %"
    )
    return min(ours) <= goal and min(unchanged) <= UNCHANGED_SECONDS


def without_wheels(profile: str, home: Path) -> str:
    """A copy of a bundled profile and its locks, without the wheels that no index has."""
    text = re.sub(r"(?ms)^(\[\[wheels\]\]|\[fallbacks\]).*?(?=^\[|\Z)", "", profile_file(profile).read_text())
    copy = home / f"{profile}.toml"
    copy.write_text(text)
    shutil.copytree(lock_folder(profile), lock_folder(str(copy)))
    return str(copy)


def read_lock_of_profile(profile: str, python: str) -> Lock:
    """The lock that both will install."""
    read = read_profile(profile)
    target = target_for_machine(read_recorded("h200"), read)
    lock = find_lock(profile, target, python)
    if lock is None:
        sys.exit(f"{profile} has no lock for {target.platform} and Python {python}")
    return lock


def run_bare(lock: Lock, home: Path, *more: str) -> float:
    """Seconds of the two commands. With `--offline` uv does not ask the index whether its pages still hold."""
    venv, file = home / "envs/bare", home / "lock.txt"
    file.write_text(lock.text)
    sources = read_sources()
    environment = clean_environment({"UV_NO_PROGRESS": "1"} | uv_environment(sources))
    shutil.rmtree(venv, ignore_errors=True)
    began = time.perf_counter()
    for arguments in (
        ("venv", "--quiet", "--python", lock.python, "--no-project", venv),
        ("pip", "sync", "--quiet", "--python", venv / "bin/python", *sync_arguments(lock, sources), *more, file),
    ):
        run([find_uv(), *map(str, arguments)], home, environment)
    return time.perf_counter() - began


def run_envdoctor(profile: str, python: str, home: Path) -> float:
    """Seconds of one install as a whole process, with a home of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(home / "state")}
    command = [sys.executable, "-m", "envdoctor", "install", "--profile", profile, "--python", python, "--force"]
    began = time.perf_counter()
    run([*command, "--venv", str(home / "envs/ours"), "--format", "json"], home, environment)
    return time.perf_counter() - began


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """One command, which must succeed."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} failed: its time would mean nothing\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def small_sources(home: Path) -> dict[str, str]:
    """Three wheels in a folder, and nothing else."""
    wheels = home / "wheels"
    write_wheel(wheels, "alpha", "1.0", requires=["beta"])
    write_wheel(wheels, "beta", "1.0")
    write_cpu_torch(wheels)
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}


def make_small_profile(home: Path) -> str:
    """A profile of them, with its lock."""
    path = write_profile(home / "mine.toml", "alpha", "torch==9.9.0+cpu")
    found = resolve(read_profile(str(path)), Target("x86_64", "2.35", (PYTHON,)), read_sources())
    assert found.lock, found.attempts
    write_lock(lock_path(str(path), found.lock.platform, PYTHON), found.lock)
    return str(path)


if __name__ == "__main__":
    main()
