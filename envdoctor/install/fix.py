"""Apply remedies to a copy of an environment, check the copy, and swap it in only if nothing got worse."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from envdoctor import __version__
from envdoctor.core.command_line import command_line
from envdoctor.core.directories import cache_directory
from envdoctor.core.errors import EnvdoctorError, Interrupted, Refused
from envdoctor.core.records import Finding, Stack
from envdoctor.core.remedies import command_of
from envdoctor.environment.inspect import read_stack
from envdoctor.environment.managed import (
    VERIFICATION,
    EnvironmentPaths,
    InstallRecord,
    installed_size,
    read_install_record,
    size_on_disk,
    write_install_record,
)
from envdoctor.install.environment_copy import copy_environment, retarget
from envdoctor.install.environment_lock import environment_lock
from envdoctor.install.environment_use import require_unused
from envdoctor.install.fix_records import Fix, FixResult, NotApplied, Trial, TrialFailed
from envdoctor.install.fix_search import Search
from envdoctor.install.fix_trial import compare_probes, notes_on_failures, run_command, run_probes
from envdoctor.install.fix_uv import run_steps
from envdoctor.install.journal import INSTALL, Journal
from envdoctor.install.remedy_plan import (
    Fixable,
    FixedFinding,
    combined_steps,
    package_changes,
    remaining_findings,
    with_interpreter,
    worse_findings,
)
from envdoctor.install.swap import (
    current_environment_id,
    flush_file_system,
    recover_swap,
    remove_unfinished,
    replace_environment,
)
from envdoctor.profiles import read_profile
from envdoctor.remedies import add_pinned_remedies
from envdoctor.rules import evaluate
from envdoctor.verify.stored_results import write_record

MAX_TRIALS = 12  # remedies that are tried one after the other
FREE_SPACE = 1 << 30  # bytes that remain free after the copy
WORKS = "it works without the others that failed"
GONE = "gone with the other remedies"


def apply_fix(fix: Fix) -> FixResult:
    """Apply the remedies. Raises EnvdoctorError if the work was not possible; nothing was changed then."""
    started = time.monotonic()
    paths = fix.paths
    is_new = not paths.venv.exists()
    journal = Journal(paths.journal, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}", fix.log)
    try:
        with environment_lock(paths) as lock:
            command = f"wait for it, then {command_line('envdoctor', 'fix', '--venv', paths.venv)}"
            require_unused(paths, force=False, command=command)
            recover_swap(paths)
            remove_unfinished(paths)
            try:
                _require_space(fix)
                with journal.step(INSTALL, detail=f"fix {', '.join(each.finding.id for each in fix.chosen)}"):
                    result = _solve(fix, journal, lock)
            except NotApplied as unchanged:
                result = unchanged.result
            finally:
                remove_unfinished(paths)
                if is_new and not paths.venv.exists():
                    shutil.rmtree(paths.folder, ignore_errors=True)
    except OSError as error:
        raise EnvdoctorError(
            _copy_error(error) or f"{error.filename or paths.folder}: {error.strerror}",
            expected=f"a readable environment, and permission to write next to {paths.venv}",
            hint=f"{command_line('ls', '-la', paths.venv.parent)}; {fix.source} was not changed",
        ) from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"the fix of {fix.source} was interrupted; it was not changed", hint="run the same command again"
        ) from None
    return msgspec.structs.replace(result, log=str(fix.log), seconds=time.monotonic() - started)


def _copy_error(error: OSError) -> str:
    """The first file that could not be copied; empty for another error."""
    if not isinstance(error, shutil.Error) or not error.args or not isinstance(error.args[0], list):
        return ""
    source, _, reason = error.args[0][0]
    reason = re.sub(r"^\[Errno \d+\] ([^:]+):.*", r"\1", str(reason))
    more = len(error.args[0]) - 1
    return f"{source}: {reason}" + (f", and {more} more" if more else "")


def _require_space(fix: Fix) -> None:
    free, size = shutil.disk_usage(fix.paths.folder).free, size_on_disk(fix.source)
    if free < size + FREE_SPACE:
        raise Refused(
            f"{free >> 20:,} MiB are free in {fix.paths.folder.parent}, and {fix.source} has {size >> 20:,} MiB",
            expected="space for a copy of the environment and 1 GiB",
            hint="envdoctor clean, or free space on this file system",
        )


def _solve(fix: Fix, journal: Journal, lock: TextIO) -> FixResult:
    """Try the first alternatives of all findings together; if that fails, search for remedies that work together."""
    choices = list(fix.choices)
    search = Search(fix.before, fix.stack)
    try:
        _copy(fix, journal)
        _install(fix, journal, lock, choices)
        trial = _check(fix, journal)
        if not _problems_left(fix, trial.after):
            return _accept(fix, choices, _test(fix, journal, trial), journal)
        first = trial._replace(failure=_problems_left(fix, trial.after))
    except TrialFailed as failed:
        first = failed.trial
    if first.stage not in ("install", "check"):  # the probes and the command concern all remedies
        raise NotApplied(_not_applied(fix, first, search))
    if len(choices) == 1:
        search.exclude(*choices[0], first.failure)
    try:
        while search.trials < MAX_TRIALS:
            candidate = search.next_candidate(fix)
            if not candidate:
                if search.restart():
                    continue
                break
            found = _add(fix, journal, lock, search, candidate)
            if found and not _problems_left(fix, found.after):
                return _accept(fix, search.accepted, _test(fix, journal, found), journal)
    except TrialFailed as failed:
        first = failed.trial
    raise NotApplied(_not_applied(fix, first, search))


def _add(fix: Fix, journal: Journal, lock: TextIO, search: Search, candidate: tuple[Fixable, int]) -> Trial | None:
    """Apply one more remedy to a copy with the accepted ones. None if uv finds no solution."""
    if search.needs_copy:
        _copy(fix, journal)
        if search.accepted:
            _install(fix, journal, lock, search.accepted)
        search.needs_copy = False
    choices = [*search.accepted, candidate]
    try:
        _install(fix, journal, lock, choices)
    except TrialFailed as failed:
        search.exclude(*candidate, failed.trial.failure)
        # uv resolves before it changes anything, but a removal comes before the install.
        search.needs_copy = len(combined_steps([each.alternatives[n] for each, n in choices], "")) > 1
        return None
    trial = _check(fix, journal)
    search.consider(candidate, trial, _problems_left(fix, trial.after))
    return trial


def _not_applied(fix: Fix, trial: Trial, search: Search) -> FixResult:
    """The result with the reason of each remedy that failed."""
    works = {finding.message for finding in search.best}
    findings = tuple(
        each.entry(
            "failed",
            0,
            WORKS if each.finding.message in works else search.reasons.get(each.finding.message, trial.failure),
        )
        for each in fix.chosen
    )
    return FixResult(
        venv=str(fix.source), target=str(fix.paths.venv), applied=False, findings=findings, failure=trial.failure,
        possible=tuple(dict.fromkeys(each.id for each in search.best)), notes=trial.notes, command=trial.command,
        probes=trial.verification.results if trial.verification else (),
    )  # fmt: skip


def _problems_left(fix: Fix, after: Sequence[Finding]) -> str:
    """Why the copy is not good enough; empty if it is."""
    for verb, findings in (
        ("has new problems", worse_findings(fix.before, after)),
        ("still has problems", remaining_findings(fix.chosen, fix.before, after)),
    ):
        if findings:
            return f"the copy {verb}: {'; '.join(f'{each.id} {each.message}' for each in findings[:3])}"
    return ""


def _copy(fix: Fix, journal: Journal) -> None:
    remove_unfinished(fix.paths)
    fix.reporter.phase(f"Copying {fix.source}")
    with journal.step("copy"):
        copy_environment(fix.source, fix.paths.building)


def _install(fix: Fix, journal: Journal, lock: TextIO, choices: Sequence[tuple[Fixable, int]]) -> None:
    """Apply remedies in the copy."""
    names = ", ".join(dict.fromkeys(each.finding.id for each, _ in choices))
    fix.reporter.phase(f"Applying the remedies of {names}")
    python = str(fix.paths.building / "bin/python")
    applications = [each.alternatives[choice] for each, choice in choices]
    with journal.step("install", detail=names):
        done = run_steps(applications, python, fix.machine, fix.stack, log=fix.log, pass_fds=(lock.fileno(),))
        if done.failure:
            raise TrialFailed(Trial("install", done.failure))


def _check(fix: Fix, journal: Journal) -> Trial:
    """Evaluate the rules on the copy, with the same machine."""
    fix.reporter.phase("Checking the copy")
    with journal.step("check"):
        stack = read_stack(fix.paths.building, cache_directory())
        after = _at(add_pinned_remedies(fix.machine, stack, evaluate(fix.machine, stack)), fix.paths)
    python = f"{fix.source}/bin/python"
    return Trial("check", "", stack, with_interpreter(after, python))


def _test(fix: Fix, journal: Journal, trial: Trial) -> Trial:
    """Run the quick probes and the user's command in the copy. Raises TrialFailed."""
    with journal.step("probes"):
        trial = _probe(fix, trial)
    if fix.words:
        fix.reporter.phase(f"Running {' '.join(fix.words)} (output: {fix.log})")
        with journal.step("command", command=fix.words):
            done = run_command(fix.words, fix.paths.building, fix.log, fix.source)
            trial = trial._replace(command=done, stage="command")
            if done.failure:
                raise TrialFailed(trial._replace(failure=done.failure))
    return trial


