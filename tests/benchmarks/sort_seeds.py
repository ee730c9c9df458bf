"""Recipe `sort` with several seeds: held-out exact match before and after, and seconds, as a Markdown table.

    python tests/benchmarks/sort_seeds.py PYTHON_OF_THE_STACK [SEEDS] [KEY=VALUE ...]

Held-out prompts share no multiset of digits with training prompts (tasks/sort.py ensures this).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GRPO = Path(__file__).resolve().parents[2] / "train" / "grpo.py"
COLUMNS = ["greedy before", "greedy after", "sampled before", "sampled after", "seconds"]


def run(python: str, settings: dict[str, object]) -> list[float]:
    """The values of COLUMNS for one run. The time is that of the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort", "settings": settings}))
        started = time.monotonic()
        done = subprocess.run([python, "-B", GRPO, folder], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - started
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        result = json.loads(Path(folder, "result.json").read_text())
    metrics = [result[when][f"{kind}_exact_match"] for kind in ("greedy", "sampled") for when in ("before", "after")]
    return [*metrics, seconds]


def main() -> None:
    """Run all seeds and print the table."""
    python, seeds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    assignments = dict(pair.split("=", 1) for pair in sys.argv[3:])
    settings = {key: json.loads(value) for key, value in assignments.items()}
    print("| seed | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    rows = []
    for seed in range(1, seeds + 1):
        rows.append(run(python, {"seed": seed} | settings))
        print(f"| {seed} | " + " | ".join(f"{number:.3g}" for number in rows[-1]) + " |", flush=True)
    means = [statistics.mean(column) for column in zip(*rows, strict=True)]
    print("| mean | " + " | ".join(f"{number:.3g}" for number in means) + " |")


if __name__ == "__main__":
    main()
