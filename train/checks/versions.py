"""Limits of TRL versions that the memory plan and the run share. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from settings import BadInput

SLEEP_VERSIONS = "TRL 0.23, 0.24, or 1.10 and newer"


def at_least(version: str, wanted: tuple[int, ...]) -> bool:
    """Whether "1.16.0" is at least (1, 16); an unknown version is not."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[: len(wanted)])
    return bool(numbers) and numbers >= wanted


def restores_weights_on_wake(trl: str) -> bool:
    """Whether vLLM has the trained weights after waking up.

    TRL 0.23 and 0.24 use sleep level 1, which keeps the weights. Later versions use level 2, which drops them: 0.26
    to 1.9 call reload_weights at wake-up, which loads the initial checkpoint (gh:huggingface/trl/issues/5312); 0.25
    restores nothing before the next step.
    """
    return at_least(trl, (0, 23)) and (not at_least(trl, (0, 25)) or at_least(trl, (1, 10)))


def check_sleep(settings: Mapping[str, Any], trl: str) -> None:
    """Refuse vllm_enable_sleep_mode where TRL lacks it or wakes up with other weights; an unknown version passes."""
    if not settings["vllm_enable_sleep_mode"] or not trl or restores_weights_on_wake(trl):
        return
    why = ", which does not restore the trained weights at wake-up" if at_least(trl, (0, 23)) else ""
    raise BadInput(
        f"vllm_enable_sleep_mode = true with TRL {trl}{why}",
        expected=SLEEP_VERSIONS,
        hint="--set vllm_enable_sleep_mode=false, and a smaller --set vllm_gpu_memory_utilization",
    )