def _probe(fix: Fix, trial: Trial) -> Trial:
    """Run the quick probes in the copy, and those that failed also in the original."""
    record = read_install_record(fix.source)
    outcome = run_probes(fix.paths.building, fix.verify, fix.machine, record, fix.reporter)
    if isinstance(outcome, str):
        return trial._replace(notes=(*trial.notes, outcome))
    trial = trial._replace(verification=outcome, stage="probes")
    if failure := compare_probes(outcome, fix.source, fix.machine, record, fix.reporter):
        raise TrialFailed(trial._replace(failure=failure))
    return trial._replace(notes=(*trial.notes, *notes_on_failures(outcome.results)))


def _accept(fix: Fix, choices: Sequence[tuple[Fixable, int]], trial: Trial, journal: Journal) -> FixResult:
    """Move the copy to its place."""
    paths = fix.paths
    assert trial.stack, "it was read by the check"
    python = str(paths.venv / "bin/python")
    with journal.step("mark"):
        retarget(paths.building, paths.building, paths.venv)
        record = _install_record(fix, trial.stack, journal.install)
        if trial.verification:
            stored = msgspec.structs.replace(trial.verification, python=python, lock=record.lock)
            write_record(paths.building / VERIFICATION, stored)
        flush_file_system(paths.building)
        write_install_record(paths.building, record)
    with journal.step("swap"):
        replaced = replace_environment(paths)
    remaining = [finding for finding in trial.after if finding.status in ("error", "warning")]
    return FixResult(
        venv=str(fix.source), target=str(paths.venv), applied=True, notes=trial.notes, command=trial.command,
        findings=_fixed(fix, choices, python),
        commands=tuple(map(command_of, combined_steps([each.alternatives[n] for each, n in choices], python))),
        changes=package_changes(fix.stack, trial.stack), remaining=tuple(with_interpreter(remaining, python)),
        probes=trial.verification.results if trial.verification else (),
        previous=str(paths.previous) if replaced else "",
    )  # fmt: skip


