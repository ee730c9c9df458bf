"""The loss as fields of the installed TRL's GRPOConfig: its kind, its limits, who computes it. Pure, as trl_fields.

What each version has was read in its wheel (0.22.2 to 1.16.0, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import Version
from settings import BadInput

if TYPE_CHECKING:
    from trl_config.arguments import InstalledVersions

# Loss types by the first TRL that computes them (grpo_trainer.py of each wheel).
LOSSES = {"cispo": "0.26", "sapo": "0.26", "luspo": "0.28", "vespo": "1.0"}
# Loss types by the first liger-kernel whose loss knows them (chunked_loss/grpo_loss.py of 0.5.10 to 0.8.0).
LIGERS = {"dapo": "0.6.4", "cispo": "0.7", "sapo": "0.7", "luspo": "0.8", "vespo": "0.8"}
WITHOUT = "--set liger_loss=false"


def loss_fields(settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]) -> dict[str, Any]:
    """GRPOConfig's fields for the loss."""
    kind, since = settings["loss_type"], LOSSES.get(settings["loss_type"], "0")
    if installed.trl < Version(since):
        raise BadInput(
            f"loss_type = {kind} with TRL {installed.trl}",
            expected=f"TRL {since} or newer for {kind}",
            hint="--set loss_type=dapo",
        )
    if "lm_head" in settings["lora_targets"] and (settings["liger_loss"] or installed.trl >= Version("1.15")):
        # The head's own weights are multiplied, past an adapter: a ValueError from 1.9 on, no gradient before.
        head = "liger_loss" if installed.trl < Version("1.15") else f"TRL {installed.trl}"
        raise BadInput(
            f"lora_targets holds lm_head, whose adapter {head} would not train",
            expected="targets in the layers",
            hint="--set lora_targets=" + ",".join(name for name in settings["lora_targets"] if name != "lm_head"),
        )
    return {
        "loss_type": kind,
        "scale_rewards": settings["scale_rewards"],
        "epsilon": settings["epsilon"],
        "epsilon_high": settings["epsilon_high"] or None,
        "beta": settings["beta"],
        "mask_truncated_completions": settings["mask_truncated"],
        **({"importance_sampling_level": "sequence"} if kind == "luspo" else {}),  # by tokens it is another loss
        **_kl(settings, installed, notes),
        **(_liger(settings, installed, notes) if settings["liger_loss"] else {}),
    }


def _kl(settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]) -> dict[str, Any]:
    """The gradient of the KL penalty, which TRL 1.10 changed for whoever does not say."""
    asked, field = settings["kl_gradient"], "use_bias_correction_kl"
    if not settings["beta"]:
        return {}
    if asked == "auto":
        own = "unbiased" if installed.trl >= Version("1.10") else "plain"
        notes.append(f"kl_gradient: {own}, as TRL {installed.trl} does by itself (unbiased from 1.10 on)")
        return {}
    by_liger = settings["liger_loss"] and installed.trl < Version("1.5")  # handed to it in 1.5.1, not in 1.0.0
    if asked == "unbiased" and (by_liger or not installed.has(field)):
        raise BadInput(
            f"kl_gradient = unbiased with {'liger_loss and ' if by_liger else ''}TRL {installed.trl}",
            expected=f"TRL {'1.5' if by_liger else '0.26'} or newer for it",
            hint=WITHOUT if by_liger else "--set kl_gradient=plain",
        )
    return {field: asked == "unbiased"} if installed.has(field) else {}


def _liger(settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]) -> dict[str, Any]:
    """No batch's logits: by Liger's loss up to 1.13, by TRL's own head in 1.14 if asked, from 1.15 on always."""
    if installed.trl >= Version("1.15"):
        notes.append(
            f"liger_loss: TRL {installed.trl} computes log-probabilities in chunks by itself, which saves the same "
            "memory; Liger's loss is gone from it"
        )
        return {}
    least = installed.liger_least or Version("0")
    if installed.liger is None or installed.liger < least:  # TRL finds out when the model is loaded
        here = f"{installed.liger} is" if installed.liger else "is not"
        raise BadInput(
            f"liger_loss = true, but liger-kernel {here} installed",
            expected=f"liger-kernel {least} or newer, by TRL {installed.trl}",
            hint=WITHOUT,
        )
    arguments = {"use_liger_loss" if installed.trl < Version("0.27") else "use_liger_kernel": True}
    if installed.trl >= Version("1.14"):
        notes.append(
            f"liger_loss: TRL {installed.trl} computes log-probabilities in chunks by itself, which saves the same "
            "memory; Liger's loss is gone from it, its kernels in the layers come along"
        )
        return arguments
    kind, since = settings["loss_type"], LIGERS.get(settings["loss_type"], "0")
    if installed.liger < Version(since):
        other = "--set loss_type=bnpo, the same mean over tokens but within a pass, or " if kind == "dapo" else ""
        raise BadInput(
            f"liger_loss with loss_type = {kind} and liger-kernel {installed.liger}",
            expected=f"liger-kernel {since} or newer for {kind}",
            hint=f"{other}{WITHOUT}",
        )
    if kind == "luspo" and installed.trl < Version("1.0"):  # NotImplementedError, when the model is loaded
        raise BadInput(
            f"liger_loss with loss_type = luspo and TRL {installed.trl}, whose Liger loss weighs tokens alone",
            expected="TRL 1.0 or newer for both",
            hint=WITHOUT,
        )
    return arguments
