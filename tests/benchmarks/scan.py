"""Wall time of `archs` and `abi` for one environment, as separate processes, with cold and warm caches.

    python tests/benchmarks/scan.py VENV [RUNS]

cold: no cache of envdoctor, and files not in the page cache (/proc/sys/vm/drop_caches if writable, otherwise
posix_fadvise). first: no cache of envdoctor, files in the page cache. warm: both caches filled. Goals for the 10 GB
of a vLLM environment: cold <= 8 s, warm <= 0.5 s.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORK = {
    "archs": "from envdoctor.commands.archs import *; run(ArchsRequest(target={venv!r}, cc='9.0,12.0'))",
    "abi": "from envdoctor.commands.abi import *; run(AbiRequest(venv={venv!r}))",
}


def clear_page_cache(venv: Path) -> str:
    """Remove the files from the page cache; returns the method."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        for folder, _, names in os.walk(venv / "lib"):
            for name in names:
                if name.endswith((".so", "RECORD", "METADATA")) or ".so." in name:
                    clear_file(Path(folder, name))
        return "posix_fadvise"
    return "drop_caches"


def clear_file(path: Path) -> None:
    """Remove one file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(code: str, cache: str) -> float:
    """Wall time of one process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"XDG_CACHE_HOME": cache}, check=True)
    return time.perf_counter() - started


def main() -> None:
    """Measure each run with a new cache folder: cold, then warm twice, then with a filled page cache only."""
    venv = Path(sys.argv[1]).absolute()
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for name, work in WORK.items():
        code = work.format(venv=str(venv))
        samples: dict[str, list[float]] = {"cold": [], "warm": [], "first": []}
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
                method = clear_page_cache(venv)
                samples["cold"].append(seconds(code, cache))
                samples["warm"] += [seconds(code, cache), seconds(code, cache)]
                samples["first"].append(seconds(code, other))
        for state, values in samples.items():
            note = f" ({method})" if state == "cold" else ""
            low, middle, high = min(values), statistics.median(values), max(values)
            print(f"{name:6} {state:6} {middle:6.2f} s  ({low:.2f} to {high:.2f}, {len(values)} runs){note}")


if __name__ == "__main__":
    main()
