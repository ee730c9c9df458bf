"""Refuses settings whose kernels failed in `envdoctor verify`. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from settings import BadInput, format_value

# setting -> value -> the probe that tests it
PROBES: dict[str, dict[Any, str]] = {
    "quantization": {"nf4": "bitsandbytes_nf4", "fp4": "bitsandbytes_nf4", "int8": "bitsandbytes_int8"},
    "generation": {"vllm-colocate": "vllm_generate"},
    "liger_loss": {True: "liger_grpo"},
    "compile": {True: "torch_compile"},
    "optimizer": dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), "bitsandbytes_adam8bit"),
}


def check_failed_probes(settings: Mapping[str, Any], proven: Mapping[str, Any]) -> None:
    """Refuse a setting whose probe failed; `proven["failed"]` has the names of the failed probes."""
    failed = set(proven.get("failed", ()))
    for name, probes in PROBES.items():
        probe = probes.get(settings[name], "")
        if probe in failed:
            raise BadInput(
                f"{name} = {format_value(settings[name])}, but verify's probe {probe} failed in this environment",
                expected="a setting whose probe passed here",
                hint=f"envdoctor verify --only {probe}",
            )
