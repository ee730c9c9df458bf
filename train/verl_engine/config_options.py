"""Translate the settings into options of the installed verl. Pure functions of the settings, version and context.

A setting that a version does not support is refused, or replaced by an equivalent with a note; none is dropped. The
option names come from verl/trainer/config in the wheels of each version, and hard-coded behaviour from its trainers
and workers (0.4.1, 0.5.0, 0.6.0, 0.6.1, 0.7.0, 0.7.1, 0.8.0, 0.9.0 and 0.9.1, on 2026-11-21).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from packaging.version import Version
from settings import BadInput
from verl_engine.options import ENGINE_SFT, FILE_LOGGER, TRACKED_SFT, LaunchContext, Options
from verl_engine.rl_options import rl_options
from verl_engine.sft_options import engine_sft_options, fsdp_sft_options

OLDEST = Version("0.4.1")  # the first with verl/model_merger
REPORTERS = {"tensorboard": "0.4.1", "wandb": "0.4.1", "mlflow": "0.4.1", "swanlab": "0.4.1", "trackio": "0.6.0"}
# test_freq for an evaluation after the last step only. main_ppo skips that one as well at -1 (ray_trainer.py).
AFTER_LAST_STEP = 10**9


def trainer_module(task: str, version: Version) -> tuple[str, str]:
    """Return (module, name of its configuration) of a task's trainer."""
    if task != "sft":
        return "verl.trainer.main_ppo", "ppo_trainer"
    if version >= ENGINE_SFT:
        return "verl.trainer.sft_trainer", "sft_trainer_engine"
    return "verl.trainer.fsdp_sft_trainer", "sft_trainer"


def verl_options(settings: Mapping[str, Any], version: Version, context: LaunchContext) -> tuple[Options, list[str]]:
    """Return (options by verl's names, notes)."""
    if version < OLDEST:
        raise BadInput(
            f"verl {version} is installed", expected=f"verl {OLDEST} or newer, which has verl.model_merger",
            hint="envdoctor install verl-8gpu",
        )  # fmt: skip
    check_batches(settings, context.nodes * context.gpus)
    notes: list[str] = []
    options = _common_options(settings, version, context, notes)
    if settings["task"] != "sft":
        options |= rl_options(settings, version, context, notes)
    elif version >= ENGINE_SFT:
        options |= engine_sft_options(settings, version, context, notes)
    else:
        options |= fsdp_sft_options(settings, version, context, notes)
    return options, notes


def check_batches(settings: Mapping[str, Any], gpus: int) -> None:
    """Check divisibility: verl splits the completions of a step over the GPUs, and then into micro-batches."""
    micro = settings["per_device_train_batch_size"]
    if settings["task"] == "sft":
        completions, batches = 1, [("prompts_per_step", micro)]
    else:
        completions, batches = settings["num_generations"], [("prompts_per_step", 1), ("mini_batch", micro)]
    for name, size in batches:
        prompts = settings[name]
        unit = gpus * size // math.gcd(gpus * size, completions)
        if prompts % unit:
            per_prompt = f" prompts of {completions} completions" if completions > 1 else ""
            per_pass = f" with per_device_train_batch_size = {size}" if size > 1 else ""
            raise BadInput(
                f"{name} = {prompts}{per_prompt} on {gpus} GPUs{per_pass}",
                expected=f"a multiple of {unit}",
                hint=f"--set {name}={math.ceil(prompts / unit) * unit}",
            )


def _common_options(
    settings: Mapping[str, Any], version: Version, context: LaunchContext, notes: list[str]
) -> Options:
    """Options with the same names in all trainers."""
    return {
        "data.train_files": context.train_file,
        "data.val_files": context.held_out_file,
        "data.train_batch_size": settings["prompts_per_step"],
        "trainer.total_epochs": settings["num_train_epochs"],
        "trainer.total_training_steps": settings["max_steps"] if settings["max_steps"] > 0 else None,
        "trainer.save_freq": settings["save_steps"] or -1,
        "trainer.test_freq": settings["eval_steps"] or AFTER_LAST_STEP,
        "trainer.default_local_dir": context.checkpoints,
        "trainer.project_name": context.project,
        "trainer.experiment_name": context.experiment,
        "trainer.logger": loggers(settings["report_to"], version),
        "trainer.nnodes": context.nodes,
        "trainer.n_gpus_per_node": context.gpus,
        **_resume_options(settings["task"], version, context, notes),
    }


def loggers(report_to: list[str], version: Version) -> list[str]:
    """Return verl's loggers. The console is always among them: up to 0.5.0 it is the only source of metrics."""
    for name in report_to:
        if version < Version(REPORTERS.get(name, "0")):
            raise BadInput(
                f"report_to = {name} with verl {version}", expected=f"verl {REPORTERS[name]} or newer for {name}",
                hint="--set report_to=tensorboard",
            )  # fmt: skip
    return ["console", *(["file"] if version >= FILE_LOGGER else []), *report_to]


def _resume_options(task: str, version: Version, context: LaunchContext, notes: list[str]) -> Options:
    if task == "sft" and version < TRACKED_SFT:  # its trainer saves a Hugging Face model and loads nothing
        if context.resume:
            raise BadInput(
                f"--resume with verl {version}, whose SFT trainer saves only the weights",
                expected="verl 0.5.0 or newer",
                hint=f"start a new run from the weights: --set model={context.resume}",
            )
        notes.append(f"verl {version}'s SFT trainer saves no optimizer state: this run cannot be resumed")
        return {}
    # The default "auto" would resume from an existing checkpoint even for a new run.
    if not context.resume:
        return {"trainer.resume_mode": "disable"}
    return {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": context.resume}
