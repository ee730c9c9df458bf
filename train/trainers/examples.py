"""TRL's SFTTrainer and DPOTrainer on the task's examples."""

from __future__ import annotations

from typing import Any

import torch
import trl
from datasets import Dataset, disable_progress_bars
from modeling.revision import use_snapshot_path
from patches.table import construct_trainer
from run.example_recorder import ExampleRecorder
from trainers.parts import RunParts, Training

CLASSES = {"sft": trl.SFTTrainer, "dpo": trl.DPOTrainer}


def construct(parts: RunParts, config: Any) -> Training:
    """Construct the trainer, the recorder and the evaluation."""
    disable_progress_bars()  # of the tokenization
    task, settings = parts.task, parts.settings
    evaluator = ExampleEvaluator(parts)
    recorder = ExampleRecorder(
        parts.run, task, settings, ranks=parts.ranks, interrupt=parts.interrupt, evaluate=evaluator.evaluate,
        first_step=parts.first_step,
    )  # fmt: skip
    patches = parts.policy.patch_context(
        settings, device=parts.device, installed=parts.installed, ranks=parts.ranks, timer=recorder.timer
    )
    with use_snapshot_path(parts.policy.model, settings):
        trainer = construct_trainer(
            patches,
            CLASSES[settings["trainer"]],
            processing_class=parts.policy.tokenizer,
            args=config,
            train_dataset=Dataset.from_list([row["example"] for row in task.train]),
            eval_dataset=Dataset.from_list([row["example"] for row in task.held_out]),
            callbacks=[recorder],
        )
    recorder.trainer = evaluator.trainer = trainer
    return Training(trainer, recorder, evaluator.evaluate, patches)


class ExampleEvaluator:
    """Evaluates the loss and TRL's metrics on the held-out examples, and writes them to the run."""

    def __init__(self, parts: RunParts) -> None:
        self.parts = parts
        self.trainer: Any = None

    def evaluate(self, when: str, step: int) -> dict[str, float]:
        """The metrics. `when` is "before", "during" or "after". All ranks call it."""
        trainer, run, task = self.trainer, self.parts.run, self.parts.task
        was_training = trainer.model.training
        devices = [trainer.model.device] if trainer.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # the training draws what it would draw without
            found = trainer.evaluate()
        trainer.model.train(was_training)
        named = {column: found.get(f"eval_{name}") for column, name in task.metrics.items()}
        metrics = {column: float(value) for column, value in named.items() if value is not None}
        run.write_event("eval", when=when, step=step, metrics=metrics)
        shown = ", ".join(f"{name} {metrics[name]:.3f}" for name in task.headline if name in metrics)
        run.log(f"held out, {when}, step {step}: {shown}")
        return metrics
