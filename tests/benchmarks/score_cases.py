"""Score of `explain` and `check --from-report` on a file of real cases, in total and per cause.

    python tests/benchmarks/score_cases.py CASES.json [--misses]

CASES.json is a list of objects with `id`, `kind` ("error" or "report"), `text`, `cause` (a slug, or "healthy"), and
optionally `also` (other correct causes), `tolerated` (harmless findings) and `decidable_from_text`. An error is
correct if its first cause is `cause` or one of `also`; a report if one of them is among the errors and warnings; a
healthy report if it has no errors and warnings except `tolerated`.
"""

from __future__ import annotations

import io
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.explain import explain
from envdoctor.reports import parse_report


def causes_of_error(case: dict[str, Any]) -> list[str]:
    return [f"{cause.cause} {cause.confidence:.2f}" for cause in explain(io.BytesIO(case["text"].encode())).causes]


def causes_of_report(case: dict[str, Any]) -> list[str]:
    report = parse_report(case["text"])
    return [
        f"{f.cause} {f.status} {f.id}" for f in diagnose_report(report) if f.status in ("error", "warning", "crashed")
    ]


def is_right(case: dict[str, Any], named: list[str]) -> bool:
    right = {case["cause"], *case.get("also", ())}
    slugs = [name.split()[0] for name in named]
    if case["cause"] == "healthy":
        return not set(slugs) - set(case.get("tolerated", ()))
    return slugs[:1] and slugs[0] in right if case["kind"] == "error" else bool(right & set(slugs))


def main(arguments: list[str]) -> None:
    cases = [
        case | {"text": case.get("text", case.get("input", ""))}
        for case in json.loads(Path(arguments[0]).read_text())
    ]
    per_cause: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for case in cases:
        named = causes_of_error(case) if case["kind"] == "error" else causes_of_report(case)
        right = bool(is_right(case, named))
        decidable = case.get("decidable_from_text", True)
        kind = (
            "healthy" if case["cause"] == "healthy" else case["kind"] if decidable else f"{case['kind']}, undecidable"
        )
        per_cause[kind, case["cause"]].append(right)
        if not right and "--misses" in arguments:
            print(
                f"{case['id']}: wanted {case['cause']}, named {named[:4] or 'nothing'}"
                + ("" if decidable else " (undecidable)")
            )
    for (kind, cause), results in sorted(per_cause.items()):
        print(f"{kind:22} {cause:30} {sum(results)}/{len(results)}")
    for kind in sorted({kind for kind, _ in per_cause}):
        results = [right for (k, _), each in per_cause.items() if k == kind for right in each]
        print(f"{kind:22} {'all':30} {sum(results)}/{len(results)} {100 * sum(results) / len(results):.0f} %")


if __name__ == "__main__":
    main(sys.argv[1:])
