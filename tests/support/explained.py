"""Explanations of texts."""

from __future__ import annotations

import io
from typing import Any

from envdoctor.explain import Explanation, explain
from envdoctor.explain.rank import Cause


def explain_text(text: str, *facts: Any, **options: Any) -> Explanation:
    """The explanation of a text; facts and options as those of `explain`."""
    return explain(io.BytesIO(text.encode()), *facts, **options)


def all_causes(text: str) -> tuple[Cause, ...]:
    """The causes in the environment and in the program."""
    found = explain_text(text)
    return (*found.causes, *found.program_errors)


def best_cause(text: str) -> Cause | None:
    """The cause with the highest score, in the environment or in the program."""
    return max(all_causes(text), key=lambda cause: cause.score, default=None)


def first_cause(text: str) -> str | None:
    """The name of the most likely cause in the environment."""
    found = explain_text(text).causes
    return found[0].cause if found else None
