"""The shape of a check of a guide, and what it says.

A check is one function of a followed guide, whose name states the problem and whose docstring is its documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from envdoctor.core.records import Evidence, Finding, Status
from envdoctor.manifests.case import Case


class Problem(NamedTuple):
    """One problem of a guide. `cause` and `url` replace those of the check where they are given."""

    line: int
    status: Status
    message: str
    fix: str
    commands: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    cause: str = ""
    url: str = ""


Look = Callable[[Case], Iterator[Problem]]


class Check(NamedTuple):
    """A registered check."""

    id: str
    cause: str
    url: str
    look: Look

    @property
    def title(self) -> str:
        """The problem in words."""
        return self.look.__name__.replace("_", " ")


CHECKS: dict[str, Check] = {}


def check(identifier: str, *, cause: str, url: str = "") -> Callable[[Look], Look]:
    """Register a function as the check `identifier` for a cause of the taxonomy."""

    def register(look: Look) -> Look:
        if identifier in CHECKS:
            raise ValueError(f"check {identifier} exists twice")
        CHECKS[identifier] = Check(identifier, cause, url, look)
        return look

    return register


def run_checks(case: Case) -> list[Finding]:
    """All findings in the order of the lines; a check that raises is a finding `crashed`, and the others still
    run.
    """
    found = [finding for each in CHECKS.values() for finding in _apply(each, case)]
    seen = {(each.line, each.cause, each.message): each for each in reversed(found)}
    return sorted(seen.values(), key=lambda each: (each.line, each.id))


def _apply(each: Check, case: Case) -> list[Finding]:
    try:
        return [
            Finding(
                each.id,
                p.cause or each.cause,
                p.status,
                p.message,
                p.evidence,
                p.fix,
                p.commands,
                p.url or each.url,
                p.line,
            )
            for p in each.look(case)
        ]
    except Exception as error:
        return [Finding(each.id, each.cause, "crashed", f"the check failed: {type(error).__name__}: {error}")]


def line_of(case: Case, start: int, text: str) -> int:
    """The line of a word of a command that goes over several lines."""
    lines = case.guide.lines
    bare = text.strip()
    for number in range(max(start, 1), min(start + 40, len(lines) + 1)):
        if bare and bare in lines[number - 1]:
            return number
        if number > start and not lines[number - 1].strip():
            break
    return start


def said(case: Case, what: str, value: str, line: int) -> Evidence:
    """Something that stands in the guide, as evidence."""
    return Evidence(what, value, f"{case.guide.name}, line {line}")


def fact(what: str, value: str, source: str, date: str = "") -> Evidence:
    """A row of a table, as evidence."""
    return Evidence(what, value, f"{source}{f', {date}' if date else ''}")
