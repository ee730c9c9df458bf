"""Runs on the SLURM cluster."""

from __future__ import annotations

from pathlib import Path

from support.trainer_runs import read_events

TINY_SETTINGS = {
    "use_cpu": True, "prompts_per_step": 4, "num_generations": 4, "hidden_size": 16, "intermediate_size": 16,
    "layers": 1, "heads": 2, "sft_steps": 3, "eval_steps": 0, "num_generations_eval": 1, "save_steps": 0,
}  # fmt: skip


def last_step(run: Path) -> int:
    """The last recorded step of a run; 0 without one."""
    return max((event["step"] for event in read_events(run) if event["event"] == "step"), default=0)
