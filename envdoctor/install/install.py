"""Carry out a plan: build beside the current environment, check it, and only then let it take its place."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EnvdoctorError, Interrupted
from envdoctor.core.processes import Finished, ended_as_by_ctrl_c
from envdoctor.core.records import Finding, Machine, Record
from envdoctor.core.reporter import InstallProgress
from envdoctor.environment.inspect import read_stack
from envdoctor.environment.managed import (
    LOCK_FILE,
    EnvironmentPaths,
    InstallRecord,
    WheelUsed,
    check_replaceable,
    installed_size,
    is_foreign,
    read_install_record,
    write_install_record,
)
from envdoctor.install.build_step import add_build, is_prebuilt, lock_until
from envdoctor.install.environment_lock import environment_lock, is_running
from envdoctor.install.journal import WHOLE, Journal, read_journal, unfinished
from envdoctor.install.lock_check import drift, guard_build, guard_stack, guard_versions
from envdoctor.install.plan import Plan, Step
from envdoctor.install.preflight import Availability, Survey, meet_needs, survey
from envdoctor.install.progress import DownloadTracker
from envdoctor.install.swap import (
    current_environment_id,
    flush_file_system,
    recover_swap,
    remove_unfinished,
    retain_previous,
    reuse_finished_build,
    swap_in,
)
from envdoctor.install.system_packages import command_for, package_manager
from envdoctor.install.wheel_step import WheelOutcome, add_wheel
from envdoctor.locking.lock_files import file_of, lock_text
from envdoctor.locking.uv import is_unreachable, reason, run_uv, unreachable

PAUSES = (2.0, 8.0, 30.0)  # seconds before the sources are asked again; what was downloaded stays in uv's cache


class StepRecord(Record, frozen=True):
    """How one step went."""

    name: str
    seconds: float
    exit_code: int


class InstallResult(Record, frozen=True):
    """What an install did."""

    venv: str
    python: str
    installed: InstallRecord
    steps: tuple[StepRecord, ...]
    seconds: float
    log: str
    unchanged: bool = False  # the same lock was already there
    previous: str = ""  # the environment that it replaced, kept for rollback
    resumed: str = ""  # what an install that was killed had left
    survey: Survey | None = None
    wheels: tuple[WheelOutcome, ...] = ()
    findings: tuple[Finding, ...] = ()  # warnings of the rules
    advice: tuple[str, ...] = ()  # what the profile recommends of the machine and does not find


class Work(NamedTuple):
    """What every step needs to know."""

    plan: Plan
    machine: Machine
    paths: EnvironmentPaths
    journal: Journal
    log: Path
    on_progress: Callable[[InstallProgress], None]
    held: TextIO
    cached: bool = False  # every wheel is in uv's cache: no source is asked
    python: str = ""  # the interpreter that was found


def install(
    plan: Plan,
    machine: Machine,
    log: Path,
    cache: Path,
    on_progress: Callable[[InstallProgress], None],
    *,
    wheels: Availability | None = None,
) -> InstallResult:
    """Build the environment and swap it in; the current one stays as it was until the last step.

    `cache` is envdoctor's own cache folder: what was read of compiled files, wheels that no index has. `wheels` is
    what uv said of the lock, if it was asked already.
    """
    started = time.monotonic()
    venv = Path(plan.venv)
    check_replaceable(venv, adopt=plan.adopt)
    paths = EnvironmentPaths(venv)
    journal = Journal(paths.journal, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}", log)
    found = ""
    try:
        with ended_as_by_ctrl_c():
            if paths.folder.exists():
                with environment_lock(paths):
                    found = _take_over(paths, journal)
                    check_replaceable(venv, adopt=plan.adopt)  # it may have come back just now
                    if present := read_current(plan):
                        return _unchanged(present, plan, found)
            asked = survey(plan, wheels)  # before anything is written
            with environment_lock(paths) as held:
                check_replaceable(venv, adopt=plan.adopt)
                if present := read_current(plan):  # somebody else was faster
                    return _unchanged(present, plan, found)
                work = Work(plan, machine, paths, journal, log, on_progress, held, asked.cached, asked.python)
                with journal.step(WHOLE, detail=f"{plan.profile} {plan.lock.digest} into {venv}"):
                    if plan.install_system and asked.needs:
                        with journal.step("system", command=command_for(asked.needs, package_manager())):
                            asked = meet_needs(asked, plan, log)
                    result = _build(work, cache)
    except OSError as error:
        raise EnvdoctorError(
            f"{error.filename or venv}: {error.strerror or error}",
            expected=f"a folder of yours with room for {venv}",
            hint="envdoctor install --venv PATH; the current environment was not touched",
        ) from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"the install of {plan.profile} was interrupted; {_state(paths)}",
            hint=f"go on with: envdoctor install --profile {plan.profile} --venv {venv} (downloads are kept)",
        ) from None
    return msgspec.structs.replace(
        result, seconds=time.monotonic() - started, log=str(log), resumed=found, survey=asked
    )


def _state(paths: EnvironmentPaths) -> str:
    return f"{paths.venv} is as it was" if paths.venv.exists() else "nothing was left half-made"


def read_current(plan: Plan) -> InstallRecord | None:
    """The marker of the environment if it holds exactly what the plan would build."""
    venv = Path(plan.venv)
    present = read_install_record(venv)
    if present is None or present.lock != plan.lock.digest or not (venv / "bin/python").exists():
        return None
    if present.request != plan.request:
        return None
    return None if drift(venv, plan.lock, present.wheels) else present


def _unchanged(present: InstallRecord, plan: Plan, found: str) -> InstallResult:
    venv = plan.venv
    current = _as_planned(present, plan)
    return InstallResult(venv, f"{venv}/bin/python", current, (), 0.0, "", unchanged=True, resumed=found)


def _as_planned(present: InstallRecord, plan: Plan) -> InstallRecord:
    """The marker with what the profile says of these same packages today: its probes and its variables."""
    current = msgspec.structs.replace(
        present,
        profile=plan.profile,
        required=plan.required_probes,
        environment=run_environment(plan, present.fallbacks),
    )
    if current != present:
        write_install_record(Path(plan.venv), current)
    return current


def run_environment(plan: Plan, fallbacks: dict[str, str]) -> dict[str, str]:
    """The variables for what runs in the environment; what stands in for a missing wheel is one of them."""
    return plan.run_environment | ({"ATTN_IMPL": attention(fallbacks)} if fallbacks else {})


def _take_over(paths: EnvironmentPaths, journal: Journal) -> str:
    """What an install that was killed had left, put right; in words, once."""
    found = read_journal(paths.journal)
    last = unfinished(found.entries)
    done = recover_swap(paths)
    told = []
    if found.damaged:
        lines = "1 line" if found.damaged == 1 else f"{found.damaged} lines"
        told.append(f"{lines} of {paths.journal} cannot be read")
    if paths.journal.is_symlink() or paths.journal.is_dir():
        told.append(f"what lies in the place of the journal {paths.journal} is moved aside")
    if last:
        running = "still runs" if is_running(str(last.process)) and last.process != os.getpid() else "is gone"
        told.append(
            f"the install begun as {last.install} ended without a word after the {last.event} of '{last.step}' "
            f"({last.at}, process {last.process}, which {running})"
        )
    if told:
        with contextlib.suppress(OSError):
            ended = Journal(journal.path, last.install if last else journal.install, journal.log)
            ended.write(WHOLE, "end", detail="noted by the next install: it never said how it ended")
    return "; ".join(filter(None, (*told, done)))


def _build(work: Work, cache: Path) -> InstallResult:
    """Build the new environment, or take one that a killed install had finished, and swap it in."""
    paths, plan = work.paths, work.plan
    records: list[StepRecord] = []
    outcomes: list[WheelOutcome] = []
    findings: tuple[Finding, ...] = ()
    if not reuse_finished_build(paths, plan.request, plan.lock.digest):
        remove_unfinished(paths)
        try:
            for number, step in enumerate(plan.steps):
                if not is_prebuilt(step, outcomes):
                    records.append(_run_step(work, number, _with_python(step, work.python), outcomes, cache))
            with work.journal.step("guard"):
                findings = _guard(work, outcomes, cache)
            with work.journal.step("mark"):
                flush_file_system(paths.building)
                write_install_record(paths.building, _describe(work, outcomes))
        except BaseException:
            remove_unfinished(paths)
            raise
    with work.journal.step("swap"):
        foreign = is_foreign(paths.venv)
        if foreign:
            _note_adoption(paths)
        had = paths.venv.exists()
        swap_in(paths)
        retain_previous(paths)
    venv = paths.venv
    installed = read_install_record(venv)
    assert installed, "it was written a moment ago"
    return InstallResult(
        str(venv), str(venv / "bin/python"), installed, tuple(records), 0.0, "",
        previous=str(paths.previous) if had and paths.previous.exists() else "",
        wheels=tuple(outcomes), findings=findings,
    )  # fmt: skip


def _with_python(step: Step, found: str) -> Step:
    """The step with the interpreter that was found already: uv need not look through PATH a second time."""
    if step.name != "venv" or not found.startswith("/"):
        return step
    at = step.arguments.index("--python") + 1
    return msgspec.structs.replace(step, arguments=(*step.arguments[:at], found, *step.arguments[at + 1 :]))


def _note_adoption(paths: EnvironmentPaths) -> None:
    """Write down what is in an environment that is not ours, before it makes room."""
    packages = sorted(
        info.name.removesuffix(".dist-info").replace("-", "==", 1)
        for info in paths.venv.glob("lib/python*/site-packages/*.dist-info")
    )
    paths.adopted_packages.write_text("".join(f"{package}\n" for package in packages))
    paths.adoption_marker.write_text("the folder `building` may hold the environment that was taken over\n")


def _run_step(work: Work, number: int, step: Step, outcomes: list[WheelOutcome], cache: Path) -> StepRecord:
    """One step with its place in the journal; the drift guard looks at what it made."""
    plan, building = work.plan, work.paths.building
    if step.name == "sync":
        (building / LOCK_FILE).write_text(lock_text(file_of(plan.lock)))
    with work.journal.step(step.name, command=("uv", *step.arguments)):
        started = time.monotonic()
        tell = _teller(work, number, step)
        if step.wheels:
            outcomes.append(add_wheel(step, plan, building, cache, tell=tell, log=work.log, held=work.held))
        elif step.built:
            done = add_build(step, plan, cache, work.machine, tell=tell, log=work.log, held=work.held)
            if not done.ok:
                raise _step_failed(step, done.output, done.ending, work.log)
        else:
            _uv_step(work, number, step)
        if step.name != "venv":
            guard_versions(building, lock_until(plan, number), _used(outcomes))
    return StepRecord(step.name, time.monotonic() - started, 0)


def _teller(work: Work, number: int, step: Step) -> Callable[[int, int, str], None]:
    def tell(done: int, total: int, doing: str) -> None:
        work.on_progress(InstallProgress(number + 1, len(work.plan.steps), step.title, done, total, doing))

    return tell


def _uv_step(work: Work, number: int, step: Step) -> Finished:
    """Run uv; sources that do not answer are asked again after a while."""
    meter = DownloadTracker()
    steps = len(work.plan.steps)

    def report(text: str) -> None:
        meter.read(text)
        work.on_progress(
            InstallProgress(number + 1, steps, step.title, meter.done, meter.total, meter.doing, meter.rate())
        )

    offline = ("--offline",) if work.cached and step.name == "sync" else ()
    for pause in (*PAUSES, None):
        report("")
        result = run_uv(
            (*step.arguments, *offline), environment=work.plan.environment, deadline=step.deadline, log=work.log,
            poll=report, keep_open=(work.held.fileno(),),
        )  # fmt: skip
        output = result.output if not result.timed_out else result.ending
        if result.ok:
            return result
        if pause is None or not is_unreachable(output):
            break
        meter.doing = f"{unreachable(output)}; trying again in {pause:.0f} s"
        report("")
        time.sleep(pause)
    raise _step_failed(step, output, result.ending, work.log)


def _step_failed(step: Step, output: str, ending: str, log: Path) -> EnvdoctorError:
    if is_unreachable(output):
        return EnvdoctorError(
            f"{step.title}: {unreachable(output)}",
            expected="the sources that the profile was resolved from",
            hint=f"check the network and run the same command again (downloads are kept); the log is {log}",
        )
    error = EnvdoctorError(
        f"{step.title}: uv {ending}: {reason(output)}{_full_disk(log)}",
        expected="exit code 0",
        hint=f"read the log {log}; the current environment was not touched",
    )
    error.log = str(log)
    return error


def _full_disk(log: Path) -> str:
    """That uv could not write its log, which it dies of without a word."""
    place = next(place for place in log.parents if place.exists())
    free = os.statvfs(place).f_bavail
    return "" if free else f"; the disk of its log is full ({place}): export XDG_STATE_HOME=/a/folder/with/room"


def _guard(work: Work, outcomes: list[WheelOutcome], cache: Path) -> tuple[Finding, ...]:
    """The whole environment once more, before it may become the current one."""
    building, lock = work.paths.building, work.plan.lock
    guard_versions(building, lock, _used(outcomes))
    stack = read_stack(building, cache)
    guard_build(stack, lock)
    return guard_stack(stack, work.machine)


def _used(outcomes: list[WheelOutcome]) -> tuple[WheelUsed, ...]:
    return tuple(outcome.used for outcome in outcomes if outcome.used)


def _describe(work: Work, outcomes: list[WheelOutcome]) -> InstallRecord:
    plan = work.plan
    torch = next((package for package in plan.lock.packages if package.name == "torch"), None)
    fallbacks = {outcome.name: outcome.fallback for outcome in outcomes if outcome.fallback}
    return InstallRecord(
        profile=plan.profile,
        lock=plan.lock.digest,
        torch_build=plan.lock.torch_build,
        torch_source=torch.source if torch else "",
        packages=len({package.name for package in plan.lock.packages} | {wheel.name for wheel in _used(outcomes)}),
        size=installed_size(work.paths.building),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        required=plan.required_probes,
        environment=run_environment(plan, fallbacks),
        envdoctor=__version__,
        id=work.journal.install,
        replaces=current_environment_id(work.paths),
        request=plan.request,
        python=plan.lock.python,
        wheels=_used(outcomes),
        fallbacks=fallbacks,
    )


def attention(fallbacks: dict[str, str]) -> str:
    """What to use where wheels are missing: a fallback that is itself missing gives way to its own fallback."""
    missing = {"flash_attention_3": "flash-attn-3", "flash_attention_2": "flash-attn"}
    chosen = next(iter(fallbacks.values()))
    for _ in fallbacks:
        chosen = fallbacks.get(missing.get(chosen, ""), chosen)
    return chosen
