"""Settings of tools, environments and rollout functions, checked without an import of the functions."""

from __future__ import annotations

from typing import Any

from checks.engines import ENGINE_SETTINGS, sampling_engine
from checks.rollouts import SETTINGS, uses_rollouts
from rewards.user_function import check_user_function, is_user_reward
from settings import BadInput

REASON = "it is untested with tools, environments and rollout functions"


def check_rollouts(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with absolute paths of the functions; BadInput for one that cannot be used. No import."""
    if settings["rollout_func"] and (settings["tools"] or settings["environment_factory"]):
        raise BadInput(
            "settings: rollout_func with tools or environment_factory: the function makes the completions itself",
            expected="rollout_func alone, or tools and environment_factory",
            hint="--set rollout_func=",
        )
    for name, conflicts in (
        (ENGINE_SETTINGS[sampling_engine(settings)].partition(" ")[0],
         sampling_engine(settings) not in ("transformers", "vllm-colocate", "vllm-server")),
        ("fsdp", bool(settings["fsdp"])),
    ):  # fmt: skip
        if uses_rollouts(settings) and conflicts:
            raise BadInput(
                f"settings: {name} with {', '.join(each for each in SETTINGS if settings[each])}: {REASON}",
                expected="generation by transformers or vLLM, without FSDP",
                hint=f"--set {name}={'' if name == 'fsdp' else 'false'}",
            )
    functions = {
        "tools": [_check_function("tools", name) for name in settings["tools"]],
        **{name: settings[name] and _check_function(name, settings[name]) for name in SETTINGS[1:]},
    }
    return settings | functions


def _check_function(setting: str, name: str) -> str:
    if not is_user_reward(name):
        raise BadInput(
            f"settings: {setting}: {name!r} is no function",
            expected="FILE.py:function, or module:function",
            hint=f"--set {setting}=FILE.py:function",
        )
    return check_user_function(name, setting)
