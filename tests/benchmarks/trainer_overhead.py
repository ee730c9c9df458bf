"""Overhead of the bundled trainer over a plain TRL script with the same settings, in seconds per step.

    python tests/benchmarks/trainer_overhead.py PYTHON_OF_THE_STACK [ROUNDS] [KEY=VALUE ...]

Both train the recipe `sort` from the same random weights, in alternating runs. The time of a step is measured between
two log calls, in which the bundled trainer writes its files. The first three steps of each run do not count.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[2] / "train"
SETTINGS = {
    "max_steps": 23, "sft_steps": 0, "hidden_size": 256, "intermediate_size": 1024, "layers": 4, "heads": 8,
    "eval_steps": 0, "num_generations_eval": 1, "save_steps": 0,
}  # fmt: skip
SKIPPED_STEPS = 3
TRL_SCRIPT = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(int(sys.argv[4]))
from modeling import tiny_model
from datasets import Dataset
from settings import read_recipe, resolve_settings
from tasks.sort import SortTask
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

settings = resolve_settings(read_recipe("sort"), json.loads(sys.argv[2]))
torch.manual_seed(settings["seed"])
task = SortTask(settings)
tokenizer = tiny_model.make_tokenizer(task.symbols)
longest = max(len(row["prompt"].split()) for row in task.train)
model = tiny_model.make_model(settings, tokenizer, longest + settings["max_completion_length"], "sdpa")
times = []

class Clock(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            times.append(time.monotonic())

def reward(completions, answer, **_):
    return [float(completion == expected) for completion, expected in zip(completions, answer)]

arguments = GRPOConfig(
    output_dir=sys.argv[3], max_steps=settings["max_steps"], num_generations=settings["num_generations"],
    per_device_train_batch_size=settings["prompts_per_step"] * settings["num_generations"],
    max_completion_length=settings["max_completion_length"], learning_rate=settings["learning_rate"],
    lr_scheduler_type="constant", bf16=False, gradient_checkpointing=False, use_cpu=not torch.cuda.is_available(),
    save_strategy="no", logging_steps=1, report_to="none", disable_tqdm=True, beta=0.0, seed=settings["seed"],
)
trainer = GRPOTrainer(
    model=model, processing_class=tokenizer, reward_funcs=reward, args=arguments, callbacks=[Clock()],
    train_dataset=Dataset.from_list([{"prompt": row["prompt"], "answer": row["answer"]} for row in task.train]),
)
trainer.train()
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""


def run_trl(python: str, settings: dict[str, object], folder: Path) -> list[float]:
    """Seconds of each step of the TRL script."""
    arguments = [str(TRAIN), json.dumps(settings), str(folder), os.environ["OMP_NUM_THREADS"]]
    done = subprocess.run([python, "-B", "-c", TRL_SCRIPT, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return list(json.loads(done.stdout.strip().splitlines()[-1]))


def run_envdoctor(python: str, settings: dict[str, object], folder: Path) -> list[float]:
    """Seconds of each step of the bundled trainer."""
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "sort", "settings": settings}))
    done = subprocess.run([python, "-B", TRAIN / "grpo.py", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    times = [event["t"] for event in events if event["event"] == "step"]
    return [after - before for before, after in itertools.pairwise(times)]


def main() -> None:
    """Run both alternately; print the medians and their ratio."""
    python, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    settings = SETTINGS | {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in sys.argv[3:])}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    trl_times: list[float] = []
    envdoctor_times: list[float] = []
    ratios = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            trl = run_trl(python, settings, Path(folder, "trl"))[SKIPPED_STEPS:]
            envdoctor = run_envdoctor(python, settings, Path(folder, "envdoctor"))[SKIPPED_STEPS:]
        trl_times += trl
        envdoctor_times += envdoctor
        ratios.append(statistics.median(envdoctor) / statistics.median(trl))
        print(f"round {number + 1}: {ratios[-1]:.3f}", flush=True)
    for name, times in (("TRL", trl_times), ("envdoctor", envdoctor_times)):
        print(f"{name:10} {1000 * statistics.median(times):8.1f} ms per step (minimum {1000 * min(times):.1f})")
    medians = statistics.median(envdoctor_times) / statistics.median(trl_times)
    print(f"ratio      {medians:8.3f} (of the minima {min(envdoctor_times) / min(trl_times):.3f})")


if __name__ == "__main__":
    main()
