"""Execute an install plan: build the new environment, check it, and swap it in."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from envdoctor import __version__
from envdoctor.core.command_line import command_line
from envdoctor.core.errors import EnvdoctorError, Interrupted
from envdoctor.core.processes import sigterm_as_interrupt
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine
from envdoctor.core.reporter import InstallProgress
from envdoctor.environment.inspect import read_stack
from envdoctor.environment.managed import (
    LOCK_FILE,
    EnvironmentPaths,
    InstallRecord,
    WheelUsed,
    check_replaceable,
    installed_size,
    read_install_record,
    write_install_record,
)
from envdoctor.install.build_step import build_package, is_prebuilt, lock_after_step
from envdoctor.install.environment_lock import environment_lock, is_running
from envdoctor.install.environment_use import require_unused
from envdoctor.install.journal import INSTALL, Journal, read_journal, unfinished_install
from envdoctor.install.lock_check import UNCHANGED, check_stack, check_torch_build, check_versions, drift
from envdoctor.install.plan import Plan, Step
from envdoctor.install.preflight import Availability, Survey, install_missing_needs, survey
from envdoctor.install.progress import DownloadTracker
from envdoctor.install.swap import (
    current_environment_id,
    flush_file_system,
    recover_swap,
    remove_unfinished,
    replace_environment,
    reuse_finished_build,
)
from envdoctor.install.system_packages import install_command, package_manager
from envdoctor.install.wheel_platforms import are_for_this_platform
from envdoctor.install.wheel_step import WheelOutcome, add_wheel
from envdoctor.locking.lock_files import format_lock
from envdoctor.locking.uv import describe_unreachable, is_unreachable, run_uv, summarize_error

# Seconds before a retry of an unreachable source. uv's cache keeps finished downloads.
RETRY_DELAYS = (2.0, 8.0, 30.0)


class StepRecord(Record, frozen=True):
    """The result of one step."""

    name: str
    seconds: float
    exit_code: int


class InstallResult(Record, frozen=True):
    """The result of an install."""

    venv: str
    python: str
    installed: InstallRecord
    steps: tuple[StepRecord, ...]
    seconds: float
    log: str
    unchanged: bool = False  # the same lock was already installed
    previous: str = ""  # the replaced environment, kept for rollback
    resumed: str = ""  # what was recovered of an install that was killed
    survey: Survey | None = None
    wheels: tuple[WheelOutcome, ...] = ()
    findings: tuple[Finding, ...] = ()  # warnings of the rules
    advice: tuple[str, ...] = ()  # unmet recommendations of the profile


class InstallContext(NamedTuple):
    """What all steps of an install use."""

    plan: Plan
    machine: Machine
    paths: EnvironmentPaths
    journal: Journal
    log: Path
    cache: Path
    on_progress: Callable[[InstallProgress], None]
    lock: TextIO  # the open lock file of the environment, which uv inherits
    cached: bool = False  # uv's cache has every wheel: no source is needed
    python: str = ""  # the interpreter that the survey found


def install(
    plan: Plan,
    machine: Machine,
    log: Path,
    cache: Path,
    on_progress: Callable[[InstallProgress], None],
    *,
    wheels: Availability | None = None,
    force: bool = False,
) -> InstallResult:
    """Build the environment and swap it in. The current environment is not changed before the last step.

    `cache` is envdoctor's own cache, for direct wheels, builds and scanned binaries. `wheels` is the availability of
    the lock's wheels if it was checked already. `force` replaces an environment that is in use.
    """
    started = time.monotonic()
    venv = Path(plan.venv)
    check_replaceable(venv, adopt=plan.adopt)
    paths = EnvironmentPaths(venv)
    journal = Journal(paths.journal, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}", log)
    recovered = ""
    try:
        with sigterm_as_interrupt():
            if paths.folder.exists():
                with environment_lock(paths):
                    recovered = _recover(paths, journal)
                    check_replaceable(venv, adopt=plan.adopt)  # the recovery may have restored an environment
                    if record := read_matching_record(plan):
                        return _unchanged(record, plan, recovered)
            found = survey(plan, wheels)  # before anything is written
            with environment_lock(paths) as lock:
                check_replaceable(venv, adopt=plan.adopt)
                if record := read_matching_record(plan):  # another process has installed it meanwhile
                    return _unchanged(record, plan, recovered)
                command = command_line("envdoctor", "install", plan.profile, "--venv", venv, "--force")
                require_unused(paths, force=force, command=command)
                context = InstallContext(
                    plan, machine, paths, journal, log, cache, on_progress, lock, found.cached, found.python
                )
                with journal.step(INSTALL, detail=f"{plan.profile} {plan.lock.digest} into {venv}"):
                    if plan.install_system and found.needs:
                        with journal.step("system", command=install_command(found.needs, package_manager())):
                            found = install_missing_needs(found, plan, log)
                    result = _build_and_swap(context)
    except OSError as error:
        raise EnvdoctorError(
            f"{error.filename or venv}: {error.strerror or error}",
            expected=f"a writable directory with enough space for {venv}",
            hint=f"envdoctor install --venv PATH; {UNCHANGED}",
        ) from error
    except KeyboardInterrupt:
        state = f"{venv} was not changed" if venv.exists() else "no partial environment was left"
        raise Interrupted(
            f"the install of {plan.profile} was interrupted; {state}",
            hint="continue with: "
            + command_line("envdoctor", "install", plan.profile, "--venv", venv)
            + " (downloads are kept)",
        ) from None
    return msgspec.structs.replace(
        result, seconds=time.monotonic() - started, log=str(log), resumed=recovered, survey=found
    )


def read_matching_record(plan: Plan) -> InstallRecord | None:
    """The record of the current environment if it contains exactly what the plan would install."""
    venv = Path(plan.venv)
    record = read_install_record(venv)
    if record is None or (record.lock, record.request) != (plan.lock.digest, plan.request):
        return None
    if not (venv / "bin/python").exists() or drift(venv, plan.lock, record.wheels):
        return None
    return record


def _unchanged(record: InstallRecord, plan: Plan, recovered: str) -> InstallResult:
    """The result if nothing is installed. Updates the probes and variables of the record from the profile."""
    current = msgspec.structs.replace(
        record,
        profile=plan.profile,
        required=plan.required_probes,
        environment=run_environment(plan, record.fallbacks),
    )
    if current != record:
        write_install_record(Path(plan.venv), current)
    python = f"{plan.venv}/bin/python"
    return InstallResult(plan.venv, python, current, (), 0.0, "", unchanged=True, resumed=recovered)


def run_environment(plan: Plan, fallbacks: dict[str, str]) -> dict[str, str]:
    """The variables for programs in the environment, including the fallback for missing attention wheels."""
    return plan.run_environment | ({"ATTN_IMPL": attention_fallback(fallbacks)} if fallbacks else {})


def _recover(paths: EnvironmentPaths, journal: Journal) -> str:
    """Recover from an install that was killed. Returns a message, or an empty string if there was none."""
    contents = read_journal(paths.journal)
    last = unfinished_install(contents.entries)
    recovered = recover_swap(paths)
    messages = []
    if contents.damaged:
        lines = "1 line" if contents.damaged == 1 else f"{contents.damaged} lines"
        messages.append(f"{lines} of {paths.journal} cannot be read")
    if paths.journal.is_symlink() or paths.journal.is_dir():
        messages.append(f"{paths.journal} is not a regular file and is renamed")
    if last:
        running = "is still running" if is_running(str(last.process)) and last.process != os.getpid() else "has ended"
        messages.append(
            f"the install {last.install} did not complete: its last record is the {last.event} of '{last.step}' "
            f"({last.at}, process {last.process}, which {running})"
        )
    if messages:
        with contextlib.suppress(OSError):
            interrupted = Journal(journal.path, last.install if last else journal.install, journal.log)
            interrupted.write(INSTALL, "end", detail="recorded by the next install: this install has no recorded end")
    return "; ".join(filter(None, (*messages, recovered)))


def _build_and_swap(context: InstallContext) -> InstallResult:
    """Build the new environment, or reuse one that a killed install had finished, and swap it in."""
    paths, plan = context.paths, context.plan
    records: list[StepRecord] = []
    outcomes: list[WheelOutcome] = []
    findings: tuple[Finding, ...] = ()
    if not reuse_finished_build(paths, plan.request, plan.lock.digest):
        remove_unfinished(paths)
        try:
            for number, step in enumerate(plan.steps):
                if not is_prebuilt(step, outcomes):
                    records.append(_run_step(context, number, _with_interpreter(step, context.python), outcomes))
            with context.journal.step("guard"):
                findings = _check_build(context, outcomes)
            with context.journal.step("mark"):
                flush_file_system(paths.building)
                write_install_record(paths.building, _install_record(context, outcomes))
        except BaseException:
            remove_unfinished(paths)
            raise
    with context.journal.step("swap"):
        replaced = replace_environment(paths)
    installed = read_install_record(paths.venv)
    assert installed, "it was written a moment ago"
    return InstallResult(
        str(paths.venv), str(paths.venv / "bin/python"), installed, tuple(records), 0.0, "",
        previous=str(paths.previous) if replaced else "",
        wheels=tuple(outcomes), findings=findings,
    )  # fmt: skip


def _with_interpreter(step: Step, interpreter: str) -> Step:
    """The step with the interpreter that the survey found, so that uv need not search PATH again."""
    if step.name != "venv" or not interpreter.startswith("/"):
        return step
    at = step.arguments.index("--python") + 1
    return msgspec.structs.replace(step, arguments=(*step.arguments[:at], interpreter, *step.arguments[at + 1 :]))


def _run_step(context: InstallContext, number: int, step: Step, outcomes: list[WheelOutcome]) -> StepRecord:
    """Run one step, record it in the journal, and check the installed versions."""
    plan, building, cache = context.plan, context.paths.building, context.cache
    if step.name == "sync":
        (building / LOCK_FILE).write_text(format_lock(plan.lock))

    def on_progress(done: int, total: int, doing: str) -> None:
        context.on_progress(InstallProgress(number + 1, len(plan.steps), step.title, done, total, doing))

    with context.journal.step(step.name, command=("uv", *step.arguments)):
        started = time.monotonic()
        if step.wheels:
            outcomes.append(
                add_wheel(step, plan, building, cache, on_progress=on_progress, log=context.log, lock=context.lock)
            )
        elif step.built:
            result = build_package(
                step, plan, cache, context.machine, on_progress=on_progress, log=context.log, lock=context.lock
            )
            if not result.ok:
                raise _step_error(step, result.output, result.ending, context.log)
        else:
            _run_uv_step(context, number, step)
        if step.name != "venv":
            check_versions(building, lock_after_step(plan, number), _used_wheels(outcomes))
    return StepRecord(step.name, time.monotonic() - started, 0)


def _run_uv_step(context: InstallContext, number: int, step: Step) -> None:
    """Run uv. If a source is unreachable, retry after a delay."""
    tracker = DownloadTracker()
    steps = len(context.plan.steps)

    def poll(text: str) -> None:
        tracker.read(text)
        context.on_progress(
            InstallProgress(
                number + 1, steps, step.title, tracker.done, tracker.total, tracker.current_line, tracker.rate()
            )
        )

    offline = ("--offline",) if context.cached and step.name == "sync" else ()
    for delay in (*RETRY_DELAYS, None):
        poll("")
        result = run_uv(
            (*step.arguments, *offline), environment=context.plan.environment, timeout=step.deadline,
            log=context.log, on_output=poll, pass_fds=(context.lock.fileno(),),
        )  # fmt: skip
        output = result.output if not result.timed_out else result.ending
        if result.ok or (step.name == "check" and _is_for_this_platform(context, output)):
            return
        if delay is None or not is_unreachable(output):
            break
        tracker.current_line = f"{describe_unreachable(output)}; trying again in {delay:.0f} s"
        poll("")
        time.sleep(delay)
    raise _step_error(step, output, result.ending, context.log)


def _is_for_this_platform(context: InstallContext, output: str) -> bool:
    return are_for_this_platform(output, context.paths.building, platform.machine())


def _step_error(step: Step, output: str, ending: str, log: Path) -> EnvdoctorError:
    if is_unreachable(output):
        return EnvdoctorError(
            f"{step.title}: {describe_unreachable(output)}",
            expected="the sources that the profile was resolved from",
            hint=f"check the network and run the same command again (downloads are kept); the log is {log}",
        )
    error = EnvdoctorError(
        f"{step.title}: uv {ending}: {summarize_error(output)}{_full_disk(log)}",
        expected="exit code 0",
        hint=f"read the log {log}; {UNCHANGED}",
    )
    error.log = str(log)
    return error


def _full_disk(log: Path) -> str:
    """A message if the disk of uv's log is full: uv then ends without an error message."""
    folder = next(folder for folder in log.parents if folder.exists())
    free = os.statvfs(folder).f_bavail
    return "" if free else f"; the disk of its log is full ({folder}): export XDG_STATE_HOME=/path/with/free/space"


