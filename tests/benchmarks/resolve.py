"""Wall time of `envdoctor resolve` compared with the uv command that it runs, measured alternately.

    python tests/benchmarks/resolve.py [ROUNDS]

The arguments and environment of the uv command are recorded when envdoctor starts it. The command is then run
separately with a copy of its input files. uv's cache has the index pages and the metadata of the wheels; uv
revalidates the pages. gh200 is not measured, because its first attempt fails: its torch is not on PyPI.
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

PAIRS = {"x86-cu128-vllm": "h200", "x86-cu124-hf": "h100", "cpu": "cpu-2core"}
ROUNDS = 7
LIMIT = 1.3


@dataclass(frozen=True)
class RecordedCommand:
    """A uv command of envdoctor, with a copy of its input files."""

    argv: list[str]
    environment: dict[str, str]
    output: Path

    def seconds(self, folder: Path) -> float:
        """The time of one run without envdoctor. The output of an earlier run would affect uv and is removed."""
        self.output.unlink(missing_ok=True)
        return timed(self.argv, self.environment, folder)


def record_commands(profile_name: str, machine: str, folder: Path) -> list[RecordedCommand]:
    """The uv commands of one resolution."""
    commands: list[RecordedCommand] = []
    start = uv.run

    def record(argv: Any, *, env: Mapping[str, str], **options: Any) -> Any:
        inputs = next(Path(part).parent for part in map(str, argv) if part.endswith("requirements.in"))
        copy = folder / f"{profile_name}-{len(commands)}"
        shutil.copytree(inputs, copy)
        arguments = [str(part).replace(str(inputs), str(copy)) for part in argv]
        commands.append(RecordedCommand(arguments, clean_environment(env), copy / "pylock.toml"))
        return start(argv, env=env, **options)

    profile = read_profile(profile_name)
    uv.run = record
    try:
        resolution = resolve(profile, target_for_machine(read_recorded(machine), profile), read_sources())
    finally:
        uv.run = start
    if resolution.lock is None:
        sys.exit(f"{profile_name} does not resolve: its time would be meaningless")
    return commands


def timed(argv: list[str], environment: Mapping[str, str] | None, folder: Path) -> float:
    """Wall time of one process in seconds."""
    started = time.perf_counter()
    done = subprocess.run(argv, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{shlex.join(argv)} ended with {done.returncode}: {done.stderr[-500:]}")
    return seconds


def main() -> None:
    """For each profile, print the uv command and measure both alternately."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    slow = []
    with tempfile.TemporaryDirectory(prefix="envdoctor-benchmark-") as folder:
        for profile, machine in PAIRS.items():
            commands = record_commands(profile, machine, Path(folder))
            if len(commands) != 1:
                sys.exit(f"{profile} ran {len(commands)} uv commands, expected one")
            print(f"{profile} on {machine}:\n  {shlex.join(commands[0].argv)}")
            command = [sys.executable, "-m", "envdoctor", "resolve", "--profile", profile, "--machine", machine]
            neutral = Path(folder, "empty")
            neutral.mkdir(exist_ok=True)
            uv_times, envdoctor_times = [], []
            for _ in range(rounds):
                uv_times.append(commands[0].seconds(neutral))
                envdoctor_times.append(timed(command, None, neutral))
            ratio = statistics.median(envdoctor_times) / statistics.median(uv_times)
            print(f"  uv         min {min(uv_times):.2f} s  median {statistics.median(uv_times):.2f} s")
            print(f"  envdoctor  min {min(envdoctor_times):.2f} s  median {statistics.median(envdoctor_times):.2f} s")
            print(f"  ratio of medians {ratio:.2f}, of minima {min(envdoctor_times) / min(uv_times):.2f}")
            if ratio > LIMIT:
                slow.append(profile)
    if slow:
        sys.exit(f"slower than {LIMIT} times the uv command: {', '.join(slow)}")


if __name__ == "__main__":
    main()
