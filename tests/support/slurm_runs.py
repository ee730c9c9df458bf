"""Runs on the SLURM cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TINY_SETTINGS = {
    "device": "cpu", "prompts_per_step": 4, "num_generations": 4, "hidden_size": 16, "intermediate_size": 16,
    "layers": 1, "heads": 2, "warmup_steps": 3, "eval_every": 0, "eval_samples": 1, "save_every": 0,
}  # fmt: skip


def read_events(run: Path) -> list[dict[str, Any]]:
    file = run / "events.jsonl"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def last_step(run: Path) -> int:
    return max((event["step"] for event in read_events(run) if event["event"] == "step"), default=0)
