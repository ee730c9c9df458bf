"""The audit of one manifest, lock file, script, guide or environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import NamedTuple

import msgspec

from envdoctor.commands.audit_draft import problems_of
from envdoctor.commands.audit_fix import Corrections, FixedSet, Outcome, fix_commands
from envdoctor.commands.audit_fix_lock import LockedInput, fix_locked
from envdoctor.commands.audit_set import check_sets
from envdoctor.commands.pasted_text import read_pasted_text
from envdoctor.core.decoding import read_text
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import exists
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.environment.select import select_stack
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_lock, stack_of_lock
from envdoctor.machine.select import select_machine
from envdoctor.manifests import GuideAudit, Step, audit_paths
from envdoctor.manifests.files import Files, TextsOfFiles, project_folder
from envdoctor.manifests.guide import PLATFORMS
from envdoctor.manifests.inputs.coverage import Coverage, coverage_of, with_unread_indexes
from envdoctor.manifests.inputs.earlier_steps import earlier_steps
from envdoctor.manifests.inputs.lock_audit import audit_sets, audit_stack
from envdoctor.manifests.inputs.lock_sources import is_list
from envdoctor.manifests.inputs.locked_projects import with_lock
from envdoctor.manifests.inputs.locked_wheels import audit_python
from envdoctor.manifests.inputs.manifests import read_pyproject, read_setup_py
from envdoctor.manifests.inputs.project_commands import project_remedies, synced_remedies
from envdoctor.manifests.inputs.recognition import EXPECTED, HINT, read_input
from envdoctor.manifests.inputs.records import STANDARD_INPUT, Document, NothingToAudit
from envdoctor.manifests.joint_solutions import solvable_pins
from envdoctor.manifests.stated_python import StatedTarget, stated_target
from envdoctor.manifests.trial_records import EnvironmentTrial
from envdoctor.manifests.tried_commands import with_tried_commands
from envdoctor.resolution.step import NoSolver, StepSolver, apart
from envdoctor.rules import evaluate

NOT_RESOLVED = "not resolved"
_CONTRADICTIONS = {"RUN002", "RUN015"}
_WITH_EXTRAS = {"pyproject": read_pyproject, "setup.py": read_setup_py}
MAX_BYTES = 32 << 20  # a lock of 500 packages for several platforms has 2 MB


class AuditResult(Record, frozen=True, kw_only=True):
    """The result of an audit."""

    name: str
    kind: str  # format: "guide", "requirements", "uv.lock", "environment" ...
    coverage: Coverage
    findings: tuple[Finding, ...]
    resolution: str = ""  # what the open versions were resolved for, or why they were not
    steps: tuple[Step, ...] = ()  # of a guide
    requirements: tuple[str, ...] = ()  # proposed pins, if there are findings; --fix solves them
    sets: tuple[FixedSet, ...] = ()  # with --fix: the pins of each environment as uv solved them
    written: tuple[str, ...] = ()  # files that --fix wrote
    notes: tuple[str, ...] = ()  # what the written files do not contain
    commands: tuple[str, ...] = ()  # with --fix: what completes the correction, such as `uv lock`
    trials: tuple[EnvironmentTrial, ...] = ()  # with --trial: what was installed and imported
    elsewhere: tuple[str, ...] = ()  # of a directory: other files that have findings of this one as well

    @property
    def is_undecided(self) -> bool:
        """Whether packages of an index that was not read decide about the input."""
        return self.resolution.startswith(NOT_RESOLVED) and self.coverage.has_unread_index


class UnreadableFile(Record, frozen=True):
    """A file of a directory that could not be read, with the reason."""

    file: str
    reason: str


class FileAudit(NamedTuple):
    """The result of a file, and what it installs, for the comparison with other files."""

    result: AuditResult
    document: Document
    stack: Stack | None
    audit: GuideAudit | None = None  # of commands


def is_environment(path: Path) -> bool:
    """Whether a directory is an installed environment."""
    return exists(path / "pyvenv.cfg") or exists(path / "conda-meta")


def audit_environment(target: str, machine: Machine | None) -> AuditResult:
    """Audit an installed environment."""
    stack = select_stack(target, "")
    if not (stack and stack.distributions.value):
        raise _empty_target("package", target)
    findings = evaluate(machine or select_machine("", ()), stack)
    coverage = coverage_of(Document("environment", stack=stack, unread=stack.unread_metadata))
    found = tuple(finding for finding in findings if finding.status != "unknown")
    return AuditResult(name=target, kind="environment", coverage=coverage, findings=found)


def audit_file(
    target: str,
    machine: Machine | None,
    solver: StepSolver | None = None,
    fix: Corrections | None = None,
    *,
    fix_only_problems: bool = False,
    python: str = "",
    judge: Callable[[FileAudit], FileAudit] | None = None,
    on_disk: TextsOfFiles | None = None,
) -> FileAudit:
    """Audit a file. Raises BadInput for unknown content, and NothingToAudit if it cannot be judged.

    With `fix_only_problems`, a file without errors and warnings is not solved. `python` is for environments for which
    the file names none. `judge` adds the findings of a trial; such a file need not have a package of the tables. The
    files of a directory have one `on_disk`, so that the code of their checkout is read once.
    """
    path = Path(target)
    text = read_text(path, expected=EXPECTED, hint=HINT, max_bytes=MAX_BYTES)
    on_disk = on_disk or TextsOfFiles()
    audited = audit_text(text, target, machine, solver, python=python, is_tried=judge is not None, on_disk=on_disk)
    audited = judge(audited) if judge else audited
    result = audited.result
    if fix is None or (fix_only_problems and not problems_of(result.findings)):
        return audited
    if result.kind == "lock":
        raise reject_fix("a lock of a profile", "envdoctor lock NAME")
    # Several files are corrected one by one.
    lists = {each: read for each, read in on_disk.read.items() if each.suffix in (".txt", ".in")}
    own = {} if fix_only_problems else lists
    outcome = _fixed(path, text, audited, machine, solver, fix, python=python, included=own)
    fixed = msgspec.structs.replace(
        result, sets=outcome.sets, written=outcome.written, notes=outcome.notes, commands=outcome.commands
    )
    return audited._replace(result=fixed)


def audit_standard_input(
    machine: Machine | None, solver: StepSolver | None, *, python: str = "", is_tried: bool = False
) -> FileAudit:
    """Audit what is piped to the command. Its content alone determines the format."""
    text, unread = read_pasted_text("-")
    if unread:
        raise BadInput(f"{STANDARD_INPUT} is too large: {unread}", expected=EXPECTED, hint=HINT)
    return audit_text(text, STANDARD_INPUT, machine, solver, python=python, is_tried=is_tried)


def audit_text(
    text: str,
    target: str,
    machine: Machine | None,
    solver: StepSolver | None,
    *,
    python: str = "",
    is_tried: bool = False,
    on_disk: TextsOfFiles | None = None,
    tries_commands: bool = True,
) -> FileAudit:
    """Audit the text of a file. `on_disk` has the texts of files next to it that differ, and those that were read.

    With `tries_commands`, the result has no command that causes another problem.
    """
    if text.startswith("# profile:"):
        return _audit_profile_lock(text, target, machine)
    path, platforms = Path(target), _platforms(machine)
    files = Files(project_folder(path), *platforms, on_disk=on_disk)
    document = read_input(text, path.name, files, platforms[0], target)
    if document.paths:
        stated = stated_target(path, document, text, python)
        stated = stated._replace(earlier=earlier_steps(path, document, platforms))
        return _audit_commands(
            text, target, machine, solver, document, stated, is_tried=is_tried, tries_commands=tries_commands
        )
    return _audit_sets(text, target, machine, document, python, is_tried=is_tried)


def _fixed(  # noqa: PLR0917
    path: Path,
    text: str,
    audited: FileAudit,
    machine: Machine | None,
    solver: StepSolver | None,
    fix: Corrections,
    *,
    python: str,
    included: Mapping[Path, str],
) -> Outcome:
    """Correct a file in the directory of `--fix`."""
    document = audited.document
    if audited.audit is None or is_list(document, text):
        return fix_locked(LockedInput(path, text, document, audited.result.findings), machine, fix)

    def audit_again(corrected: str, on_disk: TextsOfFiles | None = None) -> GuideAudit:
        try:
            audit = audit_text(
                corrected, str(path), machine, solver, python=python, on_disk=on_disk, tries_commands=False
            ).audit
        except ValueError as error:  # a line that was added broke the JSON of a notebook, or the TOML of a project
            raise BadInput(f"the corrected {path.name} is not valid", expected=EXPECTED, hint=HINT) from error
        if audit is None:
            raise BadInput(f"the corrected {path.name} is another file", expected=EXPECTED, hint=HINT)
        return audit

    guide = document.paths[0]
    return fix_commands(
        audited.audit,
        path,
        text=text,
        kind=document.kind,
        audit_again=audit_again,
        check=fix.check(
            check_sets(machine, solver, guide.stated_machine, guide, audited.audit.findings), audited.audit.traces
        ),
        fix=fix,
        included=included,
        unread=audited.result.coverage.unread,
        index=apart(solver.index) if solver else None,
        tried=audited.result.findings,
    )


def _audit_sets(
    text: str, target: str, machine: Machine | None, document: Document, python: str, *, is_tried: bool = False
) -> FileAudit:
    """Audit a lock, or a list of installed packages."""
    coverage, name = coverage_of(document), Path(target).name
    if not coverage.judged and not (is_tried and coverage.packages):
        raise _undecided(target, text, coverage)
    if document.stack:
        findings, stack = audit_stack(document.stack, name, machine), document.stack
    else:
        findings, stack = audit_sets(document.sets, document.kind, target, machine), None
        if python:
            findings += audit_python(document.sets, document.kind, target, machine, text=text, python=python)
    return FileAudit(
        AuditResult(name=target, kind=document.kind, coverage=coverage, findings=tuple(findings)), document, stack
    )


def _platforms(machine: Machine | None) -> tuple[str, ...]:
    """The CPU architectures that an input is judged for."""
    architecture = (machine.system.architecture.value if machine else "") or ""
    return ({"arm64": "aarch64"}.get(architecture, architecture),) if architecture else PLATFORMS


def reject_fix(kind: str, hint: str) -> BadInput:
    """The error for --fix with an input that another command corrects."""
    return BadInput(f"--fix does not support {kind}", expected="a manifest, a lock file or a guide", hint=hint)


def _audit_profile_lock(text: str, target: str, machine: Machine | None) -> FileAudit:
    lock = locks.parse_lock(text, where=target)
    if not lock.packages:
        raise _empty_target("package", target, text)
    stack = stack_of_lock(lock)
    document = Document("lock", stack=stack)
    findings = tuple(_locate_in_lock(finding, text) for finding in audit_lock(lock, machine))
    result = AuditResult(name=target, kind="lock", coverage=coverage_of(document), findings=findings)
    return FileAudit(result, document, stack)


def _locate_in_lock(finding: Finding, text: str) -> Finding:
    """Set the line of the first package that the finding names."""
    lines = text.splitlines()
    words = re.findall(r"[a-z0-9][\w.-]*", finding.message.lower())
    number = next((n for word in words for n, line in enumerate(lines, 1) if line.startswith(f"{word}==")), 0)
    return msgspec.structs.replace(finding, line=number)


def _audit_commands(  # noqa: PLR0917
    text: str,
    target: str,
    machine: Machine | None,
    solver: StepSolver | None,
    document: Document,
    stated: StatedTarget,
    *,
    is_tried: bool,
    tries_commands: bool,
) -> FileAudit:
    """Audit the steps of a guide, a script or a manifest."""
    coverage = coverage_of(document)
    audit = _audit_document(document, machine, solver, stated)
    read = _WITH_EXTRAS.get(document.kind)
    if read and {finding.id for finding in audit.findings} & _CONTRADICTIONS:
        # Not all extras need to fit together: each is an environment of its own.
        files = Files(project_folder(Path(target)), *_platforms(machine))
        parts = read(text, Path(target).name, files, each_extra=True)
        document = parts if parts.paths else document
        audit = _audit_document(document, machine, solver, stated)
    elif read and solver and solver.index:
        files = Files(project_folder(Path(target)), *_platforms(machine))
        alone = read(text, Path(target).name, files, is_alone=True)
        if alone.paths:
            audit = _with_project_alone(audit, _audit_document(alone, machine, solver, stated))
    is_decided = coverage.judged or audit.findings or _is_resolved(audit)
    if not is_decided and not (is_tried and coverage.packages):
        raise _undecided(target, text, coverage)
    tried = audit.findings
    if tries_commands:
        paths = [stated.of(path) for path in document.paths]
        tried = with_tried_commands(tried, paths, machine, date.today().isoformat(), solver)
    index = solver.index if solver else None
    changed = (project_remedies(each, document.kind, text, target, index=index) for each in tried)
    findings = tuple(synced_remedies(each, document.paths[0]) for each in changed)
    findings = with_lock(findings, document.kind, Path(target))
    result = AuditResult(
        name=target,
        kind=document.kind,
        coverage=coverage
        if isinstance(solver, NoSolver | None)
        else with_unread_indexes(coverage, document, (*audit.unresolved, *audit.partial)),
        findings=findings,
        resolution=_resolution(audit, solver),
        steps=audit.steps if document.kind == "guide" else (),
        requirements=_proposed(audit, document, text, machine, stated=stated, solver=solver, findings=tried),
    )
    return FileAudit(result, document, audit.environment, audit)


def _with_project_alone(audit: GuideAudit, alone: GuideAudit) -> GuideAudit:
    """The findings on a project with all its extras, and those that its extras prevent, as by a limit of numpy."""
    found = {(each.line, each.id, each.cause) for each in audit.findings}
    more = [
        msgspec.structs.replace(each, message=f"without the extras: {each.message}")
        for each in alone.findings
        if each.status in ("error", "warning") and (each.line, each.id, each.cause) not in found
    ]
    findings = sorted((*audit.findings, *more), key=lambda each: (each.line, each.id))
    return msgspec.structs.replace(audit, findings=tuple(findings))


def _is_resolved(audit: GuideAudit) -> bool:
    """Whether uv selected the packages of a step: their releases, wheels and requirements can be judged."""
    states = {install.resolution.state for _, trace in audit.traces for install in trace.installs}
    return not states.isdisjoint(("solved", "partial"))


def _resolution(audit: GuideAudit, solver: StepSolver | None) -> str:
    """How the open versions of an input were determined, for the verdict."""
    if audit.unresolved and solver:
        reason = solver.reason or "the indexes that uv reads have no solution, and a step names another index"
        return f"{NOT_RESOLVED} ({reason}): problems of open versions are only noted"
    if not audit.targets:
        return ""
    packages = audit.environment.distributions.value or {}
    torch = audit.environment.torch.value
    selected = f"{len(packages)} package{'' if len(packages) == 1 else 's'}"
    selected += f" with torch {torch.version.value}" if torch and torch.version.value else ""
    of_set = f": {selected}" if _is_resolved(audit) and packages else ""
    return f"resolved with uv for {'; '.join(audit.targets)}{of_set}"


def _proposed(
    audit: GuideAudit, document: Document, text: str, machine: Machine | None, *, stated: StatedTarget,
    solver: StepSolver | None, findings: tuple[Finding, ...],
) -> tuple[str, ...]:  # fmt: skip
    """The proposed pins, if there are problems and one changes; of a list of all packages those that differ."""
    words = {*text.split(), *document.pins}
    if not problems_of(audit.findings) or words.issuperset(audit.requirements):
        return ()
    name = "requirements.txt"
    pins = _audit_document(read_input("\n".join(audit.requirements), name, Files(None)), machine, NoSolver(), stated)
    if any(finding.status == "error" for finding in pins.findings):
        return ()
    proposed = solvable_pins(audit.main, solver, findings if len(audit.sets) == 1 else ())
    changed = tuple(requirement for requirement in proposed if requirement not in words)
    return changed if is_list(document, text) or not changed else proposed


def _audit_document(
    document: Document, machine: Machine | None, solver: StepSolver | None, stated: StatedTarget
) -> GuideAudit:
    paths = [stated.of(path) for path in document.paths]
    return audit_paths(document.guide or paths[0], paths, machine, solver=solver)


def _undecided(target: str, text: str, coverage: Coverage) -> NothingToAudit:
    """The error for a target in which nothing decides whether it works."""
    if not coverage.packages and not coverage.steps and not coverage.unread:
        return _empty_target("requirement or install step", target, text)
    read = f"packages read: {coverage.packages}, steps read: {coverage.steps}"
    unread = f"; not read: {', '.join(coverage.unread[:3])}" if coverage.unread else ""
    return NothingToAudit(
        f"nothing in {target} can be judged: {read}, none of them in the built-in tables{unread}",
        expected="a package of a GPU training stack, such as torch, or a container image with one",
        hint=HINT,
    )


def _empty_target(content: str, target: str, text: str = "") -> NothingToAudit:
    size = f" ({len(text.splitlines())} lines)" if text else ""
    return NothingToAudit(f"there is no {content} in {target}{size}", expected=EXPECTED, hint=HINT)
