"""The tool `remedies`: the commands that fix the findings of `check`, and what each of them changes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envdoctor.commands import check
from envdoctor.core.records import Finding, Record, Stack
from envdoctor.core.results import CommandResult

if TYPE_CHECKING:
    from envdoctor.output.text import Part

PROBLEMS = ("error", "warning", "crashed")
NAMED_ENVIRONMENT = re.compile(r"\s(?:--python|-p|--venv|--target|--system)\b|\buv venv\b")


class RemedyCommand(Record, frozen=True):
    """One command. An `environment` is the one that it names; any other command acts on the machine or the shell."""

    command: str
    environment: str  # empty: it names none
    needs_root: bool


class FindingRemedies(Record, frozen=True):
    """The fix of one finding. Its commands are steps or alternatives, as the text of the fix states."""

    finding: str
    cause: str
    status: Literal["error", "warning", "crashed"]
    problem: str
    fix: str
    commands: tuple[RemedyCommand, ...]


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
    remedies = tuple(_remedies(finding, interpreter) for finding in data.findings if finding.status in PROBLEMS)
    result = Remedies(data.machine.name or "this machine", interpreter, remedies)
    return CommandResult(result, checked.exit_code)


def _interpreter(stack: Stack | None) -> str:
    return (stack.python.value or "") if stack else ""


def _remedies(finding: Finding, interpreter: str) -> FindingRemedies:
    commands = tuple(
        RemedyCommand(command, _named_environment(command), bool(re.search(r"(^|[;&|]\s*)sudo\b", command)))
        for command in (_with_interpreter(command, interpreter) for command in finding.commands)
    )
    status: Literal["error", "warning", "crashed"] = finding.status  # type: ignore[assignment]  # one of PROBLEMS
    return FindingRemedies(finding.id, finding.cause, status, finding.message, finding.fix, commands)


def _with_interpreter(command: str, interpreter: str) -> str:
    """The command with the examined environment as the target of its installer, unless it names one."""
    if not interpreter or NAMED_ENVIRONMENT.search(command):
        return command
    python = shlex.quote(interpreter)
    command = re.sub(r"\buv pip (install|uninstall)\b", rf"uv pip \1 --python {python}", command)
    return re.sub(r"(?<!uv )(?:\bpython3? -m )?\bpip (?=install\b|uninstall\b)", f"{python} -m pip ", command)


def _named_environment(command: str) -> str:
    """The interpreter or environment that a command names: `--python X`, or the interpreter that it runs."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return ""
    for option in ("--python", "-p", "--venv"):
        if option in words[:-1]:
            return words[words.index(option) + 1]
    first = Path(words[0]) if words else Path()
    return words[0] if first.name.startswith("python") and len(first.parts) > 1 else ""


def render_remedies(data: Remedies) -> list[Part]:
    """Each problem with its commands."""
    from envdoctor.output.text import Text, command, indent

    if not data.remedies:
        return [Text.assemble(("✓ ", "ok"), f"no problem to fix on {data.machine}")]
    parts: list[Part] = []
    for each in data.remedies:
        style = "warning" if each.status == "warning" else "error"
        parts += [Text.assemble((f"{each.finding} ", style), each.problem), indent(Text(each.fix))]
        parts += [indent(command(line.command)) for line in each.commands]
    return parts
