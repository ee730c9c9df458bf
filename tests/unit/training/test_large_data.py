"""A dry run of a large file checks its first rows, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import environment

MEMORY_BYTES = 400 << 20  # of addresses; it took 1.2 GB before
ROWS = 1_000_000


@pytest.mark.parametrize("other", ["x" * 60, "x"])  # 120 and 30 MB
def test_a_csv_of_a_million_rows(tmp_path: Path, other: str) -> None:
    with (tmp_path / "rows.csv").open("w") as file:
        file.write("prompt,answer,other\n")
        file.writelines(f"what is {number} plus one,{number + 1},{other}\n" for number in range(ROWS))
    (tmp_path / "score.py").write_text("def score(completions, **_):\n    return [0.0] * len(completions)\n")
    settings = (
        "--data",
        "rows.csv",
        "--reward",
        "score.py:score",
        "--model",
        "some/model",
        "--set",
        "held_out=other=x",
    )
    done = subprocess.run(
        ["prlimit", f"--as={MEMORY_BYTES}", sys.executable, "-m", "envdoctor", "train", *settings, "--dry-run",
         "--format", "json"],
        capture_output=True, text=True, env=environment(tmp_path), cwd=tmp_path, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)["data"]["summary"]
    assert "first 20,000 rows" in summary["note"]
