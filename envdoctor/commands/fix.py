"""`envdoctor fix`: apply the remedies of findings to a copy of an environment, and swap it in if it is better."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.core.command_line import require_program
from envdoctor.core.directories import log_file
from envdoctor.core.errors import BadInput, EnvdoctorError, Refused, closest_match, exit_code
from envdoctor.core.options import (
    Argument,
    FactOption,
    MachineOption,
    Option,
    PythonOption,
    VenvOption,
    YesOption,
    machine_words,
)
from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import command_of
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.environment.find import find_environment
from envdoctor.environment.managed import EnvironmentPaths, check_replaceable, read_install_record
from envdoctor.environment.select import read_environment
from envdoctor.install.fix import GONE, apply_fix
from envdoctor.install.fix_files import planned_settings, select_files, with_planned_files, with_written_files
from envdoctor.install.fix_notes import plan_notes
from envdoctor.install.fix_records import Fix, FixResult
from envdoctor.install.fix_search import choices_with_ranges, first_choices
from envdoctor.install.fix_trial import run_command
from envdoctor.install.fix_uv import UvResult, plan_changes
from envdoctor.install.fix_variables import with_variables
from envdoctor.install.known_environments import installed_environments, register_environment
from envdoctor.install.remedy_plan import (
    PROBLEMS,
    Application,
    Fixable,
    FixedFinding,
    combined_steps,
    fixable_findings,
    planned_changes,
    with_interpreter,
)
from envdoctor.machine.select import select_machine
from envdoctor.remedies import add_pinned_remedies
from envdoctor.rules import RULES, evaluate

RULE_ID = lazy_pattern(r"[A-Z]+[0-9]{3}")
NETWORK_HINT = "check the network or name a mirror (export PIP_INDEX_URL=ADDRESS), then run the same command again"
SUFFIX = "-fixed"  # of the new environment next to one that envdoctor did not create


class FixRequest(Record, frozen=True, kw_only=True):
    """The remedies are applied together to a copy of the environment. The copy takes its place only if check finds
    no new problem, every quick probe that passed before still passes, and COMMAND, after --, exits with code 0.
    An environment not created by envdoctor stays as it is; the copy is a new one next to it, unless --adopt is given.

    Example: envdoctor fix ./venv TRL002 -- python -c "import trl"
    """

    targets: Annotated[
        tuple[str, ...], Argument("The environment, and rule ids of the problems to fix.", "[VENV|RULE]...")
    ] = ()
    venv: VenvOption = ""
    python: PythonOption = ""
    machine: MachineOption = ""
    facts: FactOption = ()
    command: Annotated[
        tuple[str, ...],
        Option(
            "--command", "A word of the command that must succeed; COMMAND after -- is the same.", "WORD", rest=True
        ),
    ] = ()
    dry_run: Annotated[bool, Option("--dry-run", "Print the plan; change nothing.")] = False
    yes: YesOption = False
    adopt: Annotated[bool, Option("--adopt", "Replace a venv not created by envdoctor; rollback can restore it.")] = (
        False
    )
    no_verify: Annotated[bool, Option("--no-verify", "Do not run the probes.")] = False
    write: Annotated[
        tuple[str, ...],
        Option("--write", "Write variables to a shell file, versions to requirements.txt; may be repeated.", "FILE"),
    ] = ()


def run(request: FixRequest, reporter: Reporter) -> CommandResult:
    """Examine the environment, print the plan, and apply it after a confirmation."""
    request = _with_targets(request)
    machine = select_machine(request.machine, request.facts)
    # Without a confirmation, only an environment that is named, active or in ./.venv is changed.
    installed = tuple if request.yes else installed_environments
    selection = find_environment(request.venv, request.python, os.environ, installed=installed)
    stack = read_environment(selection)
    if stack is None:
        raise BadInput(
            f"no environment to fix: {selection.reason}",
            expected="an active environment, ./.venv, or --venv PATH",
            hint="envdoctor fix --venv PATH",
        )
    source = Path(selection.path)
    found = add_pinned_remedies(machine, stack, evaluate(machine, stack))
    found = with_interpreter(found, stack.python.value or "")
    fixables = fixable_findings(found, request.targets)
    chosen = [each for each in fixables if each.alternatives]
    if chosen and stack.kind.value != "venv":
        raise Refused(
            f"{source} is not a virtual environment ({stack.kind.value or 'unknown'})",
            expected="a virtual environment, which can be copied",
            hint=shell_command("envdoctor check {}", source),
        )
    if chosen:
        _require_interpreter(source)
    files = select_files(request.write, source, fixables, machine, stack)
    paths = EnvironmentPaths(_target(source, request) if chosen else source)
    choices = first_choices(machine, stack, chosen)
    packages = _plan(source, paths.venv, fixables, choices, machine=machine, stack=stack)
    if packages.failure and not packages.unreachable:  # the index may lack the exact versions of the tables
        ranges = choices_with_ranges(chosen)
        other = _plan(source, paths.venv, fixables, ranges, machine=machine, stack=stack)
        choices, packages = (choices, packages) if other.failure else (ranges, other)
    others = tuple(
        each for each in found if request.targets and each.status in PROBLEMS and each.id not in request.targets
    )
    notes = plan_notes(packages, request.targets)
    packages = msgspec.structs.replace(packages, notes=notes, remaining=others, unread=stack.unread_metadata)
    planned = with_planned_files(packages, files)
    if request.dry_run or not any(each.state == "planned" for each in planned.findings):
        return CommandResult(planned, _exit_code(planned))
    if planned.unreachable:
        raise EnvdoctorError(
            f"nothing was changed: {planned.failure}", expected="a package source that answers", hint=NETWORK_HINT
        )
    _confirm(request, planned, source, reporter)
    words = with_variables(request.command, planned_settings(planned)) if request.command else ()
    fix = Fix(
        source, paths, machine, stack, found, chosen, choices, words, not request.no_verify,
        log_file("fix", source.name), reporter,
    )  # fmt: skip
    result = _applied(fix, packages) if chosen else _tested(fix, packages)
    if not result.failure:
        result = with_written_files(result, planned, files)
    return CommandResult(result, _exit_code(result))


def _applied(fix: Fix, planned: FixResult) -> FixResult:
    """The result of a fix of packages, with the problems for the user."""
    result = apply_fix(fix)
    if result.applied:
        register_environment(fix.paths.venv)
    manual = tuple(each for each in planned.findings if each.state == "manual")
    return msgspec.structs.replace(
        result, findings=(*result.findings, *manual), notes=(*planned.notes, *result.notes),
        changes=result.changes if result.applied else planned.changes,
    )  # fmt: skip


def _tested(fix: Fix, planned: FixResult) -> FixResult:
    """The result of a fix that only sets variables: the user's command is tested in the environment itself."""
    result = msgspec.structs.replace(planned, dry_run=False)
    if not fix.words:
        return result
    fix.reporter.phase(f"Running {' '.join(fix.words)} (output: {fix.log})")
    done = run_command(fix.words, fix.source, fix.log)
    return msgspec.structs.replace(result, command=done, failure=done.failure, log=str(fix.log))


