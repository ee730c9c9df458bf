"""`envdoctor audit`: checks manifests, lock files, scripts, setup guides, environments and directories of these."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.commands.audit_directory import DirectoryAudit, audit_directory
from envdoctor.commands.audit_file import (
    AuditResult,
    FileAudit,
    UnreadableFile,
    audit_environment,
    audit_file,
    audit_standard_input,
    is_environment,
    reject_fix,
)
from envdoctor.commands.audit_fix import Corrections
from envdoctor.commands.audit_set_trial import try_sets
from envdoctor.commands.audit_trial import reject_trial, with_trial
from envdoctor.core.errors import EXIT_BAD_INPUT, BadInput, exit_code
from envdoctor.core.options import FactOption, MachineOption, Option, ReplaceOption
from envdoctor.core.paths import is_file, is_folder
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.download.sources import read_sources
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.machine.select import select_machine
from envdoctor.manifests.inputs.earlier_steps import forget_guides
from envdoctor.manifests.inputs.locked_wheels import audit_wheels
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.resolution.step import NoSolver, StepSolver

_WHEN = ("auto", "always", "never")


class AuditsResult(Record, frozen=True, kw_only=True):
    """The results of several audits."""

    audits: tuple[AuditResult, ...]
    skipped: tuple[str, ...] = ()  # files of which nothing can be judged
    unreadable: tuple[UnreadableFile, ...] = ()  # files of a directory
    differences: tuple[Finding, ...] = ()  # between the files of a directory
    omitted: tuple[str, ...] = ()  # what was not searched, with the reason

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all audits, each with its file."""
        replace = msgspec.structs.replace
        found = (replace(finding, file=audit.name) for audit in self.audits for finding in audit.findings)
        return (*found, *self.differences)


class AuditRequest(Record, frozen=True, kw_only=True):
    """Finds conflicts that package metadata does not state: breaking releases, replaced builds, unsuitable wheels.

    Examines manifests (requirements, pyproject.toml, setup.cfg, setup.py, environment.yml, pixi.toml, Pipfile), lock
    files of uv, Poetry, PDM, Pipenv, pixi and conda-lock, Dockerfiles, Apptainer definitions, scripts, workflows,
    notebooks, setup guides, environments, and directories of these.

    Each step is resolved with uv, as an installer would do it today. uv queries the configured package sources for
    the names of the packages; it installs nothing. The files of a directory are resolved, and the wheels of a lock
    file are read, only with --resolve always.

    With --trial, the steps of the file are run with uv in a temporary environment, and the modules of the packages
    that it names are imported without a GPU. A build from source and an import run the code of these packages. The
    shell commands and programs of the file are not run.

    Example: envdoctor audit requirements.txt Dockerfile

    Example: envdoctor audit .

    Example: envdoctor audit SETUP.md --gpu gh200

    Example: envdoctor audit requirements.txt --python 3.11

    Example: envdoctor audit requirements.txt --trial

    Example: pip freeze | envdoctor audit -
    """

    targets: Annotated[
        tuple[str, ...],
        Option("--venv", "A file, a directory of files, an environment, or -.", "PATH", argument="PATH"),
    ]
    machine: MachineOption = ""
    facts: FactOption = ()
    python: Annotated[str, Option("--python", "Use this Python where a file names none.", "X.Y")] = ""
    fix: Annotated[str, Option("--fix", "Write corrected files, solved with uv, to this directory.", "DIR")] = ""
    force: ReplaceOption = False
    resolve: Annotated[str, Option("--resolve", "Resolve with uv: auto, always or never.", "WHEN")] = "auto"
    trial: Annotated[bool, Option("--trial", "Install and import; runs the code of packages.")] = False
    skip_empty: Annotated[bool, Option("--skip-empty", "Skip files that install nothing, for a Git hook.")] = False


