"""Apply remedies to a copy of an environment, check the copy, and swap it in only if nothing got worse."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec

from envdoctor import __version__
from envdoctor.core.directories import cache_directory
from envdoctor.core.errors import EnvdoctorError, Interrupted, Refused
from envdoctor.core.records import Finding, Stack
from envdoctor.core.remedies import for_environment, pip_arguments
from envdoctor.download.sources import read_sources, uv_arguments, uv_environment
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
from envdoctor.install.environment_copy import copy_environment, copy_metadata, retarget
from envdoctor.install.environment_lock import environment_lock
from envdoctor.install.fix_records import Fix, FixResult, NotApplied, Trial, TrialFailed
from envdoctor.install.fix_trial import compare_probes, run_command, run_probes
from envdoctor.install.journal import INSTALL, Journal
from envdoctor.install.remedy_plan import (
    Application,
    Fixable,
    backend_conflict,
    combined_steps,
    package_changes,
    planned_changes,
    remaining_findings,
    worse_findings,
)
from envdoctor.install.swap import (
    current_environment_id,
    flush_file_system,
    recover_swap,
    remove_unfinished,
    replace_environment,
)
from envdoctor.locking.uv import describe_unreachable, is_unreachable, run_uv, summarize_error
from envdoctor.profiles import read_profile
from envdoctor.rules import evaluate
from envdoctor.verify.stored_results import write_record

UV_SECONDS = 7200.0
MAX_TRIALS = 8  # copies that are made and checked for one fix
FREE_SPACE = 1 << 30  # bytes that remain free after the copy
WORKS = "it works without the others that failed"


STAGES = ("install", "check", "probes", "command")


def plan_changes(source: Path, applications: Sequence[Application]) -> tuple[tuple[str, ...], str]:
    """The changes of packages that uv plans, and why it cannot plan them. The environment is only read."""
    if conflict := backend_conflict(applications):
        return (), conflict
    with tempfile.TemporaryDirectory(prefix="envdoctor-plan-") as folder:
        skeleton = Path(folder, source.name)
        copy_metadata(source, skeleton)
        changes: list[str] = []
        sources = read_sources()
        for step in combined_steps(applications, str(skeleton / "bin/python")):
            variables = getattr(step, "variables", {})
            extra = uv_arguments(sources) if step.__struct_config__.tag == "install" else []
            done = run_uv(
                [*pip_arguments(step), *extra, "--dry-run"],
                environment=uv_environment(sources) | variables, timeout=UV_SECONDS,
            )  # fmt: skip
            if not done.ok:
                return tuple(changes), _uv_failure(done.output, done.ending)
            changes += planned_changes(done.output)
    return tuple(dict.fromkeys(changes)), ""


def _uv_failure(output: str, ending: str) -> str:
    if is_unreachable(output):
        return describe_unreachable(output)
    return f"uv {ending}: {summarize_error(output)}"


def apply_fix(fix: Fix) -> FixResult:
    """Apply the remedies. Raises EnvdoctorError if the work was not possible; nothing was changed then."""
    started = time.monotonic()
    paths = fix.paths
    is_new = not paths.venv.exists()
    journal = Journal(paths.journal, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}", fix.log)
    try:
        with environment_lock(paths) as lock:
            recover_swap(paths)
            remove_unfinished(paths)
            _require_space(fix)
            try:
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
            f"{error.filename or paths.folder}: {error.strerror or str(error)[:500]}",
            expected=f"a readable environment, and permission to write next to {paths.venv}",
            hint=f"ls -la {paths.venv.parent}; {fix.source} was not changed",
        ) from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"the fix of {fix.source} was interrupted; it was not changed", hint="run the same command again"
        ) from None
    return msgspec.structs.replace(result, log=str(fix.log), seconds=time.monotonic() - started)


def _require_space(fix: Fix) -> None:
    free, size = shutil.disk_usage(fix.paths.folder).free, size_on_disk(fix.source)
    if free < size + FREE_SPACE:
        raise Refused(
            f"{free >> 20:,} MiB are free in {fix.paths.folder.parent}, and {fix.source} has {size >> 20:,} MiB",
            expected="space for a copy of the environment and 1 GiB",
            hint="envdoctor clean, or free space on this file system",
        )


def _solve(fix: Fix, journal: Journal, lock: TextIO) -> FixResult:
    """Try all first alternatives together; if that fails, one finding after the other with its alternatives."""
    choices = [(each, 0) for each in fix.chosen]
    first = _try(fix, choices, journal, lock)
    if not first.failure:
        return _accept(fix, choices, first, journal)
    accepted: list[tuple[Fixable, int]] = []
    reasons: dict[int, str] = {0: first.failure} if len(choices) == 1 else {}
    trials = 1
    for number, each in enumerate(fix.chosen):
        for choice in range(len(choices) == 1, len(each.alternatives)):
            if trials == MAX_TRIALS:
                reasons.setdefault(number, f"not tried: {MAX_TRIALS} copies were made")
                break
            trials += 1
            is_last = len(accepted) == len(choices) - 1
            stage = STAGES[-1] if is_last else first.stage
            last = _try(fix, [*accepted, (each, choice)], journal, lock, stage)
            if not last.failure:
                accepted.append((each, choice))
                reasons.pop(number, None)
                if is_last:
                    return _accept(fix, accepted, last, journal)
                break
            reasons.setdefault(number, last.failure)
    raise NotApplied(_not_applied(fix, first, accepted, reasons))


def _not_applied(
    fix: Fix, first: Trial, accepted: Sequence[tuple[Fixable, int]], reasons: dict[int, str]
) -> FixResult:
    """The result with the reason of each remedy that failed."""
    works = {id(each): choice for each, choice in accepted}
    findings = tuple(
        each.entry("failed", works.get(id(each), 0), reasons.get(number, WORKS))
        for number, each in enumerate(fix.chosen)
    )
    failed = {each.finding for each in findings if each.reason != WORKS}
    possible = dict.fromkeys(each.finding.id for each, _ in accepted if each.finding.id not in failed)
    return FixResult(
        venv=str(fix.source), target=str(fix.paths.venv), applied=False, findings=findings, failure=first.failure,
        possible=tuple(possible), notes=first.notes, command=first.command,
        probes=first.verification.results if first.verification else (),
    )  # fmt: skip


def _try(
    fix: Fix, choices: Sequence[tuple[Fixable, int]], journal: Journal, lock: TextIO, stage: str = STAGES[-1]
) -> Trial:
    """Apply remedies to a new copy and test it, up to this stage."""
    try:
        return _run_trial(fix, choices, journal, lock, STAGES[: STAGES.index(stage) + 1])
    except TrialFailed as failed:
        return failed.trial


def _run_trial(
    fix: Fix, choices: Sequence[tuple[Fixable, int]], journal: Journal, lock: TextIO, stages: Sequence[str]
) -> Trial:
    building = fix.paths.building
    names = ", ".join(dict.fromkeys(each.finding.id for each, _ in choices))
    remove_unfinished(fix.paths)
    fix.reporter.phase(f"Copying {fix.source}")
    with journal.step("copy"):
        copy_environment(fix.source, building)
    fix.reporter.phase(f"Applying the remedies of {names}")
    with journal.step("install", detail=names):
        _install(fix, [each.alternatives[choice] for each, choice in choices], lock)
    if "check" not in stages:
        return Trial("install")
    fix.reporter.phase("Checking the copy")
    with journal.step("check"):
        trial = _check(fix, [each for each, _ in choices])
    if "probes" in stages:
        with journal.step("probes"):
            trial = _probe(fix, trial)
    if "command" in stages and fix.words:
        fix.reporter.phase(f"Running {' '.join(fix.words)}")
        with journal.step("command", command=fix.words):
            done = run_command(fix.words, building, fix.log)
            trial = trial._replace(command=done, stage="command")
            if done.exit_code:
                raise TrialFailed(trial._replace(failure=f"{done.command} {done.ending}: {done.last_line}"))
    return trial


def _check(fix: Fix, fixables: Sequence[Fixable]) -> Trial:
    """Evaluate the rules on the copy, with the same machine."""
    stack = read_stack(fix.paths.building, cache_directory())
    after = _at(evaluate(fix.machine, stack), fix.paths)
    trial = Trial("check", "", stack, after)
    for verb, findings in (
        ("has new problems", worse_findings(fix.before, after)),
        ("still has problems", remaining_findings(fixables, fix.before, after)),
    ):
        if findings:
            shown = "; ".join(f"{each.id} {each.message}" for each in findings[:3])
            raise TrialFailed(trial._replace(failure=f"the copy {verb}: {shown}"))
    return trial


def _install(fix: Fix, applications: Sequence[Application], lock: TextIO) -> None:
    """Run uv in the copy."""
    if conflict := backend_conflict(applications):
        raise TrialFailed(Trial("install", conflict))
    sources = read_sources()
    for step in combined_steps(applications, str(fix.paths.building / "bin/python")):
        variables = getattr(step, "variables", {})
        extra = uv_arguments(sources) if step.__struct_config__.tag == "install" else []
        done = run_uv(
            [*pip_arguments(step), *extra], environment=uv_environment(sources) | variables, timeout=UV_SECONDS,
            log=fix.log, pass_fds=(lock.fileno(),),
        )  # fmt: skip
        if not done.ok:
            raise TrialFailed(Trial("install", _uv_failure(done.output, done.ending)))


def _probe(fix: Fix, trial: Trial) -> Trial:
    """Run the quick probes in the copy, and those that failed also in the original."""
    record = read_install_record(fix.source)
    outcome = run_probes(fix.paths.building, fix.verify, fix.machine, record, fix.reporter)
    if isinstance(outcome, str):
        return trial._replace(notes=(*trial.notes, outcome))
    trial = trial._replace(verification=outcome, stage="probes")
    if failure := compare_probes(outcome, fix.source, fix.machine, record, fix.reporter):
        raise TrialFailed(trial._replace(failure=failure))
    return trial


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
    for_target = [
        msgspec.structs.replace(each, remedies=for_environment(each.remedies, python)) for each in remaining
    ]
    return FixResult(
        venv=str(fix.source), target=str(paths.venv), applied=True, notes=trial.notes, command=trial.command,
        findings=tuple(each.entry("fixed", choice) for each, choice in choices),
        changes=package_changes(fix.stack, trial.stack), remaining=tuple(for_target),
        probes=trial.verification.results if trial.verification else (),
        previous=str(paths.previous) if replaced else "",
    )  # fmt: skip


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
