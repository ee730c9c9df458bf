"""The shape of a rule, and running all of them.

A rule is one function of a machine, or of a machine and a stack, whose name states the problem and whose docstring is
its documentation. It yields what it found. Rules with a stack are run only where there is one. A fact that could not
be read makes it answer `unknown`; a rule that raises is a finding `crashed`, and the others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from packaging.version import InvalidVersion

from envdoctor.core.records import (
    Distribution,
    Evidence,
    Fact,
    Filesystem,
    Finding,
    Gpu,
    Interpreter,
    Machine,
    Record,
    Stack,
    Status,
)

T = TypeVar("T")


class Problem(Record, frozen=True):
    """What a rule found: one problem, how bad, and what fixes it."""

    status: Status
    message: str
    evidence: tuple[Evidence, ...]
    fix: str
    commands: tuple[str, ...] = ()


Check = Callable[..., Iterator[Problem]]  # of (Machine) or of (Machine, Stack)


class Rule(Record, frozen=True):
    """A registered rule."""

    id: str
    cause: str
    url: str
    check: Check

    @property
    def title(self) -> str:
        """The problem in words: the function's name."""
        return self.check.__name__.replace("_", " ")

    @property
    def wants_stack(self) -> bool:
        """Whether the rule is about a stack."""
        return self.check.__code__.co_argcount == 2

    @property
    def documentation(self) -> str:
        """What it detects, why it matters, and the fix: its docstring."""
        from inspect import cleandoc

        return cleandoc(self.check.__doc__ or "")


class NotReadableError(Exception):
    """A fact that a rule needs could not be read."""

    def __init__(self, name: str, fact: Fact[Any]) -> None:
        super().__init__(name)
        self.name = name
        self.fact = fact


RULES: dict[str, Rule] = {}


def rule(identifier: str, *, cause: str, url: str = "") -> Callable[[Check], Check]:
    """Register a function as the rule `identifier` for a cause of the taxonomy."""

    def register(check: Check) -> Check:
        if identifier in RULES:
            raise ValueError(f"rule {identifier} exists twice")
        RULES[identifier] = Rule(identifier, cause, url, check)
        return check

    return register


def need(name: str, fact: Fact[T]) -> T | None:
    """The fact's value; None where it is absent. A fact that could not be read ends the rule as `unknown`."""
    if fact.state == "unreadable":
        raise NotReadableError(name, fact)
    return fact.value


def evidence(name: str, fact: Fact[Any]) -> Evidence:
    """A fact as evidence of a finding."""
    return Evidence(name, words(fact.value) if fact.state == "known" else fact.note or fact.state, fact.source)


def words(value: Any) -> str:
    """A fact's value in few words."""
    for kind, render in WORDS:
        if isinstance(value, kind):
            return render(value)
    return str(value)


WORDS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Gpu, lambda gpu: gpu.name.value or f"GPU {gpu.index}"),
    (Filesystem, lambda place: f"{place.free >> 20} of {place.total >> 20} MiB free"),
    (Distribution, lambda each: f"{each.name} {each.version} in {each.location}"),
    (Interpreter, lambda python: f"{python.path} ({python.version}{'' if python.headers else ', no headers'})"),
    (Record, lambda record: ", ".join(f"{name} {getattr(record, name)}" for name in record.__struct_fields__)),
    (dict, lambda parts: "; ".join(f"{name}: {words(part)}" for name, part in parts.items())),
    (tuple, lambda parts: ", ".join(words(part) for part in parts) or "none"),
)


def evaluate(machine: Machine, stack: Stack | None = None) -> list[Finding]:
    """Run every rule that has what it needs; what is fine yields nothing. Worst first."""
    asked = [each for each in RULES.values() if stack or not each.wants_stack]
    findings = [finding for each in asked for finding in _apply(each, machine, stack)]
    order = {"error": 0, "crashed": 1, "warning": 2, "unknown": 3, "info": 4}
    return sorted(findings, key=lambda finding: (order.get(finding.status, 9), finding.id))


def _apply(each: Rule, machine: Machine, stack: Stack | None) -> list[Finding]:
    subjects = (machine, stack) if each.wants_stack else (machine,)
    try:
        return [
            Finding(each.id, each.cause, p.status, p.message, p.evidence, p.fix, p.commands, each.url)
            for p in each.check(*subjects)
        ]
    except NotReadableError as missing:
        shown = evidence(missing.name, missing.fact)
        message = f"cannot tell: {missing.name} could not be read ({missing.fact.note})"
        return [Finding(each.id, each.cause, "unknown", message, (shown,), url=each.url)]
    except InvalidVersion as error:  # a fact from a stranger's file
        return [Finding(each.id, each.cause, "unknown", f"cannot tell: {error}", (_unjudged(error),), url=each.url)]
    except Exception as error:
        return [Finding(each.id, each.cause, "crashed", f"the rule failed: {type(error).__name__}: {error}")]


def _unjudged(error: InvalidVersion) -> Evidence:
    return Evidence("a version", str(error), "as given")
