"""Runs of SFT and DPO: short settings, and files of examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# The sizes of trainer_runs.SHORT, for recipes of SFT and DPO. TRL tokenizes every example before the first step: some
# hundreds of three digits, 8,532 of four.
SHORT_EXAMPLES = {
    "digits": 3,
    "per_device_train_batch_size": 4,
    "hidden_size": 16,
    "intermediate_size": 16,
    "layers": 1,
    "heads": 2,
    "eval_steps": 2,
    "save_steps": 2,
}
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"]  # of TINY's tokenizer


def write_example_run(folder: Path, recipe: str, **settings: Any) -> Path:
    """Create a run directory with run.json: a recipe of SFT or DPO with short settings."""
    folder.mkdir(parents=True)
    values = SHORT_EXAMPLES | settings
    (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": recipe, "settings": values}))
    return folder


def write_examples(file: Path, trainer: str, count: int = 24) -> Path:
    """Write rows with a prompt, and a completion or a pair of them."""
    rows = []
    for number in range(count):
        first, second = WORDS[number % 10], WORDS[number // 10]
        ends = {"completion": f" {second} {first}"}
        if trainer == "dpo":
            ends = {"chosen": f" {second} {first}", "rejected": f" {first} {first} {second}"}
        rows.append({"prompt": f"sort these digits {first} {second}", **ends})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
