"""`envdoctor watch`: follow a run from another terminal: its events, the trainer's process, the job, the GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.core.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK
from envdoctor.core.options import Option, RunArgument
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.machine.gpu_usage import GpuUsage, read_gpu_usage
from envdoctor.training.launchers.job_state import Job, describe_job, explain_job_end, pending_job_command, read_job
from envdoctor.training.runs.directory import (
    LOG_FILE,
    START_SECONDS,
    find_run,
    is_starting,
    read_run_json,
    require_readable_run,
    resume_command,
    resume_hint,
    unreadable_events,
)
from envdoctor.training.runs.events import EVENTS_FILE, EventReader
from envdoctor.training.runs.lock import TrainerStatus, is_local, read_trainer_status
from envdoctor.training.runs.state import Event, RunError, RunReducer, RunState, printable_line

POLL_SECONDS = 1.0
# A run is reported as silent after ten step times, but not before 30 s: a short step may be followed by a checkpoint.
SILENT_STEPS, SILENT_SECONDS = 10, 30.0
SILENT_PHASE_SECONDS = 600.0  # outside of training: loading a large model, starting vLLM
JOB_SECONDS = 30.0  # between queries to SLURM's controller, which all users share
JUST_ENDED_SECONDS = 10.0  # a trainer that lives longer after its last event was resumed


class WatchResult(Record, frozen=True, kw_only=True):
    """A run as `watch` saw it last."""

    directory: str
    recipe: str
    trainer: TrainerStatus  # unknown: the directory is on a network file system
    process: int  # of the trainer; 0: not known
    silent: float | None  # seconds since the last event, where that is long for this run
    state: RunState
    gpus: tuple[GpuUsage, ...] = ()
    job: Job | None = None  # the run's SLURM job, where the trainer does not run and has no result


class WatchRequest(Record, frozen=True, kw_only=True):
    """Follows a run from another terminal, with the usage of this machine's GPUs, and ends with the run's exit code.

    Example: envdoctor watch runs/sort-20261121-153013 --once
    """

    run: RunArgument = ""
    once: Annotated[bool, Option("--once", "Print the current state and exit.")] = False


def run(request: WatchRequest, reporter: Reporter) -> CommandResult:
    """Follow a run until it ends, or report it once. The exit code states how it ended."""
    folder = find_run(request.run, needs_steps=False)
    require_readable_run(folder)
    watcher = Watcher(folder)
    while True:
        watched = watcher.poll(reporter.event)
        watcher.require_events()
        if not request.once:
            reporter.watched(watched)
        if request.once or watcher.is_over(watched):
            return CommandResult(watched, _exit_code(watched, once=request.once))
        time.sleep(POLL_SECONDS)


def _exit_code(watched: WatchResult, *, once: bool) -> int:
    if watched.state.ending == "interrupted":
        return EXIT_INTERRUPTED
    if watched.state.ending == "failed":
        return EXIT_NO
    return EXIT_OK if watched.state.ending == "done" or once else EXIT_NO


class Watcher:
    """Reads one run repeatedly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = printable_line(read_run_json(folder).get("recipe"))
        self.reducer = RunReducer()
        self.events = EventReader(folder / EVENTS_FILE)
        self.local = is_local(folder)
        self.first_poll = True  # events of the first poll are old: they change the state and are not passed on
        self.last_event_at: float | None = None  # monotonic time of the last new event
        self.gpus_respond = True
        self.job: Job | None = None
        self.job_query: tuple[float, TrainerStatus, str] | None = (
            None  # time of the next query; status it was made for
        )
        self.reported_job = ""

    def poll(self, on_event: Callable[[Event], None]) -> WatchResult:
        """Read the trainer's status, then its new events: a trainer that is gone has written all of them."""
        trainer, process = read_trainer_status(self.folder, local=self.local)
        first_poll, self.first_poll = self.first_poll, False
        for event in self.events.read_new():
            self.reducer.apply(event)
            if not first_poll:
                self.last_event_at = time.monotonic()
                on_event(event)
        state = self.reducer.state()
        if trainer == "not started" and state.last_event is not None:  # a copy of a run, without its lock file
            trainer = "unknown"
        job = self._query_job(trainer, state)
        if job is not None:
            state = self._apply_job(state, trainer, process, job)
            if not first_poll:
                self._report_job(job, on_event)
        elif trainer == "gone" and not state.ending:
            state = self._mark_killed(state, process)
        elif not state.ending and (reason := self._why_no_trainer_comes(state, trainer)):
            state = self._mark_failed(state, reason)
        return WatchResult(
            directory=str(self.folder),
            recipe=self.recipe,
            trainer=trainer,
            process=process,
            silent=self._silent_seconds(state),
            state=state,
            gpus=self._read_gpus(),
            job=job,
        )

    def require_events(self) -> None:
        """Raise BadInput for events that will never be read, as those in a FIFO."""
        if self.events.problem:
            raise unreadable_events(self.folder, self.events.problem, "envdoctor watch RUN")

    def is_over(self, watched: WatchResult) -> bool:
        """Whether the run has ended and neither its trainer nor its job will continue it."""
        job_continues = watched.job is not None and watched.job.active and not watched.job.in_allocation
        if not watched.state.ending or job_continues:
            return False
        return watched.trainer != "running" or self._seconds_since_event(watched.state) < JUST_ENDED_SECONDS

    def _query_job(self, trainer: TrainerStatus, state: RunState) -> Job | None:
        """Query SLURM where the trainer neither runs nor is done: at once after a change, then at intervals."""
        if trainer == "running" or state.ending == "done":
            return None
        now = time.monotonic()
        if self.job_query is None or self.job_query[1:] != (trainer, state.ending) or now > self.job_query[0]:
            self.job = read_job(self.folder)
            ends_soon = self.job is not None and self.job.state in ("RUNNING", "COMPLETING")
            self.job_query = (now + (3 * POLL_SECONDS if ends_soon else JOB_SECONDS), trainer, state.ending)
        return self.job

    def _apply_job(self, state: RunState, trainer: TrainerStatus, process: int, job: Job) -> RunState:
        """Add the job's information to the state: why the run has not started, or why it ended."""
        if job.active:
            if trainer == "gone" and not state.ending and job.in_allocation:
                return self._mark_killed(state, process)
            return _add_note(state, _job_line(job))
        message, command = explain_job_end(job, str(self.folder))
        if job.in_allocation:  # no job file to submit again
            command = resume_command(self.folder)
        if job.state == "COMPLETED" and trainer == "unknown":  # the network file system may lag behind the job
            return _add_note(state, message)
        if state.ending == "interrupted":  # the trainer received SLURM's warning and saved
            return _add_note(state, f"{message}; resume with: {command}")
        if state.ending == "failed" and state.error is not None:  # the trainer's own error is more precise
            return _add_note(state, message)
        position = f"at step {state.step} of {state.steps}" if state.steps else "before its first step"
        if trainer == "gone":
            position += f"; {self._killed_message(state, process)}"
        error = RunError(f"{message}, {position}", "a run that ends by itself", command)
        return msgspec.structs.replace(state, ending="failed", error=error)

    def _report_job(self, job: Job, on_event: Callable[[Event], None]) -> None:
        """Pass on a change of an active job as a note."""
        if job.active and describe_job(job) != self.reported_job:
            self.reported_job = describe_job(job)
            on_event({"t": round(time.time(), 3), "event": "note", "message": _job_line(job)})

    def _why_no_trainer_comes(self, state: RunState, trainer: TrainerStatus) -> str:
        """Why a run on a local disk without a trainer will not continue; empty while it may."""
        if not self.local or trainer not in ("not started", "unknown"):
            return ""
        if state.last_event is None:
            started = is_starting(self.folder)
            return "" if started else f"no trainer started in it within {START_SECONDS:.0f} s"
        seconds = self._seconds_since_event(state)
        reason = (
            f"it has no trainer on this machine, and no event for {seconds:.0f} s: a copy, or its trainer was killed"
        )
        return reason if seconds > SILENT_PHASE_SECONDS else ""

    def _mark_killed(self, state: RunState, process: int) -> RunState:
        return self._mark_failed(state, self._killed_message(state, process))

    def _mark_failed(self, state: RunState, message: str) -> RunState:
        error = RunError(
            message,
            "an event done, error or interrupted",
            f"read {self.folder}/{LOG_FILE}; {resume_hint(self.folder)}",
        )
        return msgspec.structs.replace(state, ending="failed", error=error)

    def _killed_message(self, state: RunState, process: int) -> str:
        return (
            f"the trainer (process {process}) ended without an event, at step {state.step} of {state.steps}: "
            "killed, out of memory, or the machine went down"
        )

    def _seconds_since_event(self, state: RunState) -> float:
        if self.last_event_at is not None:  # the trainer's clock may differ from this machine's
            return time.monotonic() - self.last_event_at
        return max(0.0, time.time() - state.last_event) if state.last_event else 0.0

    def _silent_seconds(self, state: RunState) -> float | None:
        seconds = self._seconds_since_event(state)
        limit = SILENT_PHASE_SECONDS
        if state.phase == "train" and state.step_seconds is not None:
            limit = max(SILENT_SECONDS, SILENT_STEPS * state.step_seconds)
        return seconds if seconds > limit and not state.ending else None

    def _read_gpus(self) -> tuple[GpuUsage, ...]:
        if not self.gpus_respond:
            return ()
        try:
            return read_gpu_usage()
        except TimeoutError:  # a further query would hang as well
            self.gpus_respond = False
            return ()


def _job_line(job: Job) -> str:
    return describe_job(job) + (f"; {pending_job_command(job)}" if job.state == "PENDING" else "")


def _add_note(state: RunState, note: str) -> RunState:
    return msgspec.structs.replace(state, notes=(*state.notes, note))
