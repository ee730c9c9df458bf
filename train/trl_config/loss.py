"""The loss as fields of the installed TRL's GRPOConfig: type, limits, KL penalty, Liger. Pure.

The fields of each version were read from its wheel (0.22.2 to 1.16.0, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version
from settings import BadInput, format_value
from trl_config.versions import InstalledVersions

# Loss types by the first TRL that has them (grpo_trainer.py of each wheel).
LOSSES = {"cispo": "0.26", "sapo": "0.26", "luspo": "0.28", "vespo": "1.0"}
# Loss types by the first liger-kernel that has them (chunked_loss/grpo_loss.py of 0.5.10 to 0.8.0).
LIGERS = {"dapo": "0.6.4", "cispo": "0.7", "sapo": "0.7", "luspo": "0.8", "vespo": "0.8"}
WITHOUT = "--set use_liger_kernel=false"


def loss_fields(settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]) -> dict[str, Any]:
    """GRPOConfig's fields for the loss."""
    kind, since = settings["loss_type"], LOSSES.get(settings["loss_type"], "0")
    if installed.trl < Version(since):
        raise BadInput(
            f"loss_type = {kind} with TRL {installed.trl}",
            expected=f"TRL {since} or newer for {kind}",
            hint="--set loss_type=dapo",
        )
    if "lm_head" in settings["target_modules"] and (settings["use_liger_kernel"] or installed.trl >= Version("1.15")):
        # The head's weights are used without an adapter: a ValueError from 1.9 on, no gradient before.
        head = "use_liger_kernel" if installed.trl < Version("1.15") else f"TRL {installed.trl}"
        raise BadInput(
            f"target_modules contains lm_head, whose adapter {head} would not train",
            expected="targets in the layers",
            hint="--set target_modules=" + ",".join(name for name in settings["target_modules"] if name != "lm_head"),
        )
    return {
        "loss_type": kind,
        "scale_rewards": settings["scale_rewards"],
        "epsilon": settings["epsilon"],
        "epsilon_high": settings["epsilon_high"] or None,
        "beta": settings["beta"],
        "mask_truncated_completions": settings["mask_truncated_completions"],
        **(
            {"importance_sampling_level": "sequence"} if kind == "luspo" else {}
        ),  # per token it would be another loss
        **_kl(settings, installed, notes),
        **(_liger(settings, installed, notes) if settings["use_liger_kernel"] else {}),
    }


def _kl(settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]) -> dict[str, Any]:
    """The gradient of the KL penalty; TRL 1.10 changed the default."""
    field = "use_bias_correction_kl"
    requested = settings[field]
    if not settings["beta"]:
        return {}
    if requested is None:
        default = format_value(installed.trl >= Version("1.10"))
        notes.append(f"{field}: {default}, the default of TRL {installed.trl} (true from 1.10 on)")
        return {}
    by_liger = settings["use_liger_kernel"] and installed.trl < Version("1.5")  # passed to it in 1.5.1, not in 1.0.0
    if requested and (by_liger or not installed.has(field)):
        raise BadInput(
            f"{field} = true with {'use_liger_kernel and ' if by_liger else ''}TRL {installed.trl}",
            expected=f"TRL {'1.5' if by_liger else '0.26'} or newer for it",
            hint=WITHOUT if by_liger else f"--set {field}=false",
        )
    return {field: requested} if installed.has(field) else {}


def _liger(settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]) -> dict[str, Any]:
    """A loss without the logits of a batch: Liger's up to 1.13, TRL's own in 1.14 on request, from 1.15 on always."""
    if installed.trl >= Version("1.15"):
        notes.append(
            f"use_liger_kernel: TRL {installed.trl} computes log-probabilities in chunks, which saves the same "
            "memory; it no longer has Liger's loss"
        )
        return {}
    minimum = installed.liger_minimum or Version("0")
    if installed.liger is None or installed.liger < minimum:  # TRL checks it after the model is loaded
        here = f"{installed.liger} is" if installed.liger else "is not"
        raise BadInput(
            f"use_liger_kernel = true, but liger-kernel {here} installed",
            expected=f"liger-kernel {minimum} or newer, by TRL {installed.trl}",
            hint=WITHOUT,
        )
    arguments = {"use_liger_loss" if installed.trl < Version("0.27") else "use_liger_kernel": True}
    if installed.trl >= Version("1.14"):
        notes.append(
            f"use_liger_kernel: TRL {installed.trl} computes log-probabilities in chunks, which saves the same "
            "memory; it no longer has Liger's loss, and applies Liger's kernels in the layers"
        )
        return arguments
    kind, since = settings["loss_type"], LIGERS.get(settings["loss_type"], "0")
    if installed.liger < Version(since):
        other = (
            "--set loss_type=bnpo, the same mean over tokens but within a micro-batch, or " if kind == "dapo" else ""
        )
        raise BadInput(
            f"use_liger_kernel with loss_type = {kind} and liger-kernel {installed.liger}",
            expected=f"liger-kernel {since} or newer for {kind}",
            hint=f"{other}{WITHOUT}",
        )
    if kind == "luspo" and installed.trl < Version("1.0"):  # NotImplementedError after the model is loaded
        raise BadInput(
            f"use_liger_kernel with loss_type = luspo and TRL {installed.trl}, whose Liger loss has token weights "
            "alone",
            expected="TRL 1.0 or newer for both",
            hint=WITHOUT,
        )
    return arguments
