"""Rules made from a table: pairs of packages that do not work together although no metadata says so.

One row of knowledge/breaks.toml is one rule: which versions of which packages, what happens, why, and what fixes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Literal

from envdoctor.core.records import Machine, Record, Stack
from envdoctor.knowledge.tables import load_table
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.rules.facts import first_in_use
from envdoctor.rules.registry import Check, Problem, rule
from envdoctor.rules.requirements import version_evidence, versions_of


class KnownBreak(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Versions that do not work together. `{trl}` in a text stands for the installed version of trl."""

    id: str
    name: str  # states the problem, as a rule's function name does
    title: str  # the same as a sentence without its full stop
    cause: str
    status: Literal["error", "warning", "info"]
    when: tuple[str, ...]  # "trl <0.28": all must be installed so
    unless: tuple[str, ...] = ()  # any of them installed so, and there is no problem
    beside: tuple[str, ...] = ()  # one of these must be there, too: who would be hurt
    python: str = ""  # "<3.11": only there
    problem: str
    why: str
    fix: str
    commands: tuple[str, ...] = ()
    url: str
    source: str
    date: str


def known_breaks() -> tuple[KnownBreak, ...]:
    """All rows."""
    return load_table("breaks.toml", tuple[KnownBreak, ...], "break")


def _holds(condition: str, versions: dict[str, str]) -> bool:
    name, _, specifier = condition.partition(" ")
    if name not in versions:
        return False
    return not specifier or satisfies(public_part(versions[name]), specifier.replace(" ", "")) is True


def make_check(row: KnownBreak) -> Check:
    """The rule of a row."""
    names = [condition.partition(" ")[0] for condition in row.when]

    def check(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
        versions = versions_of(stack)
        if row.beside and not first_in_use(stack, *row.beside):
            return
        if row.python and satisfies(stack.python_version.value or "", row.python) is False:
            return
        if not all(_holds(each, versions) for each in row.when) or any(_holds(each, versions) for each in row.unless):
            return
        problem, fix = (text.format_map(versions) for text in (row.problem, row.fix))
        yield Problem(row.status, problem, version_evidence(stack, *names), fix, row.commands)

    check.__name__ = check.__qualname__ = row.name
    check.__doc__ = _documentation(row)
    return check


def _documentation(row: KnownBreak) -> str:
    found = "Found where " + " and ".join(row.when) + (f", unless {' or '.join(row.unless)}" if row.unless else "")
    found += f", beside {', '.join(row.beside[:-1])} or {row.beside[-1]}" if row.beside else ""
    found += f", on Python {row.python}" if row.python else ""
    fix = f"Fixed so: {row.fix}" if "{" not in row.fix else f"Fixed by: {' or '.join(row.commands)}"
    references = "\n".join(
        dict.fromkeys((row.url, *(part for part in row.source.split() if part.startswith("http"))))
    )
    paragraphs = [fill(part, 116) for part in (f"{row.title}.", f"{row.why} {found}.", fix)]
    return "\n\n".join([*paragraphs, f"References:\n{references}"])


for _row in known_breaks():
    rule(_row.id, kind="environment", severity=_row.status, cause=_row.cause, url=_row.url)(make_check(_row))
