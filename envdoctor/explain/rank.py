"""From what was seen in a text, and what is known of machine and stack, to causes: the most likely first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import BinaryIO

from envdoctor.core.records import Finding, Machine, Record, Stack
from envdoctor.explain.fill import distribution_of, fill, values_of
from envdoctor.explain.refute import refutation
from envdoctor.explain.scan import Hit, Scan, scan
from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import Symptom, symptom_table

LINES_SHOWN = 6
QUIET = re.compile(  # NCCL says WARN where others say ERROR
    r"\b(?:WARNING|(?<!NCCL )WARN|INFO|DEBUG|\w+Warning|deprecated)\b|^\W*[Ww]arning\b|\b[Ww]arning:"
)
QUIET_FACTOR = 0.85  # a line that calls itself a warning loses against an equally telling error
CONSEQUENCE_FACTOR = 0.5  # of a cause that a symptom outranks
REFUTED_FACTOR = 0.3  # of a cause that the facts speak against
FINDING_WEIGHTS = {"error": 0.6, "warning": 0.3}  # of a finding in favour of its cause
HIGHEST = 0.99


class Cause(Record, frozen=True, kw_only=True):
    """One possible cause, with what speaks for it and what mends it."""

    cause: str  # a slug
    title: str
    confidence: float  # 0 to 1
    lines: tuple[str, ...]  # that speak for it
    line_numbers: tuple[int, ...]
    findings: tuple[str, ...]  # rules that say the same of the machine or the stack
    against: str  # what the facts say against it
    fix: str
    commands: tuple[str, ...]
    check: str  # how to be sure
    url: str


class Explained(Record, frozen=True, kw_only=True):
    """The causes of a text, best first; none where nothing in it is known."""

    causes: tuple[Cause, ...]
    lines: int
    size: int  # bytes
    facts: tuple[str, ...]  # what was taken from the text or the machine: "torch 2.8.0"


def explain(
    stream: BinaryIO,
    machine: Machine | None = None,
    stack: Stack | None = None,
) -> Explained:
    """Read a text to its end and name its causes. What is known of machine and stack raises or lowers them.

    What is not given is taken from the text, where it holds a report; but only facts that were given, and so are of
    this very machine, speak against a cause.
    """
    from envdoctor.reports import parse_report

    table = symptom_table()
    seen = scan(stream, table)
    pasted = parse_report(seen.excerpt)
    given = bool(machine or stack or pasted.kinds)
    nothing = parse_report("")
    against = {
        symptom.cause: refutation(symptom.cause, machine or nothing.machine, stack or nothing.stack)
        for symptom in table.symptoms
    }
    machine = machine or pasted.machine
    stack = stack or pasted.stack
    findings = _telling_findings(machine, stack) if given else []
    told = told_symptoms(seen, table.symptoms)
    values = values_of(machine, stack)
    found = [
        _cause(slug, told=told, findings=findings, seen=seen, against=against.get(slug, ""), values=values)
        for slug in dict.fromkeys([*(s.cause for s in told), *(f.cause for f in findings)])
    ]
    ranked = sorted(found, key=lambda cause: -cause.confidence)
    return Explained(causes=tuple(ranked), lines=seen.lines, size=seen.size, facts=tuple(_facts(values)))


def _telling_findings(machine: Machine, stack: Stack) -> list[Finding]:
    """What the rules say of the facts; not asked where a text holds no report: importing them takes time."""
    from envdoctor.rules import evaluate

    return [finding for finding in evaluate(machine, stack) if finding.status in FINDING_WEIGHTS]


def told_symptoms(seen: Scan, symptoms: Iterable[Symptom]) -> list[Symptom]:
    """The symptoms that were seen and whose signals allow them, the weightiest first."""
    told = [
        symptom
        for symptom in symptoms
        if symptom.id in seen.symptoms
        and all(signal in seen.signals for signal in symptom.when)
        and not any(signal in seen.signals for signal in symptom.unless)
    ]
    return sorted(told, key=lambda symptom: -symptom.weight)


def _cause(
    slug: str,
    *,
    told: list[Symptom],
    findings: list[Finding],
    seen: Scan,
    against: str,
    values: dict[str, str],
) -> Cause:
    mine = [symptom for symptom in told if symptom.cause == slug]
    agreeing = [finding for finding in findings if finding.cause == slug]
    hits = [hit for symptom in mine for hit in seen.symptoms[symptom.id]]
    text = causes()[slug]
    known = values | _groups(hits)
    best = next((symptom for symptom in mine if symptom.fix), None)
    from_rule = agreeing[0] if agreeing and not best else None
    fix = best.fix if best else from_rule.fix if from_rule else text.fix
    commands = (best.commands if best else from_rule.commands if from_rule else ()) or text.commands
    shown = sorted({hit.line: hit for hit in hits}.values(), key=lambda hit: hit.line)[:LINES_SHOWN]
    return Cause(
        cause=slug,
        title=text.title,
        confidence=round(_confidence(slug, mine, agreeing, told, seen) * (REFUTED_FACTOR if against else 1), 2),
        lines=tuple(hit.text for hit in shown),
        line_numbers=tuple(hit.line for hit in shown),
        findings=tuple(f"{finding.id} {finding.message}" for finding in agreeing),
        against=against,
        fix=fill(fix, known),
        commands=tuple(fill(command, known) for command in commands),
        check=fill((best.check if best else "") or text.check, known),
        url=next((symptom.url for symptom in mine if symptom.url), "") or text.url,
    )


def _confidence(slug: str, mine: list[Symptom], agreeing: list[Finding], told: list[Symptom], seen: Scan) -> float:
    """That at least one of what speaks for it is right, halved for each kind of line that makes it a consequence."""
    doubt = 1.0
    for symptom in mine:
        doubt *= 1 - symptom.weight / 100 * _loudness(seen.symptoms[symptom.id])
    if agreeing:
        doubt *= 1 - max(FINDING_WEIGHTS[finding.status] for finding in agreeing)
    outranked = any(slug in symptom.outranks for symptom in told)
    return min(1 - doubt, HIGHEST) * (CONSEQUENCE_FACTOR if outranked else 1)


def _loudness(hits: tuple[Hit, ...]) -> float:
    return QUIET_FACTOR if all(QUIET.search(hit.text) for hit in hits) else 1.0


def _groups(hits: list[Hit]) -> dict[str, str]:
    """The named groups of all hits; the first, which are of the weightiest symptom, win."""
    groups = {name: value for hit in reversed(hits) for name, value in hit.groups.items()}
    return groups | ({"library": distribution_of(groups["library"])} if "library" in groups else {})


def _facts(values: dict[str, str]) -> list[str]:
    shown = ("gpu", "driver", "torch", "cuda", "python", "vllm", "trl", "transformers")
    return [f"{name} {values[name]}" for name in shown if name in values]
