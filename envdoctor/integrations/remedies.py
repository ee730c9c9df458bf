"""The tool `remedies`: the commands that fix the findings of `check`, and what each of them changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from envdoctor.commands import check
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Stack
from envdoctor.core.remedies import Remedy
from envdoctor.core.results import CommandResult

if TYPE_CHECKING:
    from envdoctor.output.text import Part

PROBLEMS = ("error", "warning", "crashed")


class FindingRemedies(Record, frozen=True):
    """The fix of one finding. Several remedies are alternatives; the steps of each have an order."""

    finding: str
    cause: str
    status: Literal["error", "warning", "crashed"]
    problem: str
    fix: str
    remedies: tuple[Remedy, ...]


class Remedies(Record, frozen=True):
    """The fixes of all problems on a machine and in its environment."""

    machine: str
    environment: str  # the interpreter of the examined environment, empty if none was examined
    remedies: tuple[FindingRemedies, ...]


def run(request: check.CheckRequest) -> CommandResult:
    """Check, and list the fixes of the problems."""
    checked = check.run(request)
    data = checked.data
    interpreter = _interpreter(data.stack)
    remedies = tuple(_remedies(finding) for finding in data.findings if finding.status in PROBLEMS)
    result = Remedies(data.machine.name or "this machine", interpreter, remedies)
    return CommandResult(result, checked.exit_code)


def _interpreter(stack: Stack | None) -> str:
    return (stack.python.value or "") if stack else ""


def _remedies(finding: Finding) -> FindingRemedies:
    status: Literal["error", "warning", "crashed"] = finding.status  # type: ignore[assignment]  # one of PROBLEMS
    return FindingRemedies(finding.id, finding.cause, status, finding.message, finding.fix, finding.remedies)


def render_remedies(data: Remedies) -> list[Part]:
    """Each problem with its commands."""
    from envdoctor.output.findings import remedy_lines
    from envdoctor.output.text import Text, indent

    if not data.remedies:
        return [Text.assemble(("✓ ", "ok"), f"no problem to fix on {data.machine}")]
    parts: list[Part] = []
    for each in data.remedies:
        style = "warning" if each.status == "warning" else "error"
        parts += [Text.assemble((f"{each.finding} ", style), each.problem), indent(Text(each.fix))]
        parts += remedy_lines(each.remedies)
    return parts
