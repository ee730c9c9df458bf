"""The settings as fields of the installed TRL's SFTConfig and DPOConfig. Pure: versions in, arguments out.

The fields of each version were read from its wheel (0.22.2 to 1.16.0, 2026-11-25).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from settings import BadInput
from trl_config.common import (
    add_passed_fields,
    check_device_map,
    check_fields,
    common_fields,
    describe_renamed,
    run_length,
)
from trl_config.versions import InstalledVersions, RunContext
from trl_fields import CONFIGS

LIGER = ("use_liger_kernel", "use_liger_loss")  # DPO's name of the second up to 0.27


def make_example_arguments(
    settings: Mapping[str, Any], installed: InstalledVersions, at: RunContext
) -> tuple[dict[str, Any], list[str]]:
    """Keyword arguments for SFTConfig or DPOConfig, and notes."""
    check_device_map(settings, at)
    trainer = settings["trainer"]
    arguments = {
        **common_fields(settings, installed, at),
        **run_length(settings),
        "per_device_train_batch_size": settings["per_device_train_batch_size"],
        "gradient_accumulation_steps": settings["gradient_accumulation_steps"],
        "per_device_eval_batch_size": settings["per_device_eval_batch_size"],
        **_loss(settings, installed),
    }
    if settings["use_liger_kernel"]:
        arguments[_liger_field(settings, installed)] = True
    if installed.has("max_prompt_length"):
        # Up to 0.28 DPO's default truncates prompts at 512 tokens, next to max_length.
        arguments["max_prompt_length"] = None
    add_passed_fields(arguments, settings, installed)
    check_fields(arguments, installed, CONFIGS[trainer])
    return arguments, describe_renamed(arguments)


def _loss(settings: Mapping[str, Any], installed: InstalledVersions) -> dict[str, Any]:
    """The loss, where the settings have one, and DPO's beta."""
    loss = settings["loss_type"]
    if loss and not installed.has("loss_type"):
        raise BadInput(
            f"loss_type = {loss} with TRL {installed.trl}, whose SFTConfig has no such field",
            expected="TRL 0.23 or newer",
            hint="leave loss_type out, or choose an environment: envdoctor profiles",
        )
    beta = {"beta": settings["beta"]} if settings["trainer"] == "dpo" else {}
    return {"loss_type": loss} | beta if loss else beta


def _liger_field(settings: Mapping[str, Any], installed: InstalledVersions) -> str:
    older = settings["trainer"] == "dpo" and installed.has(LIGER[1])
    return LIGER[1] if older else LIGER[0]