def _fixed(fix: Fix, choices: Sequence[tuple[Fixable, int]], python: str) -> tuple[FixedFinding, ...]:
    """The entries of the chosen findings, and of problems that a remedy caused and another one fixed."""
    entries = {
        each.finding.message: msgspec.structs.replace(each.entry("fixed"), commands=(), manual=(), reason=GONE)
        for each in fix.chosen
    }
    for each, choice in choices:
        commands = tuple(map(command_of, combined_steps([each.alternatives[choice]], python)))
        entries[each.finding.message] = msgspec.structs.replace(each.entry("fixed", choice), commands=commands)
    return tuple(entries.values())


def _at(findings: Sequence[Finding], paths: EnvironmentPaths) -> list[Finding]:
    """The findings of the copy, with the paths of its final place."""
    data = msgspec.json.encode(list(findings))
    building, venv = (msgspec.json.encode(str(path))[1:-1] for path in (paths.building, paths.venv))
    return msgspec.json.decode(data.replace(building, venv), type=list[Finding])


def _install_record(fix: Fix, stack: Stack, identifier: str) -> InstallRecord:
    """The record of the repaired environment. No lock describes it, so that a later install replaces it."""
    versions = {name: each.version for name, each in (stack.distributions.value or {}).items()}
    packages = "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))
    torch = stack.torch.value
    old = read_install_record(fix.source)
    return InstallRecord(
        profile=old.profile if old else "fixed",
        lock=hashlib.sha256(packages.encode()).hexdigest()[:16],
        torch_build=(torch.cuda.value or "cpu") if torch else "",
        torch_source=old.torch_source if old else "",
        packages=len(versions),
        size=installed_size(fix.paths.building),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        required=old.required if old else read_profile("cpu").verify.required,
        environment=old.environment if old else {},
        envdoctor=__version__,
        id=identifier,
        replaces=current_environment_id(fix.paths),
        python=".".join((stack.python_version.value or "").split(".")[:2]),
        wheels=tuple(wheel for wheel in old.wheels if wheel.name in versions) if old else (),
        fallbacks=old.fallbacks if old else {},
    )
