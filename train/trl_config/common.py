"""The fields of the configurations of all of TRL's trainers. Pure: versions and field names in, arguments out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version
from settings import BadInput, passed_fields, trainer_of
from trl_config.optimizers import check_optimizer
from trl_config.versions import InstalledVersions, RunContext
from trl_fields import fields, missing_field, rules


def check_device_map(settings: Mapping[str, Any], at: RunContext) -> None:
    """Refuse one model over several GPUs in each of several processes."""
    if settings["device_map"] and at.ranks > 1:
        raise BadInput(
            f"device_map = {settings['device_map']} in {at.ranks} processes",
            expected="one process with several GPUs, or one process per GPU with a full copy of the model",
            hint="--set device_map=",
        )


def common_fields(settings: Mapping[str, Any], installed: InstalledVersions, at: RunContext) -> dict[str, Any]:
    """The fields of every configuration."""
    arguments = {
        **_optimisation(settings, installed),
        "output_dir": at.output,
        "seed": settings["seed"],
        "bf16": at.autocast == "bfloat16",
        "fp16": at.autocast == "float16",
        "use_cpu": at.device == "cpu",
        "gradient_checkpointing": settings["gradient_checkpointing"],
        "torch_compile": settings["torch_compile"],
        # run.recorder deletes old checkpoints after the new one is marked complete; transformers would do it before.
        "save_strategy": "steps" if settings["save_steps"] else "no",
        "save_steps": settings["save_steps"] or 1,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # the alarms need a NaN loss
        "report_to": settings["report_to"] or "none",
        "run_name": Path(at.output).parent.name,
        **({"logging_dir": str(Path(at.output).parent / "tensorboard")} if installed.has("logging_dir") else {}),
        "disable_tqdm": True,
        "ddp_find_unused_parameters": False,  # every trained weight is used
    }
    if settings["gradient_checkpointing"]:
        # The re-entrant kind computes no gradient through frozen weights (LoRA).
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    return arguments


def run_length(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The length of the run, by steps or by epochs."""
    name = "max_steps" if settings["max_steps"] > 0 else "num_train_epochs"
    return {name: settings[name]}


def add_passed_fields(arguments: dict[str, Any], settings: Mapping[str, Any], installed: InstalledVersions) -> None:
    """Add the user's fields that have no setting of their own. Objects complete those of the trainer."""
    trainer = trainer_of(settings)
    for name in passed_fields(settings):
        older = rules()["older_names"].get(name, "")
        field = older if older and not installed.has(name) else name
        if not installed.has(field):
            package = fields(trainer)[name].package
            version = str(installed.versions.get(package) or installed.trl)
            raise missing_field(name, version, trainer=trainer)
        value, own = settings[name], arguments.get(field)
        arguments[field] = own | value if isinstance(own, dict) and isinstance(value, dict) else value


def describe_renamed(arguments: Mapping[str, Any]) -> list[str]:
    """A note for each field that the installed release has by an older name."""
    return [
        f"{name}: {'transformers' if name == 'warmup_steps' else 'TRL'} of this environment names it {older}"
        for name, older in rules()["older_names"].items()
        if older in arguments
    ]


def check_fields(arguments: Mapping[str, Any], installed: InstalledVersions, config: str) -> None:
    """Refuse a release without one of the fields."""
    missing = sorted(name for name in arguments if not installed.has(name))
    if missing:
        raise BadInput(
            f"TRL {installed.trl} has no {config} field {missing[0]}",
            expected="TRL 0.22.2 to 1.16",
            hint="envdoctor profiles",
        )


def _optimisation(settings: Mapping[str, Any], installed: InstalledVersions) -> dict[str, Any]:
    if installed.optimizers:
        check_optimizer(settings["optim"], installed.optimizers, installed.packages)
    return {
        "learning_rate": settings["learning_rate"],
        "lr_scheduler_type": settings["lr_scheduler_type"],
        **_warm_up(settings["warmup_steps"], installed),
        "optim": settings["optim"],
        "weight_decay": settings["weight_decay"],
        "max_grad_norm": settings["max_grad_norm"],
    }


def _warm_up(steps: float, installed: InstalledVersions) -> dict[str, Any]:
    """Below 1 a share of all steps: in transformers 5 by the same field, in 4 by another one."""
    if steps >= 1 or not steps:
        return {"warmup_steps": int(steps)}
    version = installed.versions.get("transformers")
    by_ratio = version is not None and version < Version("5") and installed.has("warmup_ratio")
    return {"warmup_ratio" if by_ratio else "warmup_steps": steps}


def make_config(kind: Any, arguments: dict[str, Any]) -> Any:
    """Construct GRPOConfig; its ValueError is reported as bad input."""
    try:
        return kind(**arguments)
    except ValueError as error:
        raise BadInput(
            f"{kind.__name__} refuses the settings: {error}",
            expected="settings that TRL and transformers accept",
            hint="envdoctor train --settings",
        ) from error
