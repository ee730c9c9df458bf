"""Wall time of `envdoctor quickstart` on the CPU profile, by step, with an empty home and a warm package cache.

    python tests/benchmarks/quickstart.py [RUNS]

The first run fills uv's cache and is not counted. Each run uses a fresh home, so that only the cache is reused.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def run() -> dict[str, float]:
    """Seconds of each step of one quickstart."""
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache/uv")
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-m", "envdoctor", "quickstart", "--profile", "cpu", "--format", "json"],
            capture_output=True,
            text=True,
            cwd=home,
            env=os.environ | {"HOME": home, "UV_CACHE_DIR": cache},
            check=False,
        )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    seconds: dict[str, float] = json.loads(done.stdout)["data"]["seconds"]
    return seconds | {"total": sum(seconds.values())}


def main() -> None:
    """Run once to fill the cache, then measure."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    run()
    samples = [run() for _ in range(runs)]
    print(f"{runs} runs on {len(os.sched_getaffinity(0))} cores, seconds: median (least to most)")
    for part in samples[0]:
        values = [sample[part] for sample in samples]
        print(f"{part:8} {statistics.median(values):6.1f} ({min(values):.1f} to {max(values):.1f})")


if __name__ == "__main__":
    main()
