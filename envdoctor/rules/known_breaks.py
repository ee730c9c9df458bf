"""Rules generated from knowledge/breaks.toml: incompatible versions that package metadata permits.

Each row is one rule with the versions, the problem, its reason and its fix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Literal

import msgspec

from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Install, Notation, Remedy, either, remedy_of
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.rules.facts import first_in_use
from envdoctor.rules.registry import Check, Problem, rule
from envdoctor.rules.requirements import version_evidence, versions_of
from envdoctor.rules.torch_install import COMPANIONS, companion_release


class KnownBreak(TableRow, frozen=True, kw_only=True, omit_defaults=True):
    """Incompatible versions. `{trl}` in a text is replaced with the installed version of trl."""

    id: str
    name: str  # the problem, like the name of a rule's function
    title: str  # the problem as a sentence without a full stop
    cause: str
    status: Literal["error", "warning", "info"]
    when: tuple[str, ...]  # "trl <0.28": all of them must be installed
    unless: tuple[str, ...] = ()  # one of them prevents the problem
    only_with: tuple[str, ...] = ()  # one of these affected packages must be installed or in use
    python: str = ""  # "<3.11": only on these versions
    uses: str = ""  # a pattern for the files of projects: without a match, none of their programs meets the problem
    unless_variable: str = ""  # "NAME=value" of an environment variable that prevents the problem
    problem: str
    why: str
    fix: str
    remedies: Notation = ()
    url: str


def known_breaks() -> tuple[KnownBreak, ...]:
    """All rows."""
    return load_table("breaks.toml", tuple[KnownBreak, ...], "break")


def _matches(condition: str, versions: dict[str, str]) -> bool:
    name, _, specifier = condition.partition(" ")
    if name not in versions:
        return False
    return not specifier or satisfies(public_part(versions[name]), specifier.replace(" ", "")) is True


def has_known_break(versions: dict[str, str], *names: str) -> bool:
    """Whether a row with an error or a warning applies to these packages. Notes are about some programs only."""
    serious = (row for row in known_breaks() if row.status != "info")
    rows = (row for row in serious if {each.partition(" ")[0] for each in row.when} >= set(names))
    return any(_applies(row, versions) for row in rows)


def bounds_of_breaks(versions: dict[str, str], name: str) -> Iterator[str]:
    """The limits of a package that is to be installed, by the rows of which the installed ones meet the rest."""
    for row in known_breaks():
        own = [each for each in row.when if each.partition(" ")[0] == name]
        others = [each for each in row.when if each not in own]
        limit = re.fullmatch(r"(>=|<)([\d.]+)", own[0].partition(" ")[2].replace(" ", "")) if len(own) == 1 else None
        is_met = row.status != "info" and all(_matches(each, versions) for each in others)
        if limit and is_met and not any(_matches(each, versions) for each in row.unless):
            yield f"{'<' if limit[1] == '>=' else '>='}{limit[2]}"


def _applies(row: KnownBreak, versions: dict[str, str]) -> bool:
    return all(_matches(each, versions) for each in row.when) and not any(
        _matches(each, versions) for each in row.unless
    )


def make_check(row: KnownBreak) -> Check:
    """The function of a row's rule."""
    names = [condition.partition(" ")[0] for condition in row.when]

    def check(machine: Machine, stack: Stack) -> Iterator[Problem]:
        versions = versions_of(stack)
        variable, _, value = row.unless_variable.partition("=")
        if variable and (machine.environment.value or {}).get(variable) == value:
            return
        if row.only_with and not first_in_use(stack, *row.only_with):
            return
        if row.python and satisfies(stack.python_version.value or "", row.python) is False:
            return
        if not _applies(row, versions):
            return
        problem, fix = (text.format_map(versions) for text in (row.problem, row.fix))
        yield Problem(row.status, problem, version_evidence(stack, *names), fix, _remedies(row, stack))

    check.__name__ = check.__qualname__ = row.name
    check.__doc__ = f"{row.title}."
    check.documentation = partial(_documentation, row)  # type: ignore[attr-defined]  # 4 ms for all rows
    return check


def _remedies(row: KnownBreak, stack: Stack) -> tuple[Remedy, ...]:
    """The remedies of a row. Installed packages with one release for each torch move with it."""
    return tuple(
        remedy_of([_with_companions(step, stack) if isinstance(step, Install) else step for step in remedy.steps])
        for remedy in either(*row.remedies)
    )


def _with_companions(step: Install, stack: Stack) -> Install:
    torch = next((text.removeprefix("torch") for text in step.packages if re.match(r"torch[<>=~]", text)), "")
    releases = releases_in_range("torch", torch) if torch else ()
    if not releases:
        return step
    found = {
        name: companion_release(stack, name, releases[0].version) for name in COMPANIONS if name in versions_of(stack)
    }
    more = tuple(f"{name}=={version}" for name, version in found.items() if version)
    return msgspec.structs.replace(step, packages=(*step.packages, *more))


def _documentation(row: KnownBreak) -> str:
    condition = (
        "Reported for " + " and ".join(row.when) + (f", unless {' or '.join(row.unless)}" if row.unless else "")
    )
    condition += f", with {', '.join(row.only_with[:-1])} or {row.only_with[-1]}" if row.only_with else ""
    condition += f", on Python {row.python}" if row.python else ""
    condition += f", unless `{row.unless_variable}` is set" if row.unless_variable else ""
    commands = " or ".join(" && ".join(each.commands) for each in either(*row.remedies))
    fix = f"Fix: {commands if '{' in row.fix else row.fix}"
    references = "\n".join(
        dict.fromkeys((row.url, *(part for part in row.source.split() if part.startswith("http"))))
    )
    return "\n\n".join((f"{row.title}.", f"{row.why} {condition}.", fix, f"References:\n{references}"))


for _row in known_breaks():
    rule(_row.id, kind="environment", severity=_row.status, cause=_row.cause, url=_row.url)(make_check(_row))
