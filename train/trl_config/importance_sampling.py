"""How much vLLM's tokens count, as fields of the installed TRL's GRPOConfig. Pure, as trl_fields.

vLLM computes otherwise than the model that learns, so TRL weighs what it sampled by how likely the model finds it:
from 0.23 on each token, with weights above 2 cut to it; from 0.26 on whole answers, with those above 3 left out (read
in 13 wheels of 0.22.2 to 1.16.0, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from packaging.version import Version
from settings import BadInput

if TYPE_CHECKING:
    from trl_config.arguments import InstalledVersions

CORRECTION = "vllm_importance_sampling_correction"
MODE = "vllm_importance_sampling_mode"
LIMITS = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")  # renamed in 1.6


def importance_sampling_fields(
    settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]
) -> dict[str, Any]:
    """GRPOConfig's fields for it; what this TRL does by itself is told."""
    asked, limit = settings["vllm_correction_mode"], settings["vllm_correction_limit"]
    if not settings["vllm_correction"] or not installed.has(CORRECTION):
        _refuse_what_would_do_nothing(settings, installed)
        if settings["vllm_correction"]:
            notes.append(
                f"vllm_correction: TRL {installed.trl} has none (0.23 does); what vLLM samples counts as it is"
            )
        return {CORRECTION: False} if installed.has(CORRECTION) else {}
    if _left_out(settings, installed):
        # It would be computed, logged, and left out of the loss. Off, at least nothing claims it.
        notes.append(
            f"liger_loss with vLLM: TRL {installed.trl} and liger-kernel {installed.liger} leave the "
            "importance-sampling correction out of the loss (TRL 0.29 with liger-kernel 0.7 has it): switched off"
        )
        return {CORRECTION: False}
    own, largest = ("sequence_mask", 3.0) if installed.has(MODE) else ("token_truncate", 2.0)
    by_tokens = settings["loss_type"] == "vespo"  # TRL refuses whole answers there (ValueError, 1.0 to 1.16)
    mode = asked if asked != "auto" else "token_truncate" if by_tokens else own
    if by_tokens and mode.startswith("sequence"):
        raise BadInput(
            f"vllm_correction_mode = {mode} with loss_type = vespo",
            expected="token_truncate or token_mask",
            hint="--set vllm_correction_mode=token_truncate",
        )
    if mode != own and not installed.has(MODE):
        raise BadInput(
            f"vllm_correction_mode = {mode} with TRL {installed.trl}, which has {own} alone",
            expected="TRL 0.26 or newer for it",
            hint=f"--set vllm_correction_mode={own}",
        )
    if asked == "auto" or not limit:
        why = "TRL refuses whole answers for vespo" if by_tokens else f"as TRL {installed.trl} does by itself"
        notes.append(
            f"vllm_correction: {mode}, weights up to {limit or largest:g}; {why} "
            "(token_truncate and 2 up to 0.25, sequence_mask and 3 from 0.26)"
        )
    fields: dict[str, Any] = {} if mode == own else {MODE: mode}
    return fields | ({next(filter(installed.has, LIMITS)): limit} if limit else {})


def _left_out(settings: Mapping[str, Any], installed: InstalledVersions) -> bool:
    """Whether Liger's loss, which TRL takes up to 1.13, knows nothing of weights."""
    weighs = installed.trl >= Version("0.29") and (installed.liger or Version("0")) >= Version("0.7")
    return bool(settings["liger_loss"]) and installed.trl < Version("1.14") and not weighs


def _refuse_what_would_do_nothing(settings: Mapping[str, Any], installed: InstalledVersions) -> None:
    given = [name for name in ("mode", "limit") if settings[f"vllm_correction_{name}"] not in ("auto", 0)]
    if not given:
        return
    name = f"vllm_correction_{given[0]}"
    on = settings["vllm_correction"]
    without = f"TRL {installed.trl}, which has no correction" if on else "vllm_correction = false"
    raise BadInput(
        f"{name} = {settings[name]} does nothing with {without}",
        expected="vllm_correction = true, and TRL 0.23 or newer",
        hint=f"leave {name} out",
    )
