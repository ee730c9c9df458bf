"""One of TRL's trainers by its name in the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trl
from trl_fields import CONFIGS

MakeArguments = Callable[..., tuple[dict[str, Any], list[str]]]
Construct = Callable[..., Any]


def select_trainer(trainer: str) -> tuple[type, MakeArguments, Construct]:
    """Return the configuration's class, the function that makes its arguments, and that for the trainer."""
    config = getattr(trl, CONFIGS[trainer])
    if trainer == "grpo":
        from trainers import grpo
        from trl_config.arguments import make_grpo_arguments

        return config, make_grpo_arguments, grpo.construct
    from trainers import examples
    from trl_config.example_arguments import make_example_arguments

    return config, make_example_arguments, examples.construct
