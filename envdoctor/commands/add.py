"""`envdoctor add`: install packages next to an existing torch, as in Google Colab and Kaggle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.core.command_line import command_line
from envdoctor.core.directories import log_file
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, Refused
from envdoctor.core.options import Argument, Option, PythonOption, VenvOption
from envdoctor.core.record import Record
from envdoctor.core.records import Distribution, Finding, Stack, known
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import read_sources
from envdoctor.environment.select import select_stack
from envdoctor.install.add_packages import PackageChange, add_packages, kept_packages
from envdoctor.install.environment_use import environment_in_use
from envdoctor.install.known_environments import resolve_interpreter
from envdoctor.knowledge.notebook_services import INSTALL_TORCH, NotebookService, current_service
from envdoctor.machine.select import select_machine
from envdoctor.rules import evaluate

HINT = "envdoctor add trl peft bitsandbytes"


class AddRequest(Record, frozen=True, kw_only=True):
    """torch, what is compiled for it and its CUDA libraries keep their versions. Only wheels are installed.

    In Google Colab and Kaggle, the packages go to the Python of the notebook.

    Example: envdoctor add trl peft bitsandbytes
    """

    packages: Annotated[tuple[str, ...], Argument("The packages, such as trl or trl==1.16.0.", "PACKAGE")]
    venv: VenvOption = ""
    python: PythonOption = ""
    dry_run: Annotated[bool, Option("--dry-run", "Print the changes; install nothing.")] = False


class AddResult(Record, frozen=True, kw_only=True):
    """The changes, what was kept, and the errors that the rules did not report before.

    With errors that the solved versions have, nothing is installed.
    """

    python: str
    service: str  # title of the notebook service; empty elsewhere
    kept: tuple[str, ...]
    changes: tuple[PackageChange, ...]
    installed: bool
    restart: str  # menu entry, or a description; empty if no package was replaced
    findings: tuple[Finding, ...] = ()
    next_command: str = ""
    origin: str = ""  # of the versions: the lock of a profile and its image, or why they were solved now


def run(request: AddRequest, reporter: Reporter) -> CommandResult:
    """Solve and install the packages with constraints, and evaluate the rules again."""
    if not request.packages or any(word.startswith("-") for word in request.packages):
        raise BadInput(
            " ".join(request.packages) or "PACKAGE is missing", expected="names of packages, not options", hint=HINT
        )
    service = current_service(os.environ)
    named = request.venv or request.python
    python = resolve_interpreter(request.venv, request.python) if named or not service else notebook_interpreter()
    stack, kept = read_torch_stack(python, service)
    words = ("envdoctor", "add", *request.packages, "--python", str(python))
    result = add_to(
        python, stack, request.packages,
        kept=kept, service=service, reporter=reporter, dry_run=request.dry_run, again=words,
    )  # fmt: skip
    return CommandResult(result, EXIT_NO if result.findings else EXIT_OK)


def notebook_interpreter() -> Path:
    """The Python of the notebook."""
    found = shutil.which("python3")
    return Path(found) if found else resolve_interpreter("", "python3")


def read_torch_stack(python: Path, service: NotebookService | None) -> tuple[Stack, tuple[str, ...]]:
    """The packages of a Python, and the constraints that keep its torch. Raises Refused if it has none."""
    stack = select_stack("", str(python))
    kept = kept_packages(stack.distributions.value or {}) if stack else ()
    if stack is None or not any(line.startswith("torch==") for line in kept):
        raise Refused(
            f"{python} has no torch to keep",
            expected="an environment with torch",
            hint=shell_command(INSTALL_TORCH, python) if service else "envdoctor install",
        )
    return stack, kept


def add_to(
    python: Path,
    before: Stack,
    packages: Sequence[str],
    *,
    locked: str = "",
    kept: Sequence[str],
    service: NotebookService | None,
    reporter: Reporter,
    dry_run: bool,
    again: Sequence[str],
) -> AddResult:
    """Solve and install the packages; nothing is installed if the rules report a new error.

    `locked` has lines of a lock, which are installed as well. `again` is the command that installs after a dry run.
    """
    machine, sources, log = select_machine("", ()), read_sources(), log_file("add", "packages")
    known_ids = {finding.id for finding in evaluate(machine, before)}
    title = " ".join(packages) or "the lock"

    def new_errors(stack: Stack) -> tuple[Finding, ...]:
        found = evaluate(machine, stack)
        return tuple(each for each in found if each.id not in known_ids and each.status in ("error", "crashed"))

    with environment_in_use(python, "envdoctor add"):
        reporter.phase(f"Solving {title}")
        changes = add_packages(python, packages, kept, sources, log=log, dry_run=True, locked=locked)
        findings = new_errors(_changed_stack(before, changes))
        installs = not (dry_run or findings)
        if installs:
            reporter.phase(f"Installing {title}")
            changes = add_packages(python, packages, kept, sources, log=log, dry_run=False, locked=locked)
            findings = new_errors(select_stack("", str(python)) or before)
    restart = service.restart if service else "start the programs that use it again"
    words = ("envdoctor", "check", "--python", str(python)) if installs or findings else again
    return AddResult(
        python=str(python),
        service=service.title if service else "",
        kept=tuple(kept),
        changes=changes,
        installed=installs,
        restart=restart if any(change.before for change in changes) else "",
        findings=findings,
        next_command=command_line(*words),
    )


def _changed_stack(stack: Stack, changes: Sequence[PackageChange]) -> Stack:
    """The environment with the versions that uv would install, for the rules on versions."""
    found = dict(stack.distributions.value or {})
    for change in changes:
        found.pop(change.name, None)
        if change.after:
            found[change.name] = Distribution(name=change.name, version=change.after)
    return msgspec.structs.replace(stack, distributions=known(found, "uv pip install --dry-run"))
