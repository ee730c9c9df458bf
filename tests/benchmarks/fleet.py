"""Wall time and peak memory of the process `fleet check --recorded`, for 100, 1,000 and 4,000 nodes.

    python tests/benchmarks/fleet.py [RUNS]

Each node is a file as large as the output of `check --format json` on eight H100s with 200 packages. One node in a
hundred has another driver, one in a hundred another numpy, and one file is incomplete. The last columns are ratios to
the previous row: memory is bounded where it does not grow with the number of nodes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from startup import measure

ROOT = Path(__file__).parent.parent.parent
COUNTS = (100, 1000, 4000)


def envelope(driver: str, numpy: str) -> bytes:
    """Return the output of one node's check."""
    machine = json.loads((ROOT / "tests/data/machines/h100x8.json").read_text())
    machine["driver"]["version"] = {"value": driver, "source": "libnvidia-ml.so.1"}
    packages = {f"package-{number}": {"name": f"package-{number}", "version": f"1.{number}"} for number in range(200)}
    packages["numpy"] = {"name": "numpy", "version": numpy}
    stack = {
        "python_version": {"value": "3.12.3", "source": "pyvenv.cfg"},
        "distributions": {"value": packages, "source": "site-packages"},
        "torch": {"state": "absent", "source": "site-packages"},
    }
    data = {"machine": machine, "stack": stack, "findings": []}
    return json.dumps({"schema": 1, "envdoctor": "0.1.0", "command": "check", "data": data, "error": None}).encode()


def write_nodes(folder: Path, count: int) -> int:
    """Write the recorded nodes and return their total size in bytes."""
    usual, driver, numpy = (
        envelope("570.133.20", "2.1.0"),
        envelope("550.54.15", "2.1.0"),
        envelope("570.133.20", "2.2.0"),
    )
    for number in range(1, count + 1):
        data = driver if number % 100 == 7 else numpy if number % 100 == 8 else usual
        (folder / f"node{number:04d}.json").write_bytes(data[: len(data) // 2] if number == 50 else data)
    return sum(path.stat().st_size for path in folder.iterdir())


def main(runs: int) -> None:
    """Print a row for each number of nodes."""
    print(f"{'nodes':>6} {'MB read':>8} {'seconds':>8} {'MB peak':>8} {'x time':>7} {'x memory':>9}")
    previous: tuple[float, float] | None = None
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as name:
            size = write_nodes(Path(name), count)
            argv = [sys.executable, "-m", "envdoctor", "fleet", "check", "--recorded", name]
            samples = [measure(argv) for _ in range(runs)]
        seconds = statistics.median(sample[0] for sample in samples)
        memory = statistics.median(sample[1] for sample in samples)
        ratio = f"{seconds / previous[0]:7.1f} {memory / previous[1]:9.2f}" if previous else ""
        print(f"{count:6d} {size / 1e6:8.1f} {seconds:8.2f} {memory:8.1f} {ratio}")
        previous = seconds, memory


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
