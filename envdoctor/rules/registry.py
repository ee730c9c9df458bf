"""The rule engine: declares rules, runs them, and turns what they report into findings.

A rule is one function. The decorator `rule` declares its id, kind, severity and cause; its name is its title, its
docstring its documentation, and the first reference of the docstring its URL. The function yields a `Problem` for
each problem that it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from packaging.version import InvalidVersion

from envdoctor.core.record import Record
from envdoctor.core.records import (
    Distribution,
    Evidence,
    Fact,
    Filesystem,
    Finding,
    Gpu,
    Interpreter,
    Machine,
    Stack,
    Status,
)
from envdoctor.core.remedies import Remedy

# The subjects of a rule: a machine; a machine and an installed environment; a followed setup guide or manifest; the
# files of a directory; a container image on a machine; the trial installation of a guide or manifest.
Kind = Literal["machine", "environment", "guide", "directory", "image", "trial"]
# Evidence that a guide may not give: its Python; all wheels, if it names further pages of them; the release of a
# nightly build or of a commit; whether the installer builds in isolation; the CUDA toolkit of the machine.
Need = Literal["python", "wheels", "release", "isolation", "toolkit"]
SEVERITIES: tuple[Status, ...] = ("error", "warning", "unknown", "info")  # worst first
# Names and abbreviations in titles, whose spelling a function's name cannot have.
SPELLINGS = (
    "AutoAWQ Blackwell BNB conda's CUDA cuDNN DAPO driver's ECC environment's GPU GPUs InfiniBand Liger MIG MKL "
    "MXFP4 NCCL NumPy NVLink NVML NVSwitch PCIe PEFT PTX PyPI Python QLoRA SGLang TensorFlow torch's Triton TRL "
    "UUIDs verl's vLLM WSL"
)
SPELLING = {word.lower().replace("'", ""): word for word in SPELLINGS.split()}
LINE_LENGTH = 116  # characters of a line of documentation


class Problem(Record, frozen=True):
    """One problem that a rule found, with its severity and its fix.

    `line` is the line of a guide, and `file` a file of a directory. `cause` and `url` replace those of the rule where
    they are given.
    """

    status: Status
    message: str
    evidence: tuple[Evidence, ...]
    fix: str
    remedies: tuple[Remedy, ...] = ()  # several are alternatives
    line: int = 0
    cause: str = ""
    url: str = ""
    file: str = ""
    proven: tuple[Need, ...] = ()  # evidence that the rule needs and that this problem contains


Check = Callable[..., Iterator[Problem]]  # takes (machine), (machine, stack) or the record of its kind


class Rule(Record, frozen=True):
    """A registered rule."""

    id: str
    kind: Kind
    severities: tuple[Status, ...]  # that its problems can have, worst first
    cause: str
    url: str
    check: Check
    needs: tuple[Need, ...] = ()  # without it, its errors and warnings are only possible

    @property
    def title(self) -> str:
        """The problem in words: the function's name, with the usual spelling of names and abbreviations."""
        words = (SPELLING.get(word, word) for word in self.name.split("_"))
        return " ".join(words).replace("flash attn", "flash-attn")

    @property
    def name(self) -> str:
        """The name of the rule's function."""
        return self.check.__name__

    @property
    def needs_environment(self) -> bool:
        """Whether the rule examines an installed environment."""
        return self.kind == "environment"

    @property
    def documentation(self) -> str:
        """The docstring: what the rule detects, why it matters, and the fix."""
        from inspect import cleandoc
        from textwrap import fill

        make = getattr(self.check, "documentation", None)
        lines = cleandoc(make() if make else self.check.__doc__ or "").split("\n")
        # A rule of a table has one line per paragraph.
        return "\n".join(fill(line, LINE_LENGTH) if len(line) > LINE_LENGTH else line for line in lines)


class NotReadableError(Exception):
    """A fact that a rule needs could not be read."""

    def __init__(self, name: str, fact: Fact[Any]) -> None:
        super().__init__(name)
        self.name = name
        self.fact = fact


RULES: dict[str, Rule] = {}  # of machines and environments
GUIDE_RULES: dict[str, Rule] = {}
DIRECTORY_RULES: dict[str, Rule] = {}
IMAGE_RULES: dict[str, Rule] = {}
TRIAL_RULES: dict[str, Rule] = {}


