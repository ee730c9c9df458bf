"""No secret of the environment or of a message is printed or recorded by the trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stacks import TINY, run_code
from support.trainer_runs import finish, start

pytestmark = pytest.mark.stack
TOKEN, OTHER, PASSWORD = "hf_" + "a1B2" * 8, "0123456789abcdef0123", "pa55word"
REWARD = """
import os

def fails(completions, **_):
    raise RuntimeError(f"401 for {os.environ['HF_TOKEN']} and %s at https://me:%s@hub.example/api")
"""


def test_the_exception_of_a_reward_is_recorded_without_its_secrets(stack_python: Path, tmp_path: Path) -> None:
    run_code(stack_python, TINY + "save_qwen2(given[0])\nreport(ok=True)", tmp_path / "model")
    (tmp_path / "fails.py").write_text(REWARD % (TOKEN, PASSWORD))
    rows = [{"prompt": f"sort {number} words"} for number in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    run.mkdir()
    settings = {
        "task": "dataset", "model": str(tmp_path / "model"), "data": str(tmp_path / "rows.jsonl"), "use_cpu": True,
        "rewards": ["fails.py:fails"], "max_completion_length": 4, "prompts_per_step": 2, "num_generations": 2,
        "max_steps": 1, "save_steps": 0, "held_out": "share=0.2",
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    status, output = finish(start(stack_python, run, cwd=tmp_path, HF_TOKEN=OTHER))
    assert status != 0
    assert "401 for ***" in output
    for text in (output, (run / "events.jsonl").read_text()):
        assert not [secret for secret in (TOKEN, OTHER, PASSWORD) if secret in text]
