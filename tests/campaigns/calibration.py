"""Measure how often the first cause of `explain` is right, by its percentage.

    python tests/campaigns/calibration.py [FILE...]

Without files the labelled texts of tests/data/field_errors are read. A file is a list of objects with `text`, `cause`
(empty or `not-environment` for a text without a cause in the environment), `also` and `decidable_from_text`; texts of
`kind` report are skipped. Prints a table in Markdown.
"""

from __future__ import annotations

import io
import json
import sys
from itertools import pairwise
from pathlib import Path

from envdoctor.explain import explain
from envdoctor.knowledge.causes import causes

FIELD_ERRORS = Path(__file__).resolve().parents[1] / "data/field_errors"
BOUNDS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]] or sorted(FIELD_ERRORS.glob("*.json"))
    counts = dict.fromkeys(BOUNDS[:-1], (0, 0, 0.0))  # texts, right ones, sum of the confidences
    without = [0, 0]
    for path in files:
        for case in json.loads(path.read_text(encoding="utf-8")):
            if case.get("kind") == "report":
                continue
            cause = "" if case["cause"] == "not-environment" else case["cause"]
            explained = explain(io.BytesIO(case["text"].encode()))
            is_program_error = cause in causes() and causes()[cause].program_error
            found = (explained.program_errors if is_program_error else explained.causes)[:1]
            if not found:
                without[0] += 1
                without[1] += not cause
                continue
            first = found[0]
            lower = max(bound for bound in BOUNDS[:-1] if bound <= first.confidence)
            number, right, total = counts[lower]
            is_right = first.cause in {cause, *case.get("also", ())}
            counts[lower] = (number + 1, right + is_right, total + first.confidence)
            if not is_right:
                print(f"{case['id']}: {first.cause} {first.confidence:.0%}, label {cause or 'none'}", file=sys.stderr)
    print("| Percentage | Texts | First cause is right | Mean percentage |\n|---|---|---|---|")
    for lower, upper in pairwise(BOUNDS):
        number, right, total = counts[lower]
        if number:
            share, mean = right / number, total / number
            print(f"| {lower:.0%} to {min(upper, 1):.0%} | {number} | {right} ({share:.0%}) | {mean:.0%} |")
    print(f"| no cause | {without[0]} | {without[1]} | |")


if __name__ == "__main__":
    main()
