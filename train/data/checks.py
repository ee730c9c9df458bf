"""Checks of input data: names of files, and the number of training prompts. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from settings import BadInput


def check_file_names(files: Sequence[Path]) -> None:
    """Refuse file names that are not UTF-8: tables and events contain them, and writing the first row would fail."""
    for path in files:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise BadInput(
                f"settings: data: the name {str(path)!a} is not UTF-8",
                expected="files with UTF-8 names",
                hint="rename the file",
            ) from None


def check_prompt_count(prompts: int, settings: dict[str, Any], source: str = "") -> None:
    """Refuse fewer prompts than a step of GRPO needs: TRL drops incomplete batches, so the run would have no step."""
    if settings["trainer"] != "grpo":
        return
    if prompts < settings["prompts_per_step"]:
        raise BadInput(
            f"{prompts} training prompt{'s' * (prompts != 1)}{source and f' ({source})'}, "
            f"prompts_per_step = {settings['prompts_per_step']}",
            expected="prompts for at least one full step",
            hint=f"--set prompts_per_step={max(1, prompts)}, or more data",
        )
