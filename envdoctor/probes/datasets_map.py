"""A dataset in memory: map, filter, save and load without network access."""

import tempfile
from pathlib import Path

from _needs import need
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = False

ROWS = 1000


def probe(result: Result) -> str:
    """Compare every row after saving and loading with the same computation in plain Python."""
    need("datasets")
    from datasets import Dataset, load_from_disk

    result.read_versions("datasets", "pyarrow", "dill", "multiprocess", "fsspec", "numpy", "pandas")
    rows = Dataset.from_dict({"prompt": [f"sort {n}" for n in range(ROWS)], "value": list(range(ROWS))})
    squared = rows.map(lambda row: {"square": row["value"] ** 2})
    marked = squared.map(lambda batch: {"even": [v % 2 == 0 for v in batch["value"]]}, batched=True, batch_size=64)
    filtered = marked.filter(lambda row: row["even"])
    with tempfile.TemporaryDirectory() as folder:
        filtered.save_to_disk(str(Path(folder) / "rows"))
        loaded = load_from_disk(str(Path(folder) / "rows"))
        result.require(loaded.features == filtered.features, f"columns changed on disk: {loaded.features}")
        actual = loaded.to_list()
    expected = [{"prompt": f"sort {n}", "value": n, "square": n * n, "even": True} for n in range(ROWS) if n % 2 == 0]
    result.note("rows", len(actual))
    different = next((n for n, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), None)
    result.require(len(actual) == len(expected), f"{len(actual)} rows were loaded, expected {len(expected)}")
    if different is not None:
        result.require(False, f"row {different} is {actual[different]}, expected {expected[different]}")
    return f"{ROWS} rows mapped, {len(actual)} filtered, saved and loaded correctly"


if __name__ == "__main__":
    run(probe)
