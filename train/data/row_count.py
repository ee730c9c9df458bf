"""Whether there are prompts enough for a step. Standard library only."""

from __future__ import annotations

from typing import Any

from settings import BadInput


def refuse_too_few(prompts: int, settings: dict[str, Any], of: str = "") -> None:
    """TRL drops a batch that is not full: a run with fewer prompts than one takes would be done without a step."""
    if prompts < settings["prompts_per_step"]:
        raise BadInput(
            f"{prompts} training prompt{'s' * (prompts != 1)}{of and f' ({of})'}, "
            f"prompts_per_step = {settings['prompts_per_step']}",
            expected="prompts for one full step at least",
            hint=f"--set prompts_per_step={max(1, prompts)}, or more data",
        )
