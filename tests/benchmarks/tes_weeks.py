"""Recipe `tes`, cross-validated by week: mean regret of the policy and of baselines, as a Markdown table.

    python tests/benchmarks/tes_weeks.py DATA_FOLDER [SEEDS]

Runs `envdoctor train tes` for each held-out week and seed, about 30 s each on one core. With few rows, one sample can
dominate the sampled mean, so greedy results are printed too.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COLUMNS = [
    ("uniform", "baselines", "uniform_random", "mean_regret"),
    ("always 0", "baselines", "always_0", "mean_regret"),
    ("best constant", "baselines", "best_constant_of_training", "mean_regret"),
    ("least that meets the load", "baselines", "least_action_that_meets_the_load", "mean_regret"),
    ("greedy before", "before", "greedy_mean_regret"),
    ("**greedy after**", "after", "greedy_mean_regret"),
    ("sampled before", "before", "sampled_mean_regret"),
    ("sampled after", "after", "sampled_mean_regret"),
]  # fmt: skip


def run(data: Path, week: str, seed: int, folder: Path) -> dict[str, object]:
    """The result of one run."""
    command = [
        sys.executable, "-m", "envdoctor", "train", "tes", "--set", f"data={data}", "--set", f"held_out={week}",
        "--set", f"seed={seed}", "--run", str(folder), "--format", "json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout)["data"]["result"]


def pick(result: dict[str, object], path: tuple[str, ...]) -> float:
    """The number at a path of keys."""
    value: object = result
    for part in path:
        value = value[part]  # type: ignore[index]
    assert isinstance(value, float)
    return value


def main() -> None:
    """Run all weeks and seeds and print the table."""
    data, seeds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    weeks = [path.name for path in sorted(data.glob("*_q_dataset.csv"))]
    print("| held-out week | " + " | ".join(name for name, *_ in COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    rows = []
    for week in weeks:
        with tempfile.TemporaryDirectory() as folder:
            results = [run(data, week, seed, Path(folder, str(seed))) for seed in range(1, seeds + 1)]
        row = [statistics.mean(pick(result, path) for result in results) for _, *path in COLUMNS]  # type: ignore[misc]
        rows.append(row)
        print(f"| {week} | " + " | ".join(f"{value:.3f}" for value in row) + " |", flush=True)
    print("| mean | " + " | ".join(f"{statistics.mean(column):.3f}" for column in zip(*rows, strict=True)) + " |")


if __name__ == "__main__":
    main()
