"""Time and peak memory of the commands that must start fast, measured for whole processes.

    python tests/benchmarks/startup.py [--runs N] [--venv VENV] [--quickstart]

Prints the median wall time, the median CPU time with that of child processes, and the ratio of each to
`python -c pass` with the same interpreter, which distinguishes a slow machine from a slow tool. Peak memory is the
largest resident set of the process (getrusage). `--venv` adds `check` of an environment; `--quickstart` adds the
steps of one quickstart in an empty home directory with this user's package cache.

The commands run in this user's home directory: after the first `check` of an environment, its cache is used.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

BASE = "python -c pass"
ENVDOCTOR = [sys.executable, "-m", "envdoctor"]
COMMANDS = {
    BASE: [sys.executable, "-c", "pass"],
    "envdoctor --help": [*ENVDOCTOR, "--help"],
    "completion of a command": ["env", "_ENVDOCTOR_COMPLETE=bash", "_ENVDOCTOR_LINE=envdoctor che", *ENVDOCTOR],
    "completion of a setting": [
        "env", "_ENVDOCTOR_COMPLETE=bash", "_ENVDOCTOR_LINE=envdoctor train sort --set st", *ENVDOCTOR,
    ],
    "envdoctor check --format json": [*ENVDOCTOR, "check", "--format", "json"],
    "envdoctor check": [*ENVDOCTOR, "check"],
    "envdoctor profiles": [*ENVDOCTOR, "profiles"],
}  # fmt: skip
LIMITS = {"envdoctor --help": 5, "envdoctor check": 12, "envdoctor check --venv": 12}  # starts of an interpreter


class Sample(NamedTuple):
    """One run of a command: seconds and MiB."""

    wall: float
    cpu: float
    peak: float


def measure(command: list[str]) -> Sample:
    """Run a command once."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: `check` found errors on this machine
        sys.exit(f"{' '.join(command)} failed: its time would be meaningless")
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare(commands: dict[str, list[str]], runs: int) -> None:
    """Interleave the commands, so that a slowdown of the machine affects all of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for round_number in range(runs + 1):
        for name, command in commands.items():
            sample = measure(command)
            if round_number:  # the first round fills the file cache
                samples[name].append(sample)
    medians = {name: Sample(*(statistics.median(c) for c in zip(*s, strict=True))) for name, s in samples.items()}
    base = medians[BASE]
    print(f"{runs} runs, Python {sys.version.split()[0]}")
    print(f"{'':32}    wall ratio      cpu ratio  limit       peak")
    for name, median in medians.items():
        limit = f"{LIMITS[name]:5}x" if name in LIMITS else " " * 6
        print(
            f"{name:32} {median.wall * 1000:4.0f} ms {median.wall / base.wall:4.1f}x {median.cpu * 1000:5.0f} ms"
            f" {median.cpu / base.cpu:4.1f}x {limit} {median.peak:6.1f} MiB"
        )


def run_quickstart() -> None:
    """Print the seconds of quickstart's steps and probes."""
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache/uv")
    dropped = ("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    with tempfile.TemporaryDirectory() as home:
        started = time.perf_counter()
        done = subprocess.run(
            [*ENVDOCTOR, "quickstart", "cpu", "--format", "json"],
            stdout=subprocess.PIPE, check=False, cwd=home, env=environment | {"HOME": home, "UV_CACHE_DIR": cache},
        )  # fmt: skip
        wall = time.perf_counter() - started
    if done.returncode:
        sys.exit(done.stdout.decode())
    data = json.loads(done.stdout)["data"]
    probes = [probe for probe in data["verification"]["results"] if probe["outcome"] == "passed"]
    metrics = {"quickstart": wall, **data["seconds"], **{f"  {p['probe']}": p["seconds"] for p in probes}}
    metrics |= {f"  training: {name}": value for name, value in data["trained"]["result"]["seconds"].items()}
    for name, seconds in metrics.items():
        print(f"{name:32} {seconds:6.1f} s")


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11, metavar="N")
    parser.add_argument("--venv", metavar="VENV")
    parser.add_argument("--quickstart", action="store_true")
    arguments = parser.parse_args()
    more = {"envdoctor check --venv": [*ENVDOCTOR, "check", "--venv", arguments.venv]} if arguments.venv else {}
    compare(COMMANDS | more, arguments.runs)
    if arguments.quickstart:
        run_quickstart()


if __name__ == "__main__":
    main()
