"""A dataset in memory: map, filter, save, load, with no network."""

import tempfile
from pathlib import Path

from _needs import need
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = False

ROWS = 1000


def probe(result: Result) -> str:
    """Every row must come back from the disk as plain Python says it should be."""
    need("datasets")
    from datasets import Dataset, load_from_disk

    result.read_versions("datasets", "pyarrow", "dill", "multiprocess", "fsspec", "numpy", "pandas")
    rows = Dataset.from_dict({"prompt": [f"sort {n}" for n in range(ROWS)], "value": list(range(ROWS))})
    squared = rows.map(lambda row: {"square": row["value"] ** 2})
    marked = squared.map(lambda batch: {"even": [v % 2 == 0 for v in batch["value"]]}, batched=True, batch_size=64)
    kept = marked.filter(lambda row: row["even"])
    with tempfile.TemporaryDirectory() as folder:
        kept.save_to_disk(str(Path(folder) / "rows"))
        loaded = load_from_disk(str(Path(folder) / "rows"))
        result.require(loaded.features == kept.features, f"columns changed on disk: {loaded.features}")
        found = loaded.to_list()
    expected = [{"prompt": f"sort {n}", "value": n, "square": n * n, "even": True} for n in range(ROWS) if n % 2 == 0]
    result.note("rows", len(found))
    wrong = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
    result.require(len(found) == len(expected), f"{len(found)} rows came back, expected {len(expected)}")
    if wrong is not None:
        result.require(False, f"row {wrong} came back as {found[wrong]}, expected {expected[wrong]}")
    return f"{ROWS} rows mapped, {len(found)} filtered, saved and loaded the same"


if __name__ == "__main__":
    run(probe)
