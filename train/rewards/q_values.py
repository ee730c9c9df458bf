"""Rewards from action values q: the softmax share, the advantage, and the regret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def q_value_reward(q: Sequence[float], action: int | None, settings: dict[str, Any]) -> float:
    """Return the reward of an action by the setting `q_reward`; an invalid action (None) gets `invalid_reward`."""
    if action is None:
        return float(settings["invalid_reward"])
    if settings["q_reward"] == "advantage":
        return advantage_reward(q, action)
    return softmax_reward(q, action, settings["tau"])


def softmax_reward(q: Sequence[float], action: int, tau: float) -> float:
    """Return the action's share in softmax((q - max q) / tau): 1/4 each for four equal actions."""
    best = max(q)
    weights = [math.exp((value - best) / tau) for value in q]
    return weights[action] / sum(weights)


def advantage_reward(q: Sequence[float], action: int) -> float:
    """Return q of the action minus the mean of all actions. It is unbounded."""
    return q[action] - sum(q) / len(q)


def regret(q: Sequence[float], action: int | None) -> float:
    """Return the loss against the best action; an invalid action counts as the worst one."""
    return max(q) - (min(q) if action is None else q[action])
