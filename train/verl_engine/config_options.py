"""Our settings as options of the installed verl. Pure: a version and what the machine has in, options out.

What a version cannot do is refused, or replaced by what does the same and said in a note; nothing is dropped.
What each version has was read in its wheel (0.4.1, 0.5.0, 0.6.0, 0.6.1, 0.7.0, 0.7.1, 0.8.0, 0.9.0, 0.9.1;
2026-11-21): verl/trainer/config for the names, the trainers and workers for what is hard-wired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from packaging.version import Version
from settings import BadInput
from verl_engine.options import ENGINE_SFT, FILE_LOGGER, TRACKED_SFT, At, Options
from verl_engine.rl_options import rl_options
from verl_engine.sft_options import sft_engine, sft_old

OLDEST = Version("0.4.1")  # the first with verl/model_merger
REPORTERS = {"tensorboard": "0.4.1", "wandb": "0.4.1", "mlflow": "0.4.1", "swanlab": "0.4.1", "trackio": "0.6.0"}
# Steps between looks where the last step's alone is wanted: at -1 main_ppo leaves that out as well (ray_trainer.py).
BEYOND_THE_LAST = 10**9


def sft_module(version: Version) -> tuple[str, str]:
    """(module, name of its configuration) of the SFT trainer."""
    if version >= ENGINE_SFT:
        return "verl.trainer.sft_trainer", "sft_trainer_engine"
    return "verl.trainer.fsdp_sft_trainer", "sft_trainer"


def trainer_module(task: str, version: Version) -> tuple[str, str]:
    """(module, name of its configuration) of a task's trainer."""
    return sft_module(version) if task == "sft" else ("verl.trainer.main_ppo", "ppo_trainer")


def verl_options(settings: Mapping[str, Any], version: Version, at: At) -> tuple[Options, list[str]]:
    """Options by verl's names, and what to tell about them."""
    if version < OLDEST:
        raise BadInput(
            f"verl {version} is installed", expected=f"verl {OLDEST} or newer, which has verl.model_merger",
            hint="envdoctor install --profile verl-8gpu",
        )  # fmt: skip
    check_batches(settings, at.nodes * at.gpus)
    notes: list[str] = []
    options = _run(settings, version, at, notes)
    if settings["task"] != "sft":
        options |= rl_options(settings, version, at, notes)
    elif version >= ENGINE_SFT:
        options |= sft_engine(settings, version, at, notes)
    else:
        options |= sft_old(settings, version, at, notes)
    return options, notes


def check_batches(settings: Mapping[str, Any], gpus: int) -> None:
    """verl splits a step's answers over the GPUs, and each GPU's into passes, both without a rest."""
    answers = settings["num_generations"] if settings["task"] != "sft" else 1
    named = [("prompts_per_step", settings["prompts_per_step"], 1)]
    if settings["task"] != "sft":
        named.append(("mini_batch", settings["mini_batch"], settings["micro_batch"]))
    else:
        named = [("prompts_per_step", settings["prompts_per_step"], settings["micro_batch"])]
    for name, prompts, micro in named:
        unit = gpus * micro // math.gcd(gpus * micro, answers)
        if prompts % unit:
            of = f" in passes of micro_batch = {micro}" if micro > 1 else ""
            raise BadInput(
                f"{name} = {prompts}{f' prompts of {answers} answers' if answers > 1 else ''} on {gpus} GPUs{of}",
                expected=f"a multiple of {unit}",
                hint=f"--set {name}={math.ceil(prompts / unit) * unit}",
            )


def _run(settings: Mapping[str, Any], version: Version, at: At, notes: list[str]) -> Options:
    """What both kinds of trainers name alike."""
    return {
        "data.train_files": at.train_file,
        "data.val_files": at.held_out_file,
        "data.train_batch_size": settings["prompts_per_step"],
        "trainer.total_epochs": settings["epochs"],
        "trainer.total_training_steps": settings["steps"] or None,
        "trainer.save_freq": settings["save_every"] or -1,
        "trainer.test_freq": settings["eval_every"] or BEYOND_THE_LAST,
        "trainer.default_local_dir": at.checkpoints,
        "trainer.project_name": at.project,
        "trainer.experiment_name": at.experiment,
        "trainer.logger": loggers(settings["report_to"], version),
        "trainer.nnodes": at.nodes,
        "trainer.n_gpus_per_node": at.gpus,
        **_resume(settings["task"], version, at, notes),
    }


def loggers(report_to: list[str], version: Version) -> list[str]:
    """Who is told the numbers. The console always: up to 0.5.0 nothing else can be read back."""
    for name in report_to:
        if version < Version(REPORTERS.get(name, "0")):
            raise BadInput(
                f"report_to = {name} with verl {version}", expected=f"verl {REPORTERS[name]} or newer for {name}",
                hint="--set report_to=tensorboard",
            )  # fmt: skip
    return ["console", *(["file"] if version >= FILE_LOGGER else []), *report_to]


def _resume(task: str, version: Version, at: At, notes: list[str]) -> Options:
    if task == "sft" and version < TRACKED_SFT:  # its trainer saves a Hugging Face model and loads nothing
        if at.resume:
            raise BadInput(
                f"--resume with verl {version}, whose SFT trainer saves weights alone",
                expected="verl 0.5.0 or newer",
                hint=f"train on from the weights: --set model={at.resume}",
            )
        notes.append(f"verl {version}'s SFT trainer keeps no optimizer state: this run cannot be resumed")
        return {}
    # "auto" would take what lies there even for a fresh start.
    if not at.resume:
        return {"trainer.resume_mode": "disable"}
    return {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": at.resume}
