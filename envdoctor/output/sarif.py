"""Findings, and what probes and scans say, as SARIF 2.1.0, for code scanning and for viewers.

Specification: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
What GitHub reads of it: https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Finding
from envdoctor.core.results import CommandResult
from envdoctor.output.envelope import json_text
from envdoctor.output.remarks import KINDS, Remark, remarks
from envdoctor.rules import RULES
from envdoctor.rules.documentation import split_references
from envdoctor.rules.registry import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
PLACE = "envdoctor"  # where there is no file: findings are about a machine
Level = Literal["error", "warning", "note"]
LEVELS: dict[str, Level] = {"error": "error", "crashed": "error", "warning": "warning", "info": "note"}


def to_sarif(
    command: str, answer: CommandResult | None, error: EnvdoctorError | None = None, *, place: str = PLACE
) -> str:
    """A SARIF log of one run, as indented JSON.

    `place` is the file that was judged (a machine file, a report), since GitHub wants a file for each result.
    Findings that could not judge are notifications of the tool, and so is the error that ended it.
    """
    checked = getattr(answer.data, "checked", answer.data) if answer else None  # quickstart's check
    findings: tuple[Finding, ...] = getattr(checked, "findings", ())
    place = getattr(checked, "name", place)  # an audit names the file that it judged
    rules = list(RULES.values())
    told = list(remarks(answer.data)) if answer else []
    kinds = list(dict.fromkeys(remark.kind for remark in told))  # described only where they are used
    run = {
        "tool": {
            "driver": {
                "name": "envdoctor",
                "semanticVersion": __version__,
                "rules": [*map(_rule, rules), *map(_kind, kinds)],
            }
        },
        "invocations": [_invocation(command, answer, error, findings)],
        "columnKind": "unicodeCodePoints",
        "results": [
            *_results(findings, [rule.id for rule in rules], place),
            *(_remark(remark, len(rules) + kinds.index(remark.kind), place) for remark in told),
        ],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json_text(log)


def _rule(rule: Rule) -> dict[str, Any]:
    text, urls = split_references(rule.documentation)
    summary, _, rest = text.partition("\n\n")
    described = {
        "id": rule.id,
        "name": rule.title.title().replace(" ", ""),
        "shortDescription": {"text": " ".join(summary.split())},
        "fullDescription": {"text": rest or text},
        "help": {"text": rule.documentation, "markdown": rule.documentation},
        "defaultConfiguration": {"level": LEVELS.get(rule.severities[0], "warning")},
        "properties": {"tags": [rule.cause]},
    }
    address = rule.url or next(iter(urls), "")
    return described | ({"helpUri": address} if address else {})


def _kind(name: str) -> dict[str, Any]:
    """A kind of remark, which has no rule of ours behind it."""
    text = {"text": KINDS[name]}
    level = "warning" if name in ("speed-slow", "archs-driver", "file-unread", "load-warning") else "error"
    return {
        "id": name,
        "name": name.title().replace("-", ""),
        "shortDescription": text,
        "fullDescription": text,
        "help": text,
        "defaultConfiguration": {"level": level},
    }


def _remark(remark: Remark, index: int, place: str) -> dict[str, Any]:
    """What a probe, a benchmark or a scan says; of a compiled file it is told at that file."""
    fingerprint = hashlib.sha256(f"{remark.kind}\n{remark.subject}".encode()).hexdigest()[:16] + ":1"
    return {
        "ruleId": remark.kind,
        "ruleIndex": index,
        "level": remark.level,
        "message": {"text": f"{remark.title}\n{remark.message}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(os.fsencode(remark.file or place))},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {"name": remark.subject, "fullyQualifiedName": remark.subject, "kind": "member"}
                ],
            }
        ],
        "partialFingerprints": {"primaryLocationLineHash": fingerprint, "envdoctor/v1": fingerprint},
    }


def _results(findings: tuple[Finding, ...], rules: list[str], place: str) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    results = []
    for finding in findings:
        if finding.status not in LEVELS:
            continue
        fingerprint = _fingerprint(finding)
        seen[fingerprint] += 1
        results.append(_result(finding, rules, place, f"{fingerprint}:{seen[fingerprint]}"))
    return results


def _result(finding: Finding, rules: list[str], place: str, fingerprint: str) -> dict[str, Any]:
    lines = [finding.message, finding.fix, *(f"$ {command}" for command in finding.commands)]
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "level": LEVELS[finding.status],
        "message": {"text": "\n".join(line for line in lines if line)},
        "locations": [_location(finding, place)],
        # GitHub tells results apart by the first; the second is ours to keep.
        "partialFingerprints": {"primaryLocationLineHash": fingerprint, "envdoctor/v1": fingerprint},
        "properties": {"cause": finding.cause, "evidence": msgspec.to_builtins(finding.evidence)},
    }
    return result | ({"ruleIndex": rules.index(finding.id)} if finding.id in rules else {})


def _location(finding: Finding, place: str) -> dict[str, Any]:
    """The facts that it rests on, and the file; GitHub shows a result only with a line of a file."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(os.fsencode(place))},
            "region": {"startLine": max(finding.line, 1)},
        },
        "logicalLocations": [
            {"name": e.fact.rsplit(".", 1)[-1], "fullyQualifiedName": e.fact, "kind": "member"}
            for e in finding.evidence
        ],
    }


def _fingerprint(finding: Finding) -> str:
    """The same tomorrow and with other measured values: of the rule and the facts, not of what they read."""
    facts = "\n".join([finding.id, finding.cause, *(e.fact for e in finding.evidence)])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _invocation(
    command: str, answer: CommandResult | None, error: EnvdoctorError | None, findings: tuple[Finding, ...]
) -> dict[str, Any]:
    code = error.exit_code if error else answer.exit_code if answer else 0
    notifications = [
        {"level": "note", "message": {"text": finding.message}, "associatedRule": {"id": finding.id}}
        for finding in findings
        if finding.status == "unknown"
    ]
    if error:
        expected = f"expected: {error.expected}" if error.expected else ""
        hint = f"hint: {error.hint}" if error.hint else ""
        text = "\n".join(part for part in (error.message, expected, hint) if part)
        notifications.append({"level": "error", "message": {"text": text}, "descriptor": {"id": error.kind}})
        for cause in error.causes:
            text = "\n".join([*cause.lines, cause.fix])
            notifications.append({"level": "note", "message": {"text": text}, "descriptor": {"id": cause.cause}})
    return {
        "executionSuccessful": error is None,
        "exitCode": code,
        "commandLine": f"envdoctor {command}",
        "toolExecutionNotifications": notifications,
    }
