"""Wall time and peak memory of the commands that must start fast, measured for whole processes.

    python tests/benchmarks/startup.py [RUNS]

Prints the median of each and its ratio to `python -c pass` with the same interpreter, which distinguishes a slow
machine from a slow tool. Peak memory is the largest resident set of the process (getrusage).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "envdoctor --help": [sys.executable, "-m", "envdoctor", "--help"],
    "envdoctor check --format json": [sys.executable, "-m", "envdoctor", "check", "--format", "json"],
    "envdoctor check": [sys.executable, "-m", "envdoctor", "check"],
    "completion of a setting": [sys.executable, "-m", "envdoctor"],
    "envdoctor profiles": [sys.executable, "-m", "envdoctor", "profiles"],
}
COMPLETION = {"_ENVDOCTOR_COMPLETE": "bash", "_ENVDOCTOR_LINE": "envdoctor train sort --set lear"}


def measure(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of one run."""
    variables = os.environ | (COMPLETION if command[1:] == ["-m", "envdoctor"] else {})
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables)
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):  # 1: `check` found errors on this machine
        sys.exit(f"{' '.join(command)} failed: its time would be meaningless")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Interleave the commands, so that a slowdown of the machine affects all of them."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for round_number in range(runs + 1):
        for name, command in COMMANDS.items():
            sample = measure(command)
            if round_number:  # the first round fills the file cache
                samples[name].append(sample)
    base = statistics.median(wall for wall, _ in samples["python -c pass"])
    print(f"{runs} runs, Python {sys.version.split()[0]}")
    for name, values in samples.items():
        wall = statistics.median(wall for wall, _ in values)
        peak = max(peak for _, peak in values)
        print(f"{name:32} {wall * 1000:7.0f} ms  {wall / base:5.1f}x  {peak:6.1f} MiB")


if __name__ == "__main__":
    main()
