"""Findings, and problems of probes and scans, as SARIF 2.1.0 for code scanning.

Specification: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
GitHub's subset: https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Finding
from envdoctor.core.remedies import command_lines
from envdoctor.core.results import CommandResult
from envdoctor.output.envelope import exit_code, json_text
from envdoctor.output.problems import KINDS, Problem, find_problems
from envdoctor.rules import RULES
from envdoctor.rules.documentation import split_references
from envdoctor.rules.registry import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
DEFAULT_FILE = "envdoctor"  # for findings about a machine, which have no file
Level = Literal["error", "warning", "note"]
LEVELS: dict[str, Level] = {"error": "error", "crashed": "error", "warning": "warning", "info": "note"}


def to_sarif(
    command: str, result: CommandResult | None, error: EnvdoctorError | None = None, *, file: str = DEFAULT_FILE
) -> str:
    """A SARIF log of one run, as indented JSON.

    `file` is the examined file (a machine file, a report), because GitHub requires a file for each result.
    Rules that could not be evaluated are tool notifications, and so are parts that were not read and an error of the
    command.
    """
    checked = getattr(result.data, "checked", result.data) if result else None  # of quickstart
    findings: tuple[Finding, ...] = getattr(checked, "findings", ())
    file = getattr(checked, "name", file)  # an audit names its file
    rules = list((RULES | rules_of_audit(findings)).values())
    found = list(find_problems(result.data)) if result else []
    problems = [problem for problem in found if problem.level != "notice"]
    notices = [problem for problem in found if problem.level == "notice"]
    kinds = list(dict.fromkeys(problem.kind for problem in problems))  # only kinds that occur are described
    run = {
        "tool": {
            "driver": {
                "name": "envdoctor",
                "semanticVersion": __version__,
                "rules": [*map(_rule, rules), *map(_kind, kinds)],
            }
        },
        "invocations": [_invocation(command, result, error, findings, notices)],
        "columnKind": "unicodeCodePoints",
        "results": [
            *_finding_results(findings, [rule.id for rule in rules], file),
            *(_problem_result(problem, len(rules) + kinds.index(problem.kind), file) for problem in problems),
        ],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json_text(log)


def rules_of_audit(findings: Iterable[Finding]) -> dict[str, Rule]:
    """The rules of `envdoctor audit`, if it reported one of the findings. Their modules take time to load."""
    if all(finding.id in RULES for finding in findings):
        return {}
    from envdoctor.manifests.rules import audit_rules

    return audit_rules()


def _rule(rule: Rule) -> dict[str, Any]:
    text, urls = split_references(rule.documentation)
    summary, _, rest = text.partition("\n\n")
    described = {
        "id": rule.id,
        "name": rule.name.title().replace("_", ""),
        "shortDescription": {"text": " ".join(summary.split())},
        "fullDescription": {"text": rest or text},
        "help": {"text": rule.documentation, "markdown": rule.documentation},
        "defaultConfiguration": {"level": LEVELS.get(rule.severities[0], "warning")},
        "properties": {"tags": [rule.cause]},
    }
    address = rule.url or next(iter(urls), "")
    return described | ({"helpUri": address} if address else {})


def _kind(name: str) -> dict[str, Any]:
    """A kind of problem, described as a rule."""
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


def _problem_result(problem: Problem, index: int, file: str) -> dict[str, Any]:
    """A problem of a probe, a benchmark or a scan. It is located at its compiled file, if it has one."""
    fingerprint = hashlib.sha256(f"{problem.kind}\n{problem.subject}".encode()).hexdigest()[:16] + ":1"
    return {
        "ruleId": problem.kind,
        "ruleIndex": index,
        "level": problem.level,
        "message": {"text": f"{problem.title}\n{problem.message}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(os.fsencode(problem.file or file))},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {"name": problem.subject, "fullyQualifiedName": problem.subject, "kind": "member"}
                ],
            }
        ],
        "partialFingerprints": {"primaryLocationLineHash": fingerprint, "envdoctor/v1": fingerprint},
    }


def _finding_results(findings: tuple[Finding, ...], rules: list[str], file: str) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    results = []
    for finding in findings:
        if finding.status not in LEVELS:
            continue
        fingerprint = _fingerprint(finding)
        seen[fingerprint] += 1
        results.append(_finding_result(finding, rules, file, f"{fingerprint}:{seen[fingerprint]}"))
    return results


def _finding_result(finding: Finding, rules: list[str], file: str, fingerprint: str) -> dict[str, Any]:
    lines = [finding.message, finding.fix, *command_lines(finding.remedies)]
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "level": LEVELS[finding.status],
        "message": {"text": "\n".join(line for line in lines if line)},
        "locations": [_location(finding, file)],
        # GitHub identifies results by the first one; the second belongs to envdoctor.
        "partialFingerprints": {"primaryLocationLineHash": fingerprint, "envdoctor/v1": fingerprint},
        "properties": {"cause": finding.cause, "evidence": msgspec.to_builtins(finding.evidence)},
    }
    return result | ({"ruleIndex": rules.index(finding.id)} if finding.id in rules else {})


def _location(finding: Finding, file: str) -> dict[str, Any]:
    """The facts of a finding, and the file: GitHub shows a result only at a line of a file."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(os.fsencode(finding.file or file))},
            "region": {"startLine": max(finding.line, 1)},
        },
        "logicalLocations": [
            {"name": e.fact.rsplit(".", 1)[-1], "fullyQualifiedName": e.fact, "kind": "member"}
            for e in finding.evidence
        ],
    }


def _fingerprint(finding: Finding) -> str:
    """A fingerprint of rule and fact names. It does not depend on the values of the facts."""
    facts = "\n".join([finding.id, finding.cause, *(e.fact for e in finding.evidence)])
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _invocation(
    command: str,
    result: CommandResult | None,
    error: EnvdoctorError | None,
    findings: tuple[Finding, ...],
    notices: Sequence[Problem],
) -> dict[str, Any]:
    notifications = [
        {"level": "note", "message": {"text": finding.message}, "associatedRule": {"id": finding.id}}
        for finding in findings
        if finding.status == "unknown"
    ]
    notifications += [
        {"level": "note", "message": {"text": f"{each.title}: {each.message}"}, "descriptor": {"id": each.kind}}
        for each in notices
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
        "exitCode": exit_code(result, error),
        "commandLine": f"envdoctor {command}",
        "toolExecutionNotifications": notifications,
    }
