"""A model with several end tokens, as Gemma-it and Phi-3: evaluations end completions where the training does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version
from support.stacks import TINY, run_code
from support.trainer_runs import finish, start

pytestmark = pytest.mark.stack
# The tokenizer's own end token is 1. The others are half of the vocabulary: nearly every completion ends at one.
END_TOKENS = [1, *range(3, 11)]
SAVE = (
    TINY
    + """
save_qwen2(given[0])
file = Path(given[0]) / "generation_config.json"
file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": given[1]}))
report()
"""
)
REWARD = """
ENDS = set({ends})

def ended(completion_ids, **_):
    # the completion has one end token, its last one
    return [float([*map(ENDS.__contains__, ids)] == [False] * (len(ids) - 1) + [True]) for ids in completion_ids]
"""


def test_evaluation_stops_at_the_end_tokens_of_the_training(python: Path, tmp_path: Path) -> None:
    run_code(python, SAVE, tmp_path / "model", END_TOKENS)
    (tmp_path / "ends.py").write_text(REWARD.format(ends=END_TOKENS))
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"]
    rows = [{"prompt": f"sort these digits {one} {two}"} for one in words[:4] for two in words]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = tmp_path / "run"
    run.mkdir()
    settings = {
        "task": "dataset", "model": str(tmp_path / "model"), "data": str(tmp_path / "rows.jsonl"), "use_cpu": True,
        "rewards": ["ends.py:ended"], "max_completion_length": 24, "prompts_per_step": 8, "num_generations": 4,
        "eval_steps": 0, "num_generations_eval": 8, "save_steps": 0, "max_steps": 1,
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    status, output = finish(start(python, run, cwd=tmp_path))
    assert status == 0, output
    trained = [line for line in (run / "events.jsonl").read_text().splitlines() if '"event": "step"' in line]
    reward = json.loads(trained[0])["metrics"]["reward"]
    result = json.loads((run / "result.json").read_text())
    before = result["before"]
    # Up to 1.14 TRL's own sampling with transformers stops at the tokenizer's end token alone.
    assert (reward > 0.8) is (Version(result["versions"]["trl"]) >= Version("1.15"))
    assert before["sampled_reward_ended"] == pytest.approx(reward, abs=0.15)
