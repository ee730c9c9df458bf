"""Results as GitHub workflow commands, so that they stand as annotations at a run.

Syntax and escaping: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
and `escapeData`, `escapeProperty` in https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Finding
from envdoctor.core.results import CommandResult
from envdoctor.output.remarks import remarks

Level = Literal["error", "warning", "notice"]
LEVELS: dict[str, Level] = {"error": "error", "crashed": "error", "warning": "warning", "info": "notice"}
ALIKE = 20  # messages that one annotation holds


def to_github(command: str, answer: CommandResult | None, error: EnvdoctorError | None = None) -> str:
    """The annotations of a command's result, a line each; empty where there is nothing to say."""
    if error:
        return _error(command, error)
    data = answer.data if answer else None
    return "\n".join(line for part in PARTS for line in part(data))


def annotation(level: Level, title: str, *paragraphs: str, place: str = "") -> str:
    """One workflow command: `::error title=DRV001 driver-differs::message`; `place` as `file=F,line=N,`."""
    message = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    return f"::{level} {place}title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _error(command: str, error: EnvdoctorError) -> str:
    expected = f"expected: {error.expected}" if error.expected else ""
    own = annotation("error", f"envdoctor {command}", error.message, expected, _hint(error.hint))
    return "\n".join([own, *(_cause("notice", cause) for cause in error.causes)])


def _hint(hint: str) -> str:
    return f"hint: {hint}" if hint else ""


def _findings(data: Any) -> Iterator[str]:
    """Each finding that says something; those that could not judge in one notice."""
    checked = getattr(data, "checked", data)  # quickstart's check
    findings: tuple[Finding, ...] = getattr(checked, "findings", ())
    for finding in findings:
        if finding.status in LEVELS:
            place = f"file={_property(data.name)},line={finding.line}," if finding.line else ""
            yield _finding(finding, place)
    if unknown := [finding for finding in findings if finding.status == "unknown"]:
        yield annotation("notice", "envdoctor could not tell", *(f"{f.id}: {f.message}" for f in unknown))


def _finding(finding: Finding, place: str = "") -> str:
    from envdoctor.rules import RULES

    rule = RULES.get(finding.id)
    name = rule.title.replace(" ", "-") if rule else finding.cause
    return annotation(
        LEVELS[finding.status],
        finding.id if finding.id.endswith(name) else f"{finding.id} {name}",
        finding.message,
        finding.fix,
        *(f"$ {command}" for command in finding.commands),
        *(f"{e.fact}: {e.value} ({e.source})" for e in finding.evidence),
        finding.url,
        place=place,
    )


def _causes(data: Any) -> Iterator[str]:
    """What `explain` found: the most likely cause as an error, the others as notices."""
    for number, cause in enumerate(getattr(data, "causes", ())):
        yield _cause("notice" if number else "error", cause)


def _cause(level: Level, cause: Any) -> str:
    commands = (f"$ {command}" for command in cause.commands)
    return annotation(level, f"{cause.cause} ({cause.confidence:.0%})", *cause.lines, cause.fix, *commands, cause.url)


def _resolved(data: Any) -> Iterator[str]:
    """Profiles without a lock, and those that do not fit the machine that was asked for."""
    for result in getattr(data, "results", ()) if type(data).__name__ == "ResolveResult" else ():
        for finding in result.findings:
            yield _finding(finding)
        if result.error:
            yield annotation("error", f"{result.profile} does not resolve", result.error, _hint(result.hint))
        elif result.fits is False:
            title = f"{result.profile} does not fit {result.machine}"
            yield annotation("warning", title, *result.violated)


def _locks(data: Any) -> Iterator[str]:
    """Locks that are missing, or that do not fit their profile or the field, each at its file."""
    for result in getattr(data, "results", ()) if type(data).__name__ == "LockResult" else ():
        if result.outcome in ("incoherent", "missing", "failed"):
            title = f"{result.profile} is {result.outcome}, {result.platform}, Python {result.python}"
            place = f"file={_property(result.file)}," if result.file and result.outcome == "incoherent" else ""
            yield annotation("error", title, *result.problems, place=place)


def _matrix(data: Any) -> Iterator[str]:
    """Profiles that fit a machine and have no lock for it; those that lack what only the PyTorch index has."""
    for unusable in getattr(data, "unusable", ()):
        yield annotation("error", "a profile cannot be used", unusable)
    for cell in getattr(data, "cells", ()):
        if cell.fits and cell.locked != "locked":
            level: Level = "error" if cell.locked == "not locked" else "notice"
            yield annotation(level, f"{cell.profile} on {cell.machine}: {cell.locked}", *cell.why)


def _planned(data: Any) -> Iterator[str]:
    """A plan for a machine that does not meet the profile's conditions."""
    if type(data).__name__ == "MemoryPlan" and data.fits is False:
        changes = (" ".join(f"{key}={value}" for key, value in remedy.set.items()) for remedy in data.remedies)
        yield annotation("warning", f"{data.model or data.recipe} does not fit {data.gpu}", ", ".join(changes))
    elif getattr(data, "fits", None) is False:
        yield annotation("warning", f"{data.profile} does not fit this machine", *data.violated)


def _remarks(data: Any) -> Iterator[str]:
    """What probes, benchmarks and scans say: GitHub shows ten annotations of a level, so those alike are one."""
    told: dict[tuple[Level, str], list[str]] = {}
    for remark in remarks(data):
        told.setdefault((remark.level, remark.title), []).append(remark.message)
    for (level, title), messages in told.items():
        more = [f"and {len(messages) - ALIKE} more"] if len(messages) > ALIKE else []
        yield annotation(level, title, *messages[:ALIKE], *more)


PARTS: tuple[Callable[[Any], Iterable[str]], ...] = (
    _findings, _causes, _resolved, _locks, _matrix, _planned, _remarks,
)  # fmt: skip
