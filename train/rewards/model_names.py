"""Reward models among the rewards: model:NAME, or as in TRL a directory or OWNER/NAME. Standard library only."""

from __future__ import annotations

import re

from checks.model_names import is_local_path
from settings import BadInput, expand_user

PREFIX = "model:"
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
EXPECTED = "a directory with a sequence classification model of one label, or its name on the Hub"


def reward_model_of(name: str) -> str:
    """The directory or Hub name of a reward model; empty for another reward."""
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX)
    if name.endswith(".py") or ":" in name:
        return ""
    is_model = HUB_NAME.fullmatch(name) is not None or (expand_user(name) / "config.json").is_file()
    return name if is_model else ""


def check_reward_model(model: str) -> str:
    """Return `model:` with the absolute path of a directory, since a run may start in another one."""
    path = expand_user(model)
    if path.is_dir() and (path / "config.json").is_file():
        return PREFIX + str(path.resolve())
    if not model or is_local_path(model):
        raise BadInput(
            f"settings: rewards: {PREFIX}{model}: it is no directory with config.json",
            expected=EXPECTED,
            hint=f"--set rewards={PREFIX}DIR",
        )
    return PREFIX + model


def reward_models(names: list[str]) -> list[str]:
    """The reward models among the rewards, in their order."""
    return [model for name in names if (model := reward_model_of(name))]
