"""Metrics of an evaluation over the completions of each prompt: pass@k, and the best reward of k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def best_of_metrics(scores: Sequence[Mapping[str, Any]], *, prompts: int, correct: str) -> dict[str, float]:
    """Metrics of k completions per prompt; none for one completion. `scores` has every prompt once, k times.

    `correct` is the score that is 1 for a correct completion; without one there is no pass@k.
    """
    count = len(scores) // prompts
    if count < 2:
        return {}
    groups = [scores[prompt::prompts] for prompt in range(prompts)]
    found = {}
    if correct:
        found[f"pass@{count}"] = sum(any(score[correct] for score in group) for group in groups) / prompts
    rewards = [[score["reward"] for score in group if score["reward"] is not None] for group in groups]
    best = [max(group) for group in rewards if group]
    return found | ({f"best_reward@{count}": sum(best) / len(best)} if best else {})