def _check_build(context: InstallContext, outcomes: list[WheelOutcome]) -> tuple[Finding, ...]:
    """Check the complete environment before it is swapped in. Returns the warnings of the rules."""
    building, lock = context.paths.building, context.plan.lock
    check_versions(building, lock, _used_wheels(outcomes))
    stack = read_stack(building, context.cache)
    check_torch_build(stack, lock)
    return check_stack(stack, context.machine)


def _used_wheels(outcomes: list[WheelOutcome]) -> tuple[WheelUsed, ...]:
    return tuple(outcome.used for outcome in outcomes if outcome.used)


def _install_record(context: InstallContext, outcomes: list[WheelOutcome]) -> InstallRecord:
    plan, wheels = context.plan, _used_wheels(outcomes)
    torch = next((package for package in plan.lock.packages if package.name == "torch"), None)
    fallbacks = {outcome.name: outcome.fallback for outcome in outcomes if outcome.fallback}
    return InstallRecord(
        profile=plan.profile,
        lock=plan.lock.digest,
        torch_build=plan.lock.torch_build,
        torch_source=torch.source if torch else "",
        packages=len({package.name for package in plan.lock.packages} | {wheel.name for wheel in wheels}),
        size=installed_size(context.paths.building),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        required=plan.required_probes,
        environment=run_environment(plan, fallbacks),
        envdoctor=__version__,
        id=context.journal.install,
        replaces=current_environment_id(context.paths),
        request=plan.request,
        python=plan.lock.python,
        wheels=wheels,
        fallbacks=fallbacks,
    )


def attention_fallback(fallbacks: dict[str, str]) -> str:
    """The attention implementation if wheels are missing. A fallback without a wheel gives way to its own."""
    distributions = {"flash_attention_3": "flash-attn-3", "flash_attention_2": "flash-attn"}
    chosen = next(iter(fallbacks.values()))
    for _ in fallbacks:
        chosen = fallbacks.get(distributions.get(chosen, ""), chosen)
    return chosen
