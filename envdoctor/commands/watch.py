"""Following a run from another terminal: its new events, whether its trainer lives, what the GPUs do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.errors import EXIT_INTERRUPTED, EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.records import Record
from envdoctor.core.results import Answer
from envdoctor.machine.gpu_now import GpuNow, read_gpus_now
from envdoctor.training.launchers.job_state import Job, describe, explain_end, next_command, read_job
from envdoctor.training.run_directories import go_on
from envdoctor.training.run_lock import Trainer, find_trainer, is_local
from envdoctor.training.run_state import Course, Event, RunState, Trouble, text

POLL_SECONDS = 1.0
CHUNK = 1 << 20  # bytes read at a time: the events of a week are tens of MiB
SILENT_STEPS, SILENT_LEAST = 10, 30.0  # a step late by ten others; a step of milliseconds may wait for a checkpoint
SILENT_PHASE = 600.0  # loading a large model, starting vLLM
JOB_SECONDS = 30.0  # between two questions to SLURM's controller, which everybody asks
JUST_ENDED = 10.0  # a trainer that wrote its end is on its way out; one that lives on longer was resumed
RUN_JSON, EVENTS = "run.json", "events.jsonl"


class Watched(Record, frozen=True, kw_only=True):
    """A run as `watch` saw it last."""

    directory: str
    recipe: str
    trainer: Trainer  # unknown: the folder lies on another machine
    process: int  # of the trainer; 0: not known
    silent: float | None  # seconds without an event, where that is long for this run
    state: RunState
    gpus: tuple[GpuNow, ...] = ()
    job: Job | None = None  # where the trainer does not run and has no result: what SLURM says of its job


def watch(run: str, *, once: bool, on_event: Callable[[Event], None], on_state: Callable[[Watched], None]) -> Answer:
    """Follow a run to its end, or look once. The exit code tells how it ended."""
    watcher = Watcher(find_run(run))
    while True:
        watched = watcher.look(on_event)
        on_state(watched)
        if once or watcher.is_over(watched):
            return Answer(watched, _exit_code(watched, once=once))
        time.sleep(POLL_SECONDS)


def _exit_code(watched: Watched, *, once: bool) -> int:
    if watched.state.ending == "interrupted":
        return EXIT_INTERRUPTED
    if watched.state.ending == "failed":
        return EXIT_NO
    return EXIT_OK if watched.state.ending == "done" or once else EXIT_NO


def _comes_back(watched: Watched) -> bool:
    """Whether the run's own job still waits or runs: it is requeued, or on its way out."""
    return watched.job is not None and watched.job.alive and not watched.job.in_allocation


def find_run(run: str) -> Path:
    """The folder of a run: the one that was named, or the newest below ./runs."""
    if run:
        return checked_run(Path(run).absolute())
    base = Path("runs").absolute()
    found = sorted(base.glob(f"*/{RUN_JSON}"), key=_last_change)
    if not found:
        raise BadInput(f"there is no run below {base}", expected="the folder of a run", hint="envdoctor watch FOLDER")
    return found[-1].parent


def _last_change(run_json: Path) -> float:
    """When a run was last heard of."""
    changes = [file.stat().st_mtime for file in (run_json, run_json.parent / EVENTS) if file.exists()]
    return max(changes, default=0.0)


def checked_run(folder: Path) -> Path:
    """A folder that holds a run; what it holds instead, where it does not."""
    expected = f"the folder of a run, with {RUN_JSON}"
    try:
        if folder.is_file():
            hint = f"envdoctor watch {folder.parent}"
            raise BadInput(f"{folder} is a file", expected=expected, hint=hint)
        if (folder / RUN_JSON).is_file():
            return folder
        held = sorted(path.name for path in folder.iterdir())
        below = sorted(folder.glob(f"*/{RUN_JSON}"), key=_last_change)
    except OSError as error:
        raise BadInput(f"cannot read {folder}: {error.strerror}", expected=expected, hint="ls -d runs/*") from error
    listed = ", ".join(text(name) for name in held[:8]) + (f" and {len(held) - 8} more" if len(held) > 8 else "")
    hint = f"envdoctor watch {below[-1].parent}" if below else "ls -d runs/*"
    raise BadInput(f"{folder} holds no {RUN_JSON} (it holds: {listed or 'nothing'})", expected=expected, hint=hint)


