"""GitHub annotations: results as workflow commands.

Syntax and escaping: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
and `escapeData`, `escapeProperty` in https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Finding
from envdoctor.core.remedies import command_lines
from envdoctor.core.results import CommandResult
from envdoctor.output.problems import find_problems

Level = Literal["error", "warning", "notice"]
LEVELS: dict[str, Level] = {"error": "error", "crashed": "error", "warning": "warning", "info": "notice"}
MAX_MESSAGES = 20  # per annotation


def to_github(command: str, result: CommandResult | None, error: EnvdoctorError | None = None) -> str:
    """The annotations of a command's result, one per line; empty if there is nothing to report."""
    if error:
        expected = f"expected: {error.expected}" if error.expected else ""
        message = annotation("error", f"envdoctor {command}", error.message, expected, _hint(error.hint))
        return "\n".join([message, *(_cause("notice", cause) for cause in error.causes)])
    data = result.data if result else None
    return "\n".join(line for annotate in ANNOTATORS for line in annotate(data))


def annotation(level: Level, title: str, *paragraphs: str, location: str = "") -> str:
    """One workflow command: `::error title=DRV001 driver-differs::message`; `location` is `file=F,line=N,`."""
    message = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    return f"::{level} {location}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _hint(hint: str) -> str:
    return f"hint: {hint}" if hint else ""


def _findings(data: Any) -> Iterator[str]:
    """Each finding, and one notice with all rules that could not be evaluated."""
    checked = getattr(data, "checked", data)  # of quickstart
    findings: tuple[Finding, ...] = getattr(checked, "findings", ())
    for finding in findings:
        if finding.status in LEVELS:
            file = finding.file or getattr(data, "name", "")
            yield _finding(finding, f"file={_property(file)},line={finding.line}," if finding.line else "")
    if unknown := [finding for finding in findings if finding.status == "unknown"]:
        yield annotation("notice", "rules not evaluated", *(f"{f.id}: {f.message}" for f in unknown))


def _finding(finding: Finding, location: str = "") -> str:
    from envdoctor.output.sarif import rules_of_audit
    from envdoctor.rules import RULES

    audit_rule = rules_of_audit([finding]).get(finding.id)
    rule = RULES.get(finding.id) or audit_rule
    name = rule.name.replace("_", "-") if rule else finding.cause
    return annotation(
        LEVELS[finding.status],
        finding.id if finding.id.endswith(name) else f"{finding.id} {name}",
        finding.message,
        finding.fix,
        *command_lines(finding.remedies),
        *(f"{e.fact}: {e.value} ({e.source})" for e in finding.evidence),
        audit_rule.documentation if audit_rule else "",
        finding.url,
        location=location,
    )


def _causes(data: Any) -> Iterator[str]:
    """The causes of `explain`: the most likely one as an error, the others as notices."""
    for number, cause in enumerate(getattr(data, "causes", ())):
        yield _cause("notice" if number else "error", cause)


def _cause(level: Level, cause: Any) -> str:
    commands = command_lines(cause.remedies)
    return annotation(level, f"{cause.cause} ({cause.confidence:.0%})", *cause.lines, cause.fix, *commands, cause.url)


def _resolutions(data: Any) -> Iterator[str]:
    """Profiles that do not resolve, and profiles that do not fit the requested machine."""
    for result in getattr(data, "results", ()) if type(data).__name__ == "ResolveResult" else ():
        for finding in result.findings:
            yield _finding(finding)
        if result.error:
            yield annotation("error", f"{result.profile} does not resolve", result.error, _hint(result.hint))
        elif result.fits is False:
            title = f"{result.profile} does not fit {result.machine}"
            yield annotation("warning", title, *result.violated)


def _locks(data: Any) -> Iterator[str]:
    """Missing locks, and locks that conflict with their profile or the rules, each at its file."""
    for result in getattr(data, "results", ()) if type(data).__name__ == "LockResult" else ():
        if result.outcome in ("incoherent", "missing", "failed", "unreachable"):
            title = f"{result.profile} is {result.outcome}, {result.platform}, Python {result.python}"
            location = f"file={_property(result.file)}," if result.file and result.outcome == "incoherent" else ""
            yield annotation("error", title, *result.problems, location=location)


def _matrix(data: Any) -> Iterator[str]:
    """Unusable profiles, and profiles that fit a machine without a complete lock for it."""
    for unusable in getattr(data, "unusable", ()):
        yield annotation("error", "unusable profile", unusable)
    for cell in getattr(data, "cells", ()):
        if cell.fits and cell.locked != "locked":
            level: Level = "error" if cell.locked == "not locked" else "notice"
            yield annotation(level, f"{cell.profile} on {cell.machine}: {cell.locked}", *cell.why)


def _plans(data: Any) -> Iterator[str]:
    """Install plans and memory plans that do not fit the machine."""
    if type(data).__name__ == "MemoryPlan" and data.fits is False:
        changes = (" ".join(f"{key}={value}" for key, value in remedy.set.items()) for remedy in data.remedies)
        yield annotation("warning", f"{data.model or data.recipe} does not fit {data.gpu}", ", ".join(changes))
    elif getattr(data, "fits", None) is False:
        yield annotation("warning", f"{data.profile} does not fit this machine", *data.violated)


def _problems(data: Any) -> Iterator[str]:
    """Problems of probes, benchmarks and scans, combined by title: GitHub shows ten annotations of each level."""
    messages: dict[tuple[Level, str], list[str]] = {}
    for problem in find_problems(data):
        messages.setdefault((problem.level, problem.title), []).append(problem.message)
    for (level, title), texts in messages.items():
        more = [f"and {len(texts) - MAX_MESSAGES} more"] if len(texts) > MAX_MESSAGES else []
        yield annotation(level, title, *texts[:MAX_MESSAGES], *more)


ANNOTATORS: tuple[Callable[[Any], Iterable[str]], ...] = (
    _findings, _causes, _resolutions, _locks, _matrix, _plans, _problems,
)  # fmt: skip