def _require_interpreter(source: Path) -> None:
    """Raise Refused if the environment has no Python, or another one than its packages are for."""
    python = source / "bin/python"
    program = python.resolve()
    version = re.fullmatch(r"python(\d+\.\d+)", program.name)
    reason = ""
    if not program.exists():
        reason = f"{python} is a link to {python.readlink()}" if python.is_symlink() else f"there is no {python}"
    elif version and not (source / "lib" / program.name).is_dir():
        folders = ", ".join(sorted(each.name for each in source.glob("lib/python*")))
        reason = f"{python} is Python {version[1]}, and the packages are in lib/{folders}"
    if reason:
        raise Refused(
            f"the packages of {source} cannot be changed: {reason}",
            expected="an environment with the Python that its packages were installed for",
            hint="create a new environment: uv venv NEW_PATH, or envdoctor install",
        )


def _with_targets(request: FixRequest) -> FixRequest:
    """The request with the environment among the arguments as `venv`, and only rule ids as arguments."""
    names = [word for word in request.targets if RULE_ID.fullmatch(word.upper()) and not exists(word)]
    ids = tuple(dict.fromkeys(word.upper() for word in names))
    others = [word for word in request.targets if word not in names]
    others += [request.venv] if request.venv and request.venv not in others else []
    for word in ids:
        if word not in RULES:
            close = closest_match(word, list(RULES))
            raise BadInput(
                f"unknown rule '{word}'" + (f"; did you mean '{close}'?" if close else ""),
                expected="an id that check prints, such as TRL002", hint="envdoctor rules",
            )  # fmt: skip
    require_program(request.command)
    if len(others) > 1:
        raise BadInput(
            f"several environments: {', '.join(others)}",
            expected="one environment, and rule ids such as TRL002",
            hint="a command to run comes after --: envdoctor fix VENV -- COMMAND",
        )
    return msgspec.structs.replace(request, targets=ids, venv=others[0] if others else "")


