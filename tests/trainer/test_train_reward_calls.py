"""What a run passes to a reward function, in a step and in an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks import TINY, run_code
from support.trainer_runs import finish, read_events, read_rows, start

pytestmark = pytest.mark.stack
# Writes its calls. It may be called with every completion of a batch, so a call has the progress alone.
REWARD = """
import json

def progress(completions, prompts, trainer_state, log_metric, **_):
    with open("calls.jsonl", "a") as file:
        print(json.dumps([len(completions), trainer_state.global_step, trainer_state.max_steps]), file=file)
    log_metric("length", 1.0)
    return [None if "one" in prompt else len(text) for prompt, text in zip(prompts, completions)]
"""
DIGITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"]


@pytest.mark.parametrize("length", [{"max_steps": 3}, {"max_steps": -1, "num_train_epochs": 0.5}])
def test_a_reward_gets_the_trainer_state_in_an_evaluation(
    stack_python: Path, tmp_path: Path, length: dict[str, Any]
) -> None:
    run_code(stack_python, TINY + "save_qwen2(given[0])\nreport(ok=True)", tmp_path / "model")
    (tmp_path / "progress.py").write_text(REWARD)
    rows = [{"prompt": f"sort these {one} {two}"} for one in DIGITS[:3] for two in DIGITS if one != two]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    run.mkdir()
    settings = {
        "task": "dataset", "model": str(tmp_path / "model"), "data": str(tmp_path / "rows.jsonl"), "use_cpu": True,
        "rewards": ["progress.py:progress"], "max_completion_length": 4, "prompts_per_step": 4, "num_generations": 2,
        "eval_steps": 2, "num_generations_eval": 3, "save_steps": 0, "held_out": "share=0.2",
    } | length  # fmt: skip
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    status, output = finish(start(stack_python, run, cwd=tmp_path))
    assert status == 0, output
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    held_out = next(event["held_out"] for event in read_events(run) if event["event"] == "rows")
    evaluation = [held_out, 3 * held_out]
    # before the training, in the middle, and after it; between them each step with 8 completions
    assert calls == [
        *([count, 0, 3] for count in evaluation),
        [8, 0, 3], [8, 1, 3], *([count, 2, 3] for count in evaluation),
        [8, 2, 3], *([count, 3, 3] for count in evaluation),
    ]  # fmt: skip
    completions = read_rows(run / "generations.csv")
    none = [row["reward"] == "" for row in completions]
    assert none == ["one" in row["prompt"] for row in completions]
    assert any(none)
    assert output.count("reward progress.py:progress returned None") == 0
    notes = [event["message"] for event in read_events(run) if event["event"] == "note"]
    assert sum("no reward applies" in note for note in notes) == 1
