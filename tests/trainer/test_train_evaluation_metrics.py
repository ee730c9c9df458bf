"""Metrics over several completions of one prompt, and the trackers' metrics of each reward."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from generation.best_of import best_of_metrics
from support.paths import TRAIN
from support.stacks import TINY, run_code
from support.trainer_runs import finish, read_events, read_rows, start, write_run


def scores(*rewards: float | None) -> list[dict[str, float | None]]:
    return [{"reward": reward, "exact_match": float((reward or 0) > 1)} for reward in rewards]


def test_a_prompt_passes_with_one_correct_completion() -> None:
    # Two prompts, three completions each, in the order of the evaluation: prompts, prompts, prompts.
    found = best_of_metrics(scores(1, 0, 2, 0.5, 1, None), prompts=2, correct="exact_match")
    assert found == {"pass@3": 0.5, "best_reward@3": (2 + 0.5) / 2}


@pytest.mark.parametrize("samples", [1, 0])
def test_one_completion_has_no_best(samples: int) -> None:
    assert best_of_metrics(scores(*[1] * 2 * samples), prompts=2, correct="exact_match") == {}


def test_without_a_criterion_only_the_best_reward_is_known() -> None:
    assert best_of_metrics(scores(1, 3, 2, 5), prompts=2, correct="") == {"best_reward@2": 3.5}
    assert best_of_metrics(scores(None, 3, None, 5), prompts=2, correct="") == {"best_reward@2": 5}
    assert best_of_metrics(scores(None, None), prompts=1, correct="") == {}


@pytest.mark.stack
def test_an_evaluation_reports_pass_at_k(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=1, save_steps=0, sft_steps=60, num_generations_eval=4)
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    before = json.loads((run / "result.json").read_text())["before"]
    assert before["sampled_exact_match"] <= before["sampled_pass@4"] <= 1
    assert before["sampled_best_reward@4"] == before["sampled_pass@4"]  # the reward of sort is the exact match
    assert "greedy_pass@4" not in before


# A tracker: a callback of transformers that writes what it is given.
TRACKER = """
import json, sys
sys.path.insert(0, TRAIN)
import grpo
prepared = grpo.prepare_process
def prepare(*arguments):
    prepared(*arguments)
    from transformers import TrainerCallback
    from transformers.trainer import DEFAULT_CALLBACKS
    class Tracker(TrainerCallback):
        def on_log(self, args, state, control, logs, **_):
            with open("tracked.jsonl", "a") as file:
                print(json.dumps(logs), file=file)
    DEFAULT_CALLBACKS.append(Tracker)
grpo.prepare_process = prepare
sys.exit(grpo.main())
"""
REWARDS = """
def long(completions, **_):
    return [float(len(text)) for text in completions]

def even(completions, **_):
    return [None if len(text) % 2 else 1.0 for text in completions]
"""


@pytest.mark.stack
def test_trackers_get_each_reward(stack_python: Path, tmp_path: Path) -> None:
    run_code(stack_python, TINY + "save_qwen2(given[0])\nreport(ok=True)", tmp_path / "model")
    (tmp_path / "mine.py").write_text(REWARDS)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"]
    rows = [{"prompt": f"sort {one} {two}"} for one in words for two in words]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "track.py").write_text(f"TRAIN = {str(TRAIN)!r}\n{TRACKER}")
    run = tmp_path / "run"
    run.mkdir()
    settings = {
        "task": "dataset", "model": str(tmp_path / "model"), "data": str(tmp_path / "rows.jsonl"), "use_cpu": True,
        "rewards": ["mine.py:long", "mine.py:even"], "max_completion_length": 6, "prompts_per_step": 4,
        "num_generations": 4, "eval_steps": 0, "save_steps": 0, "max_steps": 2,
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    status, output = finish(start(stack_python, run, cwd=tmp_path, program=tmp_path / "track.py"))
    assert status == 0, output
    tracked = [json.loads(line) for line in (tmp_path / "tracked.jsonl").read_text().splitlines()]
    steps = [logs for logs in tracked if "loss" in logs]
    completions = read_rows(run / "generations.csv")
    assert len(steps) == len([event for event in read_events(run) if event["event"] == "step"]) == 2
    for step, logs in enumerate(steps, 1):
        for name in ("long", "even"):
            cells = [row[f"reward_{name}"] for row in completions if row["step"] == str(step)]
            values = [float(cell) for cell in cells if cell]
            mean = sum(values) / len(values)
            assert logs[f"rewards/{name}/mean"] == pytest.approx(mean, rel=1e-4)
            std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
            assert logs[f"rewards/{name}/std"] == pytest.approx(std, rel=1e-3, abs=1e-6)