def _target(source: Path, request: FixRequest) -> Path:
    """The path of the repaired environment."""
    if read_install_record(source):
        return source
    if request.adopt:
        if source.is_symlink():
            real = source.resolve()
            raise BadInput(
                f"{source} is a symlink to {real}", expected="the directory to replace",
                hint=shell_command('envdoctor fix {} --adopt', real),
            )  # fmt: skip
        check_replaceable(source, adopt=True)
        return source
    target = source.with_name(source.name + SUFFIX)
    if target.exists() and not request.dry_run:
        raise BadInput(
            f"{target} exists already, and envdoctor did not create {source}",
            expected="a path for the repaired copy, or --adopt to replace the environment",
            hint=shell_command("envdoctor uninstall {}", target),
        )
    return target


def _plan(
    source: Path,
    target: Path,
    fixables: Sequence[Fixable],
    choices: Sequence[tuple[Fixable, int]],
    *,
    machine: Machine,
    stack: Stack,
) -> FixResult:
    first: list[Application] = [each.alternatives[choice] for each, choice in choices]
    uv = plan_changes(source, first, machine, stack) if first else UvResult("", "")
    return FixResult(
        venv=str(source), target=str(target), applied=False, dry_run=True,
        findings=tuple(_entry(each, choices) for each in fixables),
        commands=tuple(map(command_of, combined_steps(first, f"{source}/bin/python"))),
        changes=planned_changes(uv.output), failure=uv.failure, unreachable=uv.unreachable,
    )  # fmt: skip


def _entry(fixable: Fixable, choices: Sequence[tuple[Fixable, int]]) -> FixedFinding:
    """The entry of a finding in the plan."""
    if not fixable.alternatives:
        return fixable.entry("manual")
    choice = next((choice for each, choice in choices if each is fixable), None)
    if choice is not None:
        return fixable.entry("planned", choice)
    return msgspec.structs.replace(fixable.entry("planned"), commands=(), manual=(), reason=GONE)


def _confirm(request: FixRequest, planned: FixResult, source: Path, reporter: Reporter) -> None:
    changed = [f"apply this to a copy of {source}"] if planned.commands else []
    changed += [f"write {each.path}" for each in planned.files if each.lines]
    if request.yes or not changed:
        return
    question = " and ".join(changed)
    confirmed = reporter.confirm(planned, f"{question[:1].upper()}{question[1:]}?")
    if confirmed is None:
        fixed = dict.fromkeys(each.finding for each in planned.findings if each.state == "planned")
        raise BadInput(
            f"not confirmed: to fix {', '.join(fixed)}, envdoctor would {question}",
            expected="--yes, or a terminal to confirm on",
            hint=_same_command(request, source),
        )
    if not confirmed:
        raise Refused(
            "not confirmed: nothing was changed", expected="y to apply the plan", hint="envdoctor fix --dry-run"
        )


def _same_command(request: FixRequest, source: Path) -> str:
    """The command of a request, with --yes."""
    words = ["envdoctor", "fix", str(source), *request.targets]
    words += machine_words(request.machine)
    words += [word for fact in request.facts for word in ("--fact", fact)]
    words += [word for file in request.write for word in ("--write", file)]
    words += ["--adopt"] * request.adopt + ["--no-verify"] * request.no_verify
    return shlex.join([*words, "--yes", *(["--", *request.command] if request.command else [])])


def _exit_code(result: FixResult) -> int:
    """1 if an error of the selected findings is left or a probe fails afterwards, 3 if a part could not be read."""
    left = any(each.status == "error" and each.state not in ("fixed", "written") for each in result.findings)
    failed = (bool(result.failure) and not result.applied) or any(each.failure for each in result.files)
    undecided = bool(result.unread) and not result.findings
    return exit_code(failed=left or failed or bool(result.failing_probes), undecided=undecided)
