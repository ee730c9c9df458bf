"""Metrics, console lines and rollout dumps, written by verl's own code in its environment."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from verl_engine.reward_wrapper import wrapper_source

needs_verl = pytest.mark.skipif(
    not os.environ.get("ENVDOCTOR_VERL_PYTHON"), reason="ENVDOCTOR_VERL_PYTHON is not set"
)

# Two runs of twelve steps with four prompts and four completions each. verl's code computes, logs and dumps: data
# metrics, GRPO's advantages, console, JSON file, rollout dump, and the loading of a reward function.
STEPS = """
import concurrent.futures, json, os, sys, types
import numpy as np, torch
import verl
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
from verl.trainer.ppo.metric_utils import compute_data_metrics, compute_throughout_metrics, compute_timing_metrics
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.tracking import Tracking

SCORES = {"same": [[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]],
          "mixed": [[0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]}

class SynchronousExecutor:
    # Replaces the thread that writes dumps from 0.8.0 on.
    def submit(self, function, *arguments):
        done = concurrent.futures.Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

def with_dumps(trainer):
    if write := RayPPOTrainer.__dict__.get("_write_generations"):
        trainer._dump_executor, trainer._dump_futures = SynchronousExecutor(), []
        trainer._write_generations = write.__get__(trainer)
    return trainer

class FakeTokenizer:
    def batch_decode(self, rows, skip_special_tokens):
        return [" ".join(f"w{number}" for number in row.tolist() if number) for row in rows]

def make_run(folder, scores, last_loss):
    os.environ["VERL_FILE_LOGGER_PATH"] = folder + "/verl/metrics-0.jsonl"
    trainer = with_dumps(types.SimpleNamespace(tokenizer=FakeTokenizer()))
    trainer._dump_generations = types.MethodType(RayPPOTrainer._dump_generations, trainer)
    tracking = Tracking("envdoctor", "run", ["console", "file"], config={})
    for step in range(1, 13):
        trainer.global_steps = step
        prompts = torch.arange(1, 5).repeat_interleave(4)[:, None].repeat(1, 2)
        rewards = torch.zeros(16, 3)
        rewards[:, -1] = torch.tensor(scores).flatten().float()
        index = np.array([f"uid{n // 4}" for n in range(16)], dtype=object)
        advantages, returns = compute_grpo_outcome_advantage(rewards, torch.ones(16, 3), index)
        batch = DataProto.from_dict(
            tensors={"prompts": prompts, "responses": torch.full((16, 3), 9),
                     "response_mask": torch.ones(16, 3).long(), "attention_mask": torch.ones(16, 5).long(),
                     "token_level_scores": rewards, "token_level_rewards": rewards,
                     "advantages": advantages, "returns": returns},
            non_tensors={"reward_model": np.array([{"ground_truth": f"g{n // 4}"} for n in range(16)], dtype=object)},
            meta_info={"global_token_num": [5] * 16})
        timing = {"step": 2.0, "gen": 1.0, "update_actor": 0.5}
        metrics = {"actor/entropy": 1.5, "actor/pg_loss": last_loss if step == 12 else 0.01, "actor/grad_norm": 0.5,
                   "actor/lr": 1e-6}
        extra = {"acc": rewards.sum(-1).double().numpy()}
        RayPPOTrainer._log_rollout_data(trainer, batch, extra, timing, folder + "/verl/answers")
        metrics |= compute_data_metrics(batch, use_critic=False)
        metrics |= compute_timing_metrics(batch, timing) | compute_throughout_metrics(batch, timing, 2)
        tracking.log(data=metrics, step=step)

def dump_with(file, folder):
    options = {"path": file, "name": "score", "reward_kwargs": {}}
    score = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": options}}))
    results = [score("s", text, "4", extra_info=None) for text in ("4", "5")]
    trainer = with_dumps(types.SimpleNamespace(global_steps=1))
    extra = {key: np.array([result[key] for result in results]) for key in results[0]}  # as in agent_loop.py
    try:
        RayPPOTrainer._dump_generations(trainer, ["p", "p"], ["4", "5"], ["4", "4"], [1.0, 0.0], extra, folder)
    except TypeError as error:
        return str(error)
    return open(folder + "/1.jsonl").read()

top = sys.argv[1]
for kind, scores in SCORES.items():
    os.makedirs(f"{top}/{kind}/verl")
    make_run(f"{top}/{kind}", scores, float("nan") if kind == "mixed" else 0.01)
dumped = {name: dump_with(f"{top}/{name}.py", f"{top}/{name}") for name in ("direct", "wrapped")}
dumped["version"] = verl.__version__
print("DUMPED " + json.dumps(dumped))
"""


def run_verl(code: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in verl's environment."""
    return subprocess.run(
        [os.environ["ENVDOCTOR_VERL_PYTHON"], "-B", "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=240, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **variables},
    )  # fmt: skip


REWARD = """
def score(data_source, solution_str, ground_truth, extra_info=None):
    right = solution_str == ground_truth
    return {"score": int(right), "acc": right, "kind": "exact"}
"""


@dataclass(frozen=True)
class Formats:
    """The runs `same` and `mixed`, their console lines, and the dumps of a reward function's numbers."""

    folder: Path
    console: list[str]
    dumped: dict[str, str]


def make_formats(folder: Path) -> Formats:
    """Let verl write its files; most of the time is its import."""
    (folder / "direct.py").write_text(REWARD)
    (folder / "wrapped.py").write_text(wrapper_source(f"{folder}/direct.py:score"))
    done = run_verl(STEPS, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    lines, _, dumped = done.stdout.rpartition("DUMPED ")
    return Formats(folder, lines.splitlines(keepends=True), json.loads(dumped))