def run(request: AuditRequest, reporter: Reporter | None = None) -> CommandResult:
    """Audit files and directories."""
    report_phase = reporter.phase if reporter else _ignore
    forget_guides()
    has_machine = request.machine or request.facts
    machine = select_machine(request.machine, request.facts) if has_machine else None
    trial = try_sets(machine, report_phase) if request.trial else None
    options = _target_options(request)
    fix = Corrections(Path(request.fix), replace=request.force, trial=trial, options=options) if request.fix else None
    _check_python(request.python)
    solver = _select_solver(request.resolve)
    audits: list[AuditResult] = []
    skipped: list[str] = []
    directories: list[DirectoryAudit] = []
    for target in dict.fromkeys(request.targets):
        try:
            if is_folder(target) and request.trial:
                raise reject_trial("a directory")
            if is_folder(target) and not is_environment(Path(target)):
                in_folder = solver if request.resolve == "always" else NoSolver()
                directories.append(audit_directory(target, machine, in_folder, fix, python=request.python))
            else:
                if fix and is_file(target):
                    fix.require_new(Path(target))
                is_single = len(set(request.targets)) == 1
                judge = partial(with_trial, solver, report_phase, python=request.python) if request.trial else None
                audits.append(_audit(target, request, machine, solver, fix, judge=judge, is_single=is_single))
        except NothingToAudit:
            if not request.skip_empty:
                raise
            skipped.append(target)
    if fix:
        fix.finish()
    result = AuditsResult(
        audits=(*audits, *(audit for each in directories for audit in each.audits)),
        skipped=(*skipped, *(name for each in directories for name in each.skipped)),
        unreadable=tuple(file for each in directories for file in each.unreadable),
        differences=tuple(finding for each in directories for finding in each.differences),
        omitted=tuple(reason for each in directories for reason in each.omitted),
    )
    failed = any(finding.status in ("error", "crashed") for finding in result.findings)
    # As check: a file of which nothing could be judged is not free of problems.
    unread = any(audit.is_undecided or (audit.kind == "environment" and audit.coverage.unread) for audit in audits)
    undecided = unread or {finding.status for finding in result.findings} == {"unknown"}
    is_single = len(audits) == 1 and not skipped and not directories
    code = EXIT_BAD_INPUT if result.unreadable and not failed else exit_code(failed=failed, undecided=undecided)
    return CommandResult(audits[0] if is_single else result, code)


def _ignore(title: str) -> None:
    """Print no progress: the call comes from Python."""


def _check_python(python: str) -> None:
    if python and not re.fullmatch(r"3\.\d{1,2}", python):
        raise BadInput(
            f"--python {python}", expected="a Python version such as 3.11",
            hint="envdoctor audit --help",
        )  # fmt: skip


def _select_solver(when: str) -> StepSolver:
    """The solver for the open versions of files."""
    if when not in _WHEN:
        raise BadInput(f"--resolve {when}", expected=f"one of {', '.join(_WHEN)}", hint="envdoctor audit --help")
    if when == "never":
        return NoSolver()
    from envdoctor.forecast.index_facts import IndexReader

    sources = read_sources()
    return UvStepSolver(sources, IndexReader(sources))


def _target_options(request: AuditRequest) -> tuple[str, ...]:
    """The options that decide what a set is solved for, as words of another command."""
    facts = (("--fact", each) for each in request.facts)
    options = (("--machine", request.machine), ("--python", request.python), *facts)
    return tuple(word for option in options if option[1] for word in option)


def _audit(
    target: str,
    request: AuditRequest,
    machine: Machine | None,
    solver: StepSolver,
    fix: Corrections | None,
    *,
    judge: Callable[[FileAudit], FileAudit] | None,
    is_single: bool,
) -> AuditResult:
    if target == "-":
        if fix:
            raise reject_fix("standard input", "envdoctor audit --help")
        audited = audit_standard_input(machine, solver, python=request.python, is_tried=request.trial)
        return (judge(audited) if judge else audited).result
    if is_folder(target):
        if fix:
            raise reject_fix("an environment", shell_command("envdoctor fix {}", target))
        return audit_environment(target, machine)
    root = Path(target).parent if is_single or Path(target).is_absolute() or ".." in Path(target).parts else Path()
    below = fix.below(root) if fix else None
    audited = audit_file(
        target, machine, solver, below, fix_only_problems=not is_single, python=request.python, judge=judge
    )
    if request.resolve == "always" and audited.document.sets and solver.index:
        found = audit_wheels(audited.document.sets, audited.document.kind, target, machine, solver.index)
        findings = sorted((*audited.result.findings, *found), key=lambda finding: (finding.line, finding.id))
        return msgspec.structs.replace(audited.result, findings=tuple(findings))
    return audited.result