class Watcher:
    """What has been read of one run so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = text(read_run_json(folder).get("recipe"))
        self.course = Course()
        self.tail = EventTail(folder / EVENTS)
        self.local = is_local(folder)
        self.first = True  # what the first look finds is old: it is part of the state, and not told again
        self.heard: float | None = None  # by our clock, since the trainer's may differ; None: nothing new yet
        self.ask_gpus = True
        self.job: Job | None = None
        self.job_asked: tuple[float, Trainer, str] | None = None  # when, and where the run stood then
        self.job_told = ""

    def look(self, on_event: Callable[[Event], None]) -> Watched:
        """Look at the trainer's process, then read what is new: one that is seen gone has written all it had."""
        trainer, process = find_trainer(self.folder, local=self.local)
        first, self.first = self.first, False
        for event in self.tail.read_new():
            self.course.take(event)
            if not first:
                self.heard = time.monotonic()
                on_event(event)
        state = self.course.state()
        if trainer == "not started" and state.last_event is not None:  # a copy of a run, without its lock
            trainer = "unknown"
        job = self._ask_job(trainer, state)
        if job is not None:
            state = self._with_job(state, trainer, process, job)
            if not first:
                self._tell_job(job, on_event)
        elif trainer == "gone" and not state.ending:
            state = self._with_death(state, process)
        return Watched(
            directory=str(self.folder),
            recipe=self.recipe,
            trainer=trainer,
            process=process,
            silent=self._silence(state),
            state=state,
            gpus=self._gpus(),
            job=job,
        )

    def is_over(self, watched: Watched) -> bool:
        """Whether the run has ended; a trainer that lives on long after the end was started again."""
        if not watched.state.ending or _comes_back(watched):
            return False
        return watched.trainer != "running" or self._age(watched.state) < JUST_ENDED

    def _ask_job(self, trainer: Trainer, state: RunState) -> Job | None:
        """What SLURM says, where the trainer is not seen to run and is not done; at once when that is new."""
        if trainer == "running" or state.ending == "done":
            return None
        now = time.monotonic()
        if self.job_asked is None or self.job_asked[1:] != (trainer, state.ending) or now > self.job_asked[0]:
            self.job = read_job(self.folder)
            soon = self.job is not None and self.job.state in ("RUNNING", "COMPLETING")  # it ends after its trainer
            self.job_asked = (now + (3 * POLL_SECONDS if soon else JOB_SECONDS), trainer, state.ending)
        return self.job

    def _with_job(self, state: RunState, trainer: Trainer, process: int, job: Job) -> RunState:
        """A run with what its job tells: why it has not started, or why it ended."""
        if job.alive:
            if trainer == "gone" and not state.ending and job.in_allocation:
                return self._with_death(state, process)
            waits = f"; {next_command(job)}" if job.state == "PENDING" else ""
            return msgspec.structs.replace(state, notes=(*state.notes, describe(job) + waits))
        message, command = explain_end(job, str(self.folder))
        if job.in_allocation:  # there is no file to submit again
            command = go_on(self.folder)
        if job.state == "COMPLETED" and trainer == "unknown":  # its last events may not have come over the network
            return msgspec.structs.replace(state, notes=(*state.notes, message))
        if state.ending == "interrupted":  # it was warned, and saved
            return msgspec.structs.replace(state, notes=(*state.notes, f"{message}; go on with: {command}"))
        if state.ending == "failed" and state.trouble is not None:  # its own error says more than an exit code
            return msgspec.structs.replace(state, notes=(*state.notes, message))
        died = self._with_death(state, process).trouble
        where = f"at step {state.step} of {state.steps}" if state.steps else "before its first step"
        trouble = Trouble(
            f"{message}, {where}" + (f"; {died.message}" if died and trainer == "gone" else ""),
            "a run that ends by itself",
            command,
        )
        return msgspec.structs.replace(state, ending="failed", trouble=trouble)

    def _tell_job(self, job: Job, on_event: Callable[[Event], None]) -> None:
        """A line for who follows, when it is a new one."""
        if job.alive and describe(job) != self.job_told:
            self.job_told = describe(job)
            waits = f"; {next_command(job)}" if job.state == "PENDING" else ""
            on_event({"t": round(time.time(), 3), "event": "note", "message": self.job_told + waits})

    def _with_death(self, state: RunState, process: int) -> RunState:
        """A trainer that was killed says nothing: then we do."""
        trouble = Trouble(
            f"the trainer (process {process}) is gone without a word, at step {state.step} of {state.steps}: "
            "killed, out of memory, or the machine went down",
            "an event done, error or interrupted",
            f"read {self.folder}/train.log; {go_on(self.folder)}",
        )
        return msgspec.structs.replace(state, ending="failed", trouble=trouble)

    def _age(self, state: RunState) -> float:
        """Seconds since the last event."""
        if self.heard is not None:
            return time.monotonic() - self.heard
        return max(0.0, time.time() - state.last_event) if state.last_event else 0.0

    def _silence(self, state: RunState) -> float | None:
        age = self._age(state)
        usual = SILENT_PHASE
        if state.phase == "train" and state.step_seconds is not None:
            usual = max(SILENT_LEAST, SILENT_STEPS * state.step_seconds)
        return age if age > usual and not state.ending else None

    def _gpus(self) -> tuple[GpuNow, ...]:
        if not self.ask_gpus:
            return ()
        try:
            return read_gpus_now()
        except TimeoutError:  # each further question would hang as well
            self.ask_gpus = False
            return ()


class EventTail:
    """The lines of events.jsonl as they come: only new bytes are read, and a half-written line waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def read_new(self) -> Iterator[Event]:
        """The events since the last call. The file is opened anew each time: that is when NFS looks at the server."""
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:  # another file
                    self.offset = 0
                yield from self._read(file)
        except OSError:
            return

    def _read(self, file: Any) -> Iterator[Event]:
        half = b""
        file.seek(self.offset)
        while chunk := file.read(CHUNK):
            *lines, half = (half + chunk).split(b"\n")
            for line in lines:
                self.offset += len(line) + 1
                event = parse_event(line)
                if event is not None:
                    yield event


def parse_event(line: bytes) -> dict[str, Any] | None:
    r"""One line of events.jsonl, None where it is no event.

    Sample: b'{"t": 1784567890.1, "event": "step", "step": 3, "steps": 200, "metrics": {"reward": 0.5}}'
    """
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def read_run_json(folder: Path) -> dict[str, Any]:
    """The run's configuration; empty where it is damaged, since a run can be watched without."""
    try:
        read = msgspec.json.decode((folder / RUN_JSON).read_bytes())
    except (OSError, ValueError, msgspec.DecodeError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}
