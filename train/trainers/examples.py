"""TRL's SFTTrainer and DPOTrainer on the task's examples."""

from __future__ import annotations

from typing import Any

import torch
import trl
from datasets import Dataset, disable_progress_bars
from modeling.policy import reference_folder
from modeling.revision import use_snapshot_path
from patches.table import construct_trainer
from run.example_recorder import ExampleRecorder
from trainers.parts import RunParts, Training
from transformers import AutoModelForCausalLM

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
            **_reference(parts),
        )
    recorder.trainer = evaluator.trainer = trainer
    return Training(trainer, recorder, evaluator.evaluate, patches)


def _reference(parts: RunParts) -> dict[str, Any]:
    """DPO's reference of the tiny model, which was saved before the training; TRL makes that of another model.

    Up to 0.28 TRL copies the policy, which is not yet warmed up where a run is resumed.
    """
    folder = reference_folder(parts.run)
    if parts.settings["trainer"] != "dpo" or parts.settings["model"] or not folder.is_dir():
        return {}
    attention = parts.policy.model.config._attn_implementation  # noqa: SLF001  it has no public name
    return {"ref_model": AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).to(parts.device)}


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
        # Some releases, such as 0.27, add their metrics to the log alone.
        logs = trainer.state.log_history
        found |= logs[-1] if logs and "eval_loss" in logs[-1] else {}
        named = {column: found.get(f"eval_{name}") for column, name in task.metrics.items()}
        metrics = {column: float(value) for column, value in named.items() if value is not None}
        run.write_event("eval", when=when, step=step, metrics=metrics)
        shown = ", ".join(f"{name} {metrics[name]:.3f}" for name in task.headline if name in metrics)
        run.log(f"held out, {when}, step {step}: {shown}")
        return metrics
