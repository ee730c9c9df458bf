"""Variables of the shell that remedies set, and whether they cure what was reported."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Machine, Stack, known
from envdoctor.core.remedies import Setting, SetVariable, UnsetVariable
from envdoctor.install.remedy_plan import Fixable, remaining_findings, worse_findings
from envdoctor.install.shell_block import name_of
from envdoctor.rules import evaluate

REDACTED = lazy_pattern(r"//\*\*\*@|\(set\)")  # a value that check does not show, and that a remedy repeats
REFERENCE = lazy_pattern(r"\$(?:(\w+)|\{(\w+)(?::\+([^{}]*))?\})")


def after_settings(variables: Mapping[str, str], settings: Iterable[Setting]) -> dict[str, str]:
    """Variables after `export` and `unset`, with `$NAME`, `${NAME}` and `${NAME:+text}` expanded."""
    result = dict(variables)
    for setting in settings:
        if isinstance(setting, UnsetVariable):
            result.pop(setting.name, None)
            continue
        (assignment,) = shlex.split(setting.assignment)
        name, _, value = assignment.partition("=")
        result[name] = _expanded(value, result)
    return result


def _expanded(value: str, variables: Mapping[str, str]) -> str:
    def replaced(found: re.Match[str]) -> str:
        current = variables.get(found[1] or found[2], "")
        if found[3] is None:
            return current
        return _expanded(found[3], variables) if current else ""

    return REFERENCE.sub(replaced, value)


def with_settings(machine: Machine, settings: Sequence[Setting]) -> Machine:
    """The machine as a new shell with these settings sees it."""
    before = machine.environment.value or {}
    after = after_settings(before, settings)
    if after == before:
        return machine
    return msgspec.structs.replace(machine, environment=known(after, "environment"))


def curing_settings(fixables: Iterable[Fixable], machine: Machine, stack: Stack) -> dict[str, tuple[Setting, ...]]:
    """The settings of each problem that needs nothing else, by its message.

    They are those of its first alternative that removes the problem and causes no other one.
    """
    found: dict[str, tuple[Setting, ...]] = {}
    before = evaluate(machine, stack)
    for fixable in fixables:
        for remedy in () if fixable.alternatives else fixable.finding.remedies:
            settings = tuple(each for each in remedy.steps if isinstance(each, SetVariable | UnsetVariable))
            if len(settings) < len(remedy.steps) or not all(map(can_write, settings)):
                continue
            used = [each for others in found.values() for each in others]
            after = evaluate(with_settings(machine, [*used, *settings]), stack)
            if not worse_findings(before, after) and not remaining_findings([fixable], before, after):
                found[fixable.finding.message] = settings
                break
    return found


def can_write(setting: Setting) -> bool:
    """Whether the value is complete: that of a secret is not."""
    return isinstance(setting, UnsetVariable) or not REDACTED.search(setting.assignment)


def with_variables(words: Sequence[str], settings: Sequence[Setting]) -> tuple[str, ...]:
    """A command that runs with the settings of a new shell."""
    if not settings:
        return tuple(words)
    after = after_settings(os.environ, settings)
    removed = [word for each in settings if name_of(each) not in after for word in ("-u", name_of(each))]
    values = [f"{name_of(each)}={after[name_of(each)]}" for each in settings if name_of(each) in after]
    return ("env", *removed, *dict.fromkeys(values), *words)
