"""Refuses settings whose kernels failed in `envdoctor verify`. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checks.engines import sampling_engine
from settings import BadInput, format_value

# setting -> value -> the probe that tests it
PROBES: dict[str, dict[Any, str]] = {
    "load_in_4bit": {True: "bitsandbytes_nf4"},
    "load_in_8bit": {True: "bitsandbytes_int8"},
    "use_vllm": {True: "vllm_generate"},
    "use_liger_kernel": {True: "liger_grpo"},
    "torch_compile": {True: "torch_compile"},
    "optim": dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), "bitsandbytes_adam8bit"),
}


def check_failed_probes(settings: dict[str, Any], proven: Mapping[str, Any]) -> None:
    """Refuse a setting whose probe failed; `proven["failed"]` has the names of the failed probes."""
    failed = set(proven.get("failed", ()))
    used = settings | {"use_vllm": sampling_engine(settings) == "vllm-colocate"}  # a server is another environment
    for name, probes in PROBES.items():
        probe = probes.get(used[name], "")
        if probe in failed:
            raise BadInput(
                f"{name} = {format_value(settings[name])}, but verify's probe {probe} failed in this environment",
                expected="a setting whose probe passed here",
                hint=f"envdoctor verify --only {probe}",
            )
