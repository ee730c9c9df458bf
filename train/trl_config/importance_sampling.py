"""vLLM's importance-sampling correction as fields of the installed TRL's GRPOConfig. Pure.

vLLM's probabilities differ from those of the trained model, so TRL weights its samples by the ratio: from 0.23 on per
token, with weights truncated at 2; from 0.26 on per sequence, with sequences above 3 masked (read from 13 wheels of
0.22.2 to 1.16.0, 2026-11-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import Version
from settings import BadInput
from trl_config.versions import InstalledVersions

CORRECTION = "vllm_importance_sampling_correction"
MODE = "vllm_importance_sampling_mode"
LIMITS = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")  # renamed in 1.6


def importance_sampling_fields(
    settings: Mapping[str, Any], installed: InstalledVersions, notes: list[str]
) -> dict[str, Any]:
    """GRPOConfig's fields of the correction; TRL's defaults are noted."""
    requested, limit = settings[MODE], settings[LIMITS[0]]
    if not settings["vllm_importance_sampling_correction"] or not installed.has(CORRECTION):
        _check_ineffective(settings, installed)
        if settings["vllm_importance_sampling_correction"]:
            notes.append(f"{CORRECTION}: TRL {installed.trl} has none (0.23 has it); vLLM's samples are not weighted")
        return {CORRECTION: False} if installed.has(CORRECTION) else {}
    if _liger_ignores_weights(settings, installed):
        # The weights would be computed and logged, but not used.
        notes.append(
            f"use_liger_kernel with vLLM: TRL {installed.trl} and liger-kernel {installed.liger} leave the "
            "importance-sampling correction out of the loss (TRL 0.29 with liger-kernel 0.7 has it): disabled"
        )
        return {CORRECTION: False}
    default_mode, default_limit = ("sequence_mask", 3.0) if installed.has(MODE) else ("token_truncate", 2.0)
    per_token = settings["loss_type"] == "vespo"  # TRL refuses sequence modes there (ValueError, 1.0 to 1.16)
    mode = requested or ("token_truncate" if per_token else default_mode)
    if per_token and mode.startswith("sequence"):
        raise BadInput(
            f"vllm_importance_sampling_mode = {mode} with loss_type = vespo",
            expected="token_truncate or token_mask",
            hint="--set vllm_importance_sampling_mode=token_truncate",
        )
    if mode != default_mode and not installed.has(MODE):
        raise BadInput(
            f"vllm_importance_sampling_mode = {mode} with TRL {installed.trl}, which has {default_mode} alone",
            expected="TRL 0.26 or newer for it",
            hint=f"--set vllm_importance_sampling_mode={default_mode}",
        )
    if not requested or not limit:
        reason = "TRL refuses sequence modes for vespo" if per_token else f"the default of TRL {installed.trl}"
        notes.append(
            f"vllm_importance_sampling_correction: {mode}, weights up to {limit or default_limit:g}; {reason} "
            "(token_truncate and 2 up to 0.25, sequence_mask and 3 from 0.26)"
        )
    fields: dict[str, Any] = {} if mode == default_mode else {MODE: mode}
    return fields | ({next(filter(installed.has, LIMITS)): limit} if limit else {})


def _liger_ignores_weights(settings: Mapping[str, Any], installed: InstalledVersions) -> bool:
    """Whether Liger's loss, which TRL up to 1.13 uses, ignores the weights."""
    supported = installed.trl >= Version("0.29") and (installed.liger or Version("0")) >= Version("0.7")
    return bool(settings["use_liger_kernel"]) and installed.trl < Version("1.14") and not supported


def _check_ineffective(settings: Mapping[str, Any], installed: InstalledVersions) -> None:
    name = next((name for name in (MODE, LIMITS[0]) if settings[name]), "")
    if not name:
        return
    on = settings["vllm_importance_sampling_correction"]
    without = f"TRL {installed.trl}, which has no correction" if on else "vllm_importance_sampling_correction = false"
    raise BadInput(
        f"{name} = {settings[name]} does nothing with {without}",
        expected="vllm_importance_sampling_correction = true, and TRL 0.23 or newer",
        hint=f"leave {name} out",
    )
