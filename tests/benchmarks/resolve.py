"""`envdoctor resolve` as a whole process against the very uv command that it runs, alternating, in one run.

    python tests/benchmarks/resolve.py [ROUNDS]

The uv command is caught where envdoctor starts it (argument list and environment), then run again by itself from a
copy of the same input files. Warm means what it means for users: the index's pages and the wheels' metadata lie in
uv's cache, and uv asks the index whether the pages still hold.
Profiles whose first attempt fails by design are left out: gh200, since its torch is not on PyPI.
"""

from __future__ import annotations

import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envdoctor.core.processes import clean_environment
from envdoctor.download.sources import read_sources
from envdoctor.locking import uv
from envdoctor.locking.resolve import resolve, target_for_machine
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import read_profile

PAIRS = {"x86-cu128-vllm": "h200", "x86-cu124-hf": "h100x8", "cpu": "cpu-2core"}
ROUNDS = 7
LIMIT = 1.3


@dataclass(frozen=True)
class Caught:
    """A command as envdoctor starts it, over a copy of its input files."""

    argv: list[str]
    environment: dict[str, str]
    output: Path

    def seconds(self, folder: Path) -> float:
        """One run of it by itself; what an earlier run wrote would steer uv, so it is taken away first."""
        self.output.unlink(missing_ok=True)
        return timed(self.argv, self.environment, folder)


def catch(profile_name: str, machine: str, folder: Path) -> list[Caught]:
    """The uv commands of one resolution, as they are started."""
    found: list[Caught] = []
    start = uv.run

    def recorded(argv: Any, *, env: Mapping[str, str], **options: Any) -> Any:
        inputs = next(Path(part).parent for part in map(str, argv) if part.endswith("requirements.in"))
        copy = folder / f"{profile_name}-{len(found)}"
        shutil.copytree(inputs, copy)
        words = [str(part).replace(str(inputs), str(copy)) for part in argv]
        found.append(Caught(words, clean_environment(env), copy / "pylock.toml"))
        return start(argv, env=env, **options)

    profile = read_profile(profile_name)
    uv.run = recorded
    try:
        resolution = resolve(profile, target_for_machine(read_recorded(machine), profile), read_sources())
    finally:
        uv.run = start
    if resolution.lock is None:
        sys.exit(f"{profile_name} does not resolve: its time would mean nothing")
    return found


def timed(argv: list[str], environment: Mapping[str, str] | None, folder: Path) -> float:
    """Wall seconds of one process, to its end."""
    began = time.perf_counter()
    done = subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    spent = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{shlex.join(argv)} ended with {done.returncode}: {done.stderr[-500:]}")
    return spent


def main() -> None:
    """For each profile: the command, then both ways in turn."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    slow = []
    with tempfile.TemporaryDirectory(prefix="envdoctor-benchmark-") as place:
        for profile, machine in PAIRS.items():
            commands = catch(profile, machine, Path(place))
            if len(commands) != 1:
                sys.exit(f"{profile} took {len(commands)} commands: there is no one command to compare with")
            print(f"{profile} on {machine}:\n  {shlex.join(commands[0].argv)}")
            ours = [sys.executable, "-m", "envdoctor", "resolve", "--profile", profile, "--machine", machine]
            neutral = Path(place, "empty")
            neutral.mkdir(exist_ok=True)
            bare, whole = [], []
            for _ in range(rounds):
                bare.append(commands[0].seconds(neutral))
                whole.append(timed(ours, None, neutral))
            ratio = statistics.median(whole) / statistics.median(bare)
            print(f"  uv         min {min(bare):.2f} s  median {statistics.median(bare):.2f} s")
            print(f"  envdoctor  min {min(whole):.2f} s  median {statistics.median(whole):.2f} s")
            print(f"  ratio of medians {ratio:.2f}, of minima {min(whole) / min(bare):.2f}")
            if ratio > LIMIT:
                slow.append(profile)
    if slow:
        sys.exit(f"above {LIMIT} times the bare command: {', '.join(slow)}")


if __name__ == "__main__":
    main()
