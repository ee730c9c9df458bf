"""Ranks the causes of an error text by its symptoms and by the facts of the machine and the environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import BinaryIO

import msgspec

from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.core.remedies import Remedy, for_environment
from envdoctor.explain.calibration import UNDECIDED, Rank, confidence_of
from envdoctor.explain.collectives import collective_summary
from envdoctor.explain.described import described_symptom
from envdoctor.explain.import_failures import import_crash, import_failure
from envdoctor.explain.missing_modules import missing_module, requested_packages
from envdoctor.explain.outcome import (
    FALLBACK_LINE,
    WARNING_LINE,
    ends_with_success,
    fails_elsewhere,
    is_requirement,
    states_no_failure,
    states_requirements,
    works_at_end,
)
from envdoctor.explain.placeholders import (
    bounded_requirements,
    changes_something,
    fill_placeholders,
    fill_remedies,
    placeholder_values,
    text_values,
)
from envdoctor.explain.refute import CONTRADICTIONS, is_below_its_bounds, refutation
from envdoctor.explain.scan import Scan, scan
from envdoctor.explain.searches import Hit
from envdoctor.explain.similar import LONGEST_TEXT, similar_symptoms
from envdoctor.explain.stated_needs import stated_need
from envdoctor.explain.systems import System, check_on, questions_on, remedies_on, system_of
from envdoctor.knowledge.causes import Question, causes
from envdoctor.knowledge.symptoms import Symptom, symptom_table

# Findings on a machine and an environment, with exact versions in their remedies.
Pin = Callable[[Machine, Stack | None, Sequence[Finding]], list[Finding]]
LINES_SHOWN = 6
WARNING_FACTOR = 0.85  # for symptoms that occur only in warnings
FALLBACK_FACTOR = 0.3  # for lines that state a fall-back, next to an error
CONSEQUENCE_FACTOR = 0.5  # for causes that a symptom outranks
REFUTED_FACTOR = 0.3  # for causes that a fact contradicts
REQUIREMENT_FACTOR = 0.29  # for lines about what a library needs, in a text that describes no run
WORKING_FACTOR = 0.3  # for lines in the log of a program that worked after them
FINDING_WEIGHTS = {"error": 0.6, "warning": 0.3}  # added score of a finding for its cause
MAX_SCORE = 0.99
# They have the same messages; the facts of the GPU and of torch distinguish them.
ARCHITECTURE_CAUSES = frozenset({"gpu-arch-not-in-build", "gpu-arch-dropped"})
# Their message next to a torch with code for the GPU: the kernel is one of another library.
IN_AN_EXTENSION = Symptom(
    id="no-code-next-to-a-torch-with-it", cause="ext-arch-not-in-build", pattern="", weight=60, sample=""
)


class Cause(Record, frozen=True, kw_only=True):
    """One possible cause, with its evidence and its fix."""

    cause: str  # a slug
    title: str
    score: float  # 0 to 1, ranks the causes
    confidence: float  # 0 to 1: the measured share that was right
    undecided: bool = False  # its lines occur with other causes too
    similar: bool = False  # no pattern matches the text; it has the words of a message or a description of this cause
    lines: tuple[str, ...]  # lines of the text that indicate it
    line_numbers: tuple[int, ...]
    findings: tuple[str, ...]  # findings on the machine or the environment with this cause
    against: str  # a fact that contradicts it
    fix: str
    remedies: tuple[Remedy, ...]  # several are alternatives
    check: str  # a command that verifies it
    url: str
    find_out: tuple[Question, ...] = ()  # what decides, if the text does not


class Explanation(Record, frozen=True, kw_only=True):
    """The causes of a text, most likely first; none if no symptom was found."""

    causes: tuple[Cause, ...]  # in the environment or the machine
    program_errors: tuple[Cause, ...] = ()  # in the program, its data or its settings
    lines: int
    size: int  # bytes
    facts: tuple[str, ...]  # facts of the text or the machine: "torch 2.8.0"
    unread: str = ""  # the part of a large text that was not read; line numbers do not count it


def explain(
    stream: BinaryIO, machine: Machine | None = None, stack: Stack | None = None, *, pin: Pin | None = None
) -> Explanation:
    """Read a text and rank its causes. `pin` selects exact versions for the remedies of findings.

    The facts of the machine and the environment change the score. If they are not given, they are read from a
    report in the text. Only facts that were given can contradict a cause.
    """
    from envdoctor.reports import parse_report

    table = symptom_table()
    scanned = scan(stream, table)
    pasted = parse_report(scanned.excerpt)
    has_facts = bool(machine or stack or pasted.kinds)
    unknown_machine, unknown_stack = _unknown_facts()
    against = {
        cause: refutation(cause, machine or unknown_machine, stack or unknown_stack) for cause in CONTRADICTIONS
    }
    python = (stack.python.value or "") if stack else ""  # a pasted report names the interpreter of another machine
    examined = [(machine or each.machine, stack or each.stack) for each in (pasted, *pasted.later)]
    every = [finding for each in examined for finding in _error_findings(*each)] if has_facts else []
    findings = list({(finding.id, finding.message): finding for finding in reversed(every)}.values())[::-1]
    is_of_text = machine is None and stack is None and has_facts
    system = system_of(scanned.signals) if machine is None and stack is None else "linux"
    machine, stack = examined[0]
    derived = _derived_symptoms(scanned, placeholder_values(machine, stack))
    symptoms = matching_symptoms(scanned, table.symptoms)
    if not derived and not symptoms:
        derived = stated_need(scanned.excerpt)
    if not derived and not findings and all(symptom.undecided for symptom in symptoms):
        derived = import_failure(scanned.excerpt)
    if not derived and not symptoms:
        derived = missing_module(scanned.excerpt) or import_crash(scanned.excerpt)
    is_unknown = not (symptoms or derived or findings)
    is_short = scanned.size <= LONGEST_TEXT
    is_sound = any(test(scanned.excerpt) for test in (states_no_failure, ends_with_success, is_requirement))
    if is_unknown and is_short and not pasted.kinds and not is_sound:
        derived = similar_symptoms(scanned.excerpt, _excluded_causes(scanned, table.symptoms))
    if is_unknown and not derived and not states_no_failure(scanned.excerpt):
        derived = described_symptom(scanned.excerpt)
    no_code = next((hit for symptom in symptoms for hit in _hits_without_code(symptom, scanned)), None)
    if no_code and is_of_text and (code := _code_for_every_gpu(examined)):
        against |= dict.fromkeys(ARCHITECTURE_CAUSES, code)
        derived |= {IN_AN_EXTENSION: no_code}
    scanned = msgspec.structs.replace(
        scanned, symptoms=scanned.symptoms | {symptom.id: (hit,) for symptom, hit in derived.items()}
    )
    symptoms = sorted((*symptoms, *derived), key=lambda symptom: -symptom.weight)
    if pin:
        named = {symptom.cause for symptom in symptoms}
        pinned = pin(machine, stack, [each for each in findings if each.cause in named])
        findings = [*pinned, *(each for each in findings if each.cause not in named)]
    values = placeholder_values(machine, stack)
    if summary := collective_summary(scanned.watchdog):
        values["collective"] = summary
    # Next to a fault of the program the causes that it excludes are none: `torch==${VERSION}` is on no index.
    excluded = {slug for each in symptoms if causes()[each.cause].program_error for slug in each.outranks}
    found = [
        _cause(
            slug,
            symptoms=symptoms,
            findings=findings,
            scanned=scanned,
            against=against.get(slug, ""),
            values=values,
            python=python,
            similar=is_unknown,
            system=system,
        )
        for slug in dict.fromkeys([*(s.cause for s in symptoms), *(f.cause for f in findings)])
        if slug not in excluded
    ]
    ranked = _with_confidence(sorted(found, key=place_of))
    return Explanation(
        causes=tuple(cause for cause in ranked if not causes()[cause.cause].program_error),
        program_errors=tuple(cause for cause in ranked if causes()[cause.cause].program_error),
        lines=scanned.lines,
        size=scanned.size,
        facts=tuple(_facts(values)),
        unread=scanned.unread,
    )


@cache
def _unknown_facts() -> tuple[Machine, Stack]:
    """A machine and an environment of which nothing is known."""
    from envdoctor.reports import parse_report

    empty = parse_report("")
    return empty.machine, empty.stack


def _error_findings(machine: Machine, stack: Stack) -> list[Finding]:
    """The errors and warnings of the rules, which are imported here because the import takes time."""
    from envdoctor.rules import evaluate

    return [finding for finding in evaluate(machine, stack) if finding.status in FINDING_WEIGHTS]


def _hits_without_code(symptom: Symptom, scanned: Scan) -> Iterator[Hit]:
    """The lines about a kernel without code for the GPU, which torch and its extensions print alike."""
    if symptom.cause in ARCHITECTURE_CAUSES:
        yield from (hit for hit in scanned.symptoms[symptom.id] if "no kernel image" in hit.text)


def _code_for_every_gpu(examined: Sequence[tuple[Machine, Stack]]) -> str:
    """The fact that torch has code for every GPU; empty if it has not, or if one of the two is unknown."""
    from envdoctor.rules.torch_build import has_code_for_every_gpu  # takes time to import

    if not all(has_code_for_every_gpu(*each) for each in examined):
        return ""
    torch = examined[0][1].torch.value
    return f"torch {torch.version.value if torch else ''} has code for every GPU of the report".replace("  ", " ")


def _derived_symptoms(scanned: Scan, versions: dict[str, str]) -> dict[Symptom, Hit]:
    """Symptoms from the tables of releases and of Python, which are read only for an error about a name."""
    if not scanned.unknown_members:
        return {}
    from envdoctor.explain.name_errors import name_error_symptoms
    from envdoctor.explain.standard_names import standard_name_symptoms

    members = scanned.unknown_members
    return name_error_symptoms(members, versions) | standard_name_symptoms(members)


def matching_symptoms(scanned: Scan, symptoms: Iterable[Symptom]) -> list[Symptom]:
    """The symptoms of a text whose `when` and `unless` signals match, highest weight first."""
    matching = [
        symptom
        for symptom in symptoms
        if symptom.id in scanned.symptoms
        and not all(is_below_its_bounds(hit.groups) for hit in scanned.symptoms[symptom.id])
        and all(signal in scanned.signals for signal in symptom.when)
        and not any(signal in scanned.signals for signal in symptom.unless)
    ]
    return sorted(matching, key=lambda symptom: -symptom.weight)


def _excluded_causes(scanned: Scan, symptoms: Iterable[Symptom]) -> frozenset[str]:
    """The causes of symptoms in the text that a signal of the text excludes."""
    return frozenset(
        symptom.cause
        for symptom in symptoms
        if symptom.id in scanned.symptoms and any(signal in scanned.signals for signal in symptom.unless)
    )


def _cause(
    slug: str,
    *,
    symptoms: list[Symptom],
    findings: list[Finding],
    scanned: Scan,
    against: str,
    values: dict[str, str],
    python: str,
    similar: bool,
    system: System,
) -> Cause:
    """One cause. Its fix is that of the first symptom with a fix, else of the first finding, else of causes.toml.

    A finding that changes something has precedence over a symptom that only examines: it has this machine's facts.
    """
    matching = [symptom for symptom in symptoms if symptom.cause == slug]
    agreeing = [finding for finding in findings if finding.cause == slug]
    hits = [hit for symptom in matching for hit in scanned.symptoms[symptom.id]]
    text = causes()[slug]
    known = values | text_values(_groups(hits), values)
    known["bounded_requirements"] = bounded_requirements(_requirements(matching, scanned))
    known["requested"] = requested_packages(hit.text for hit in hits)
    best = next((symptom for symptom in matching if symptom.fix), None)
    notation = best.remedies if best and best.remedies is not None else text.remedies
    remedies = fill_remedies(notation, known, slug)
    finding = next((each for each in agreeing if each.remedies), agreeing[0] if agreeing else None)
    if finding and (not best or (changes_something(finding.remedies) and not changes_something(remedies))):
        fix, remedies = finding.fix, finding.remedies
    else:
        fix = fill_placeholders(best.fix if best else text.fix, known)
    outranked = any(slug in symptom.outranks for symptom in symptoms) or (
        slug in ARCHITECTURE_CAUSES
        and not agreeing
        and any(finding.cause in ARCHITECTURE_CAUSES and finding.status == "error" for finding in findings)
    )
    own_check = best.check if best else matching[0].check if matching else ""
    questions = tuple(each for symptom in matching for each in symptom.find_out)
    shown = sorted({hit.line: hit for hit in hits}.values(), key=lambda hit: hit.line)[:LINES_SHOWN]
    return Cause(
        cause=slug,
        title=text.title,
        score=round(_score(matching, agreeing, scanned, outranked) * (REFUTED_FACTOR if against else 1), 2),
        confidence=0.0,
        undecided=not agreeing
        and (all(symptom.undecided for symptom in matching) or any(symptom.never_decided for symptom in matching)),
        similar=similar,
        lines=tuple(hit.text for hit in shown),
        line_numbers=tuple(hit.line for hit in shown),
        findings=tuple(f"{finding.id} {finding.message}" for finding in agreeing),
        against=against,
        fix=fix,
        remedies=remedies_on(system, for_environment(remedies, python)),
        check=fill_placeholders(check_on(system, text, own_check), known),
        url=next((symptom.url for symptom in matching if symptom.url), "") or text.url,
        find_out=tuple(dict.fromkeys(questions_on(system, questions or text.find_out))),
    )


def place_of(cause: Cause) -> tuple[bool, float]:
    """The sort key of the causes: those with a line of the text before those of a finding alone, then the score."""
    return not cause.lines, -cause.score


def rank_of(cause: Cause, number: int) -> Rank:
    """The rank of a cause with this place in the result, from 0.

    A cause without a line is that of a finding on the environment alone, which mostly does not explain the text.
    """
    if number or not cause.lines:
        return "further"
    return "similar" if cause.similar else "undecided" if cause.undecided else "first"


def _with_confidence(ranked: list[Cause]) -> list[Cause]:
    """The causes with their confidence, which falls with the rank. Questions are for an undecided first one."""
    found: list[Cause] = []
    for number, cause in enumerate(ranked):
        confidence = confidence_of(cause.score, rank_of(cause, number))
        confidence = min([confidence, *(each.confidence for each in found)])
        find_out = cause.find_out if number == 0 and confidence < UNDECIDED else ()
        found.append(msgspec.structs.replace(cause, confidence=confidence, find_out=find_out))
    return found


def _score(symptoms: list[Symptom], findings: list[Finding], scanned: Scan, outranked: bool) -> float:
    """The probability that at least one symptom or finding is right; lower if the cause is only a consequence."""
    doubt = 1.0
    for symptom in symptoms:
        only_warnings = all(WARNING_LINE.search(hit.text) for hit in scanned.symptoms[symptom.id])
        doubt *= 1 - symptom.weight / 100 * (WARNING_FACTOR if only_warnings else 1)
    lines = [hit.text for symptom in symptoms for hit in scanned.symptoms[symptom.id]]
    if lines and all(FALLBACK_LINE.search(line) for line in lines) and fails_elsewhere(scanned.excerpt):
        doubt = 1 - (1 - doubt) * FALLBACK_FACTOR
    if symptoms and all(symptom.requirement for symptom in symptoms) and states_requirements(scanned.excerpt):
        doubt = 1 - (1 - doubt) * REQUIREMENT_FACTOR
    if symptoms and works_at_end(scanned.excerpt):
        doubt = 1 - (1 - doubt) * WORKING_FACTOR
    if findings:
        doubt *= 1 - max(FINDING_WEIGHTS[finding.status] for finding in findings)
    return min(1 - doubt, MAX_SCORE) * (CONSEQUENCE_FACTOR if outranked else 1)


def _groups(hits: list[Hit]) -> dict[str, str]:
    """The named groups of all hits. The first hits have precedence: their symptom has the highest weight."""
    return {name: value for hit in reversed(hits) for name, value in hit.groups.items()}


def _requirements(symptoms: list[Symptom], scanned: Scan) -> Iterator[str]:
    """The requirement of each hit: of its own line, because the groups of a hit can be those of the line before."""
    for symptom in symptoms:
        if "(?P<requirement>" in symptom.pattern:
            for hit in scanned.symptoms[symptom.id]:
                in_line = re.search(symptom.pattern, hit.text)
                if found := in_line["requirement"] if in_line else hit.groups.get("requirement"):
                    yield found


def _facts(values: dict[str, str]) -> list[str]:
    shown = ("gpu", "driver", "torch", "cuda", "python", "vllm", "trl", "transformers")
    return [f"{name} {values[name]}" for name in shown if name in values]
