"""The reward of TRL's environments: `get_reward` of the environment in which a completion was made."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewards.user_function import load_function
from settings import BadInput

NAME = "environment"
HIDDEN = "_own_reward"


def hide_reward(environment: Any) -> Any:
    """Hide `get_reward` of an environment from TRL, whose releases treat it as a reward of its own or as a tool.

    The reward `environment` calls it once per completion, next to the other rewards and with a weight.
    """
    kind = type(environment)
    own = getattr(kind, "get_reward", None)
    if own is not None:
        environment.__class__ = type(kind.__name__, (kind,), {"get_reward": None, HIDDEN: own})
    return environment


def described_tools(settings: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """The functions that the chat template describes in a prompt: the tools, and the environment's public methods."""
    tools = [load_function(name, "tools") for name in settings["tools"]]
    name = settings["environment_factory"]
    if not name:
        return tools
    try:
        environment = load_function(name, "environment_factory")()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"settings: environment_factory: {name}() raises {type(error).__name__}: {error}",
            expected="a function or a class that returns an environment",
            hint=f"--set environment_factory={name.partition(':')[0]}:FUNCTION",
        ) from error
    methods = inspect.getmembers(type(environment), inspect.isfunction)
    hidden = ("reset", "get_reward")
    return tools + [getattr(environment, name) for name, _ in methods if name not in hidden and name[0] != "_"]


def environment_rewards(environments: Sequence[Any] | None) -> list[float | None]:
    """The reward of each environment."""
    rewards = []
    for environment in environments or ():
        own = getattr(environment, HIDDEN, None)
        if own is None:
            raise BadInput(
                f"rewards: {NAME}, but the environment {type(environment).__name__} has no method get_reward",
                expected="an environment with get_reward, or other rewards",
                hint="--reward FILE.py:FUNCTION",
            )
        value = own()
        rewards.append(asyncio.run(value) if inspect.iscoroutine(value) else value)
    return rewards