def rule(
    identifier: str,
    *,
    kind: Kind,
    severity: Status | tuple[Status, ...],
    cause: str,
    url: str | None = None,
    needs: tuple[Need, ...] = (),
) -> Callable[[Check], Check]:
    """Register a function as the rule `identifier` for a cause of causes.toml.

    `url` is by default the first reference of the docstring.
    """
    severities = (severity,) if isinstance(severity, str) else tuple(sorted(severity, key=SEVERITIES.index))

    def register(check: Check) -> Check:
        by_kind = {
            "guide": GUIDE_RULES, "directory": DIRECTORY_RULES, "image": IMAGE_RULES, "trial": TRIAL_RULES,
        }  # fmt: skip
        if any(identifier in rules for rules in (RULES, *by_kind.values())):
            raise ValueError(f"rule {identifier} is registered twice")
        address = next(iter((check.__doc__ or "").partition("References:")[2].split()), "") if url is None else url
        rules = by_kind.get(kind, RULES)
        rules[identifier] = Rule(identifier, kind, severities, cause, address, check, needs)
        return check

    return register


def evidence(name: str, fact: Fact[Any]) -> Evidence:
    """A fact as evidence of a finding."""
    return Evidence(name, format_value(fact.value) if fact.state == "known" else fact.note or fact.state, fact.source)


def format_value(value: Any) -> str:
    """A fact's value as one line of text."""
    for value_type, render in FORMATTERS:
        if isinstance(value, value_type):
            return render(value)
    return str(value)


def _fields(record: Record) -> Iterator[str]:
    """The fields of a record with their values, without facts that are not known."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if not isinstance(value, Fact) or value.state == "known":
            yield f"{name} {format_value(value)}"


FORMATTERS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (Gpu, lambda gpu: gpu.name.value or f"GPU {gpu.index}"),
    (Filesystem, lambda filesystem: f"{filesystem.free >> 20} of {filesystem.total >> 20} MiB free"),
    (Distribution, lambda package: f"{package.name} {package.version} in {package.location}"),
    (Interpreter, lambda python: f"{python.path} ({python.version}{'' if python.headers else ', no headers'})"),
    (Fact, lambda fact: format_value(fact.value) if fact.state == "known" else fact.note or fact.state),
    (Record, lambda record: ", ".join(_fields(record))),
    (dict, lambda items: "; ".join(f"{name}: {format_value(value)}" for name, value in items.items())),
    (tuple, lambda values: ", ".join(format_value(value) for value in values) or "none"),
)


def evaluate(machine: Machine, stack: Stack | None = None) -> list[Finding]:
    """Run all rules on a machine, and those on environments if there is one. Findings are sorted worst first."""
    findings: list[Finding] = []
    for registered in RULES.values():
        if not registered.needs_environment:
            findings += run_rule(registered, machine)
        elif stack:
            findings += run_rule(registered, machine, stack)
    order = {"error": 0, "crashed": 1, "warning": 2, "unknown": 3, "info": 4}
    return sorted(findings, key=lambda finding: (order.get(finding.status, 9), finding.id))


def run_rule(rule: Rule, *subjects: object, judged: Callable[[Problem], Problem] | None = None) -> list[Finding]:
    """The findings of one rule, of its problems as they are `judged`; none if it finds no problem.

    A fact or a version that cannot be read gives a finding `unknown`. A rule that raises gives a finding `crashed`.
    """
    try:
        return [_finding(rule, judged(problem) if judged else problem) for problem in rule.check(*subjects)]
    except NotReadableError as missing:
        shown = evidence(missing.name, missing.fact)
        message = f"not evaluated: {missing.name} could not be read ({missing.fact.note})"
        return [Finding(rule.id, rule.cause, "unknown", message, (shown,), url=rule.url)]
    except InvalidVersion as error:  # from a pasted report or a recorded machine
        shown = Evidence("version", str(error), "input")
        return [Finding(rule.id, rule.cause, "unknown", f"not evaluated: {error}", (shown,), url=rule.url)]
    except Exception as error:
        return [Finding(rule.id, rule.cause, "crashed", f"the rule failed: {type(error).__name__}: {error}")]


def _finding(rule: Rule, problem: Problem) -> Finding:
    if problem.status not in rule.severities and not (problem.status == "unknown" and rule.needs):
        raise ValueError(f"severity '{problem.status}' is not declared by {rule.id}")
    return Finding(
        rule.id,
        problem.cause or rule.cause,
        problem.status,
        problem.message,
        problem.evidence,
        problem.fix,
        problem.remedies,
        problem.url or rule.url,
        problem.line,
        problem.file,
    )
