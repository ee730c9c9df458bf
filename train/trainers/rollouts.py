"""The user's tools, environment and rollout function as arguments of TRL's GRPOTrainer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from checks.rollouts import SETTINGS, uses_rollouts
from rewards.environment import hide_reward
from rewards.user_function import load_function
from settings import BadInput

RESERVED = ("prompt", "row", "completion", "completion_ids", "environment", "image", "images")


def rollout_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments; none without these settings, so that TRL before 0.26 constructs its trainer."""
    tools = [load_function(name, "tools") for name in settings["tools"]]
    factory, function = settings["environment_factory"], settings["rollout_func"]
    return {
        **({"tools": tools} if tools else {}),
        **({"environment_factory": _wrap_factory(load_function(factory, "environment_factory"))} if factory else {}),
        **({"rollout_func": load_function(function, "rollout_func")} if function else {}),
    }


def check_conversations(settings: Mapping[str, Any], prompt: Any) -> None:
    """Refuse tools with prompts of text: TRL would not pass the tools to the model."""
    names = [name for name in ("tools", "environment_factory") if settings[name]]
    if names and isinstance(prompt, str):
        raise BadInput(
            f"settings: {names[0]} with prompts of text",
            expected="prompts of messages, and a tokenizer with a chat template that has tools",
            hint="--set chat=messages",
        )


@contextlib.contextmanager
def refusals_as_bad_input(settings: Mapping[str, Any]) -> Iterator[None]:
    """Report TRL's refusal of the tools, of the chat template or of a library's release as bad input."""
    try:
        yield
    except (ValueError, ImportError) as error:
        names = [name for name in SETTINGS if settings[name]]
        if not names:
            raise
        raise BadInput(
            f"TRL refuses {' and '.join(names)}: {' '.join(str(error).split())}",
            expected="tools and environments as TRL's documentation has them, and a chat template with tools",
            hint=f"leave {names[0]} out, or name a model whose chat template has tools with --set model=NAME",
        ) from error


def _wrap_factory(factory: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: hide_reward(factory())


def example_columns(row: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that TRL passes to the environment's `reset` and to the reward; none without either."""
    if not uses_rollouts(settings):
        return {}
    return {name: value for name, value in row.get("columns", {}).items() if name not in RESERVED}
