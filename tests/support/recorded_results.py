"""Complete results of many cases, compared with those of the last commit.

A test names what matters about a result. These files hold everything else: messages, commands, numbers, order. A
change is either a fault, or intended: then write the files again and read their difference before the commit.
"""

from __future__ import annotations

import difflib
import json
import os
from typing import Any

import msgspec
import pytest
from support.paths import DATA

VARIABLE = "ENVDOCTOR_WRITE_RECORDED_RESULTS"
MAX_LINES = 60


def assert_as_recorded(name: str, results: dict[str, Any]) -> None:
    """Compare results with tests/data/recorded_results/NAME.jsonl; keys are the names of the cases."""
    lines = []
    for key, value in without_empty(msgspec.to_builtins(results)).items():
        parts = value if isinstance(value, dict) else dict(enumerate(value if isinstance(value, list) else [value]))
        lines += [json.dumps([key, part, each], ensure_ascii=False) for part, each in parts.items()]
    assert_text_as_recorded(f"{name}.jsonl", "".join(f"{line}\n" for line in lines))


def assert_text_as_recorded(name: str, text: str) -> None:
    """Compare a text with the file tests/data/recorded_results/NAME."""
    path = DATA / "recorded_results" / name
    if os.environ.get(VARIABLE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    recorded = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != recorded:
        lines = difflib.unified_diff(recorded.splitlines(), text.splitlines(), "recorded", "now", lineterm="", n=2)
        shown = "\n".join(list(lines)[:MAX_LINES])
        pytest.fail(f"{name}: other results than recorded. Intended? {VARIABLE}=1 and the same tests.\n{shown}")


def without_empty(value: Any) -> Any:
    """The value without empty fields, and with numbers of at most six digits after the point."""
    if isinstance(value, dict):
        pairs = ((str(key), without_empty(each)) for key, each in value.items())
        return {key: each for key, each in pairs if each not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [without_empty(each) for each in value]
    return round(value, 6) if isinstance(value, float) else value
