"""When a watched run counts as silent or over, at the limits."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cases import each_case

from envdoctor.commands import watch
from envdoctor.commands.watch import Watcher, WatchResult
from envdoctor.training.launchers.job_state import Job
from envdoctor.training.runs.directory import RUN_FILE
from envdoctor.training.runs.state import RunReducer, RunState


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """A watcher whose last event came at second 1000 by a clock that tests set."""
    (tmp_path / RUN_FILE).write_text(json.dumps({"recipe": "sort"}))
    created = Watcher(tmp_path)
    created.last_event_at = 1000.0
    return created


def at(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock to some seconds after the last event."""
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: 1000.0 + seconds))


@each_case(
    ("seconds", "state", "silent"),
    [
        (watch.SILENT_PHASE_SECONDS, RunState(phase="load"), False),
        (watch.SILENT_PHASE_SECONDS + 1, RunState(phase="load"), True),
        (watch.SILENT_SECONDS, RunState(phase="train", step_seconds=0.1), False),
        (watch.SILENT_SECONDS + 1, RunState(phase="train", step_seconds=0.1), True),
        (watch.SILENT_STEPS * 1000, RunState(phase="train", step_seconds=1000.0), False),
        (watch.SILENT_STEPS * 1000 + 1, RunState(phase="train", step_seconds=1000.0), True),
        (watch.SILENT_PHASE_SECONDS, RunState(phase="train"), False),
        (watch.SILENT_PHASE_SECONDS * 9, RunState(phase="train", ending="done"), False),
    ],
)  # fmt: skip
def test_silence(
    seconds: float, state: RunState, silent: bool, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(seconds, monkeypatch)
    assert watcher._silent_seconds(state) == (seconds if silent else None)


def job(state: str, *, in_allocation: bool = False) -> Job:
    return Job(
        number="7", state=state, reason="", exit_code="0:0", time_limit="", nodes="", in_allocation=in_allocation
    )


@each_case(
    ("seconds", "trainer", "ending", "slurm_job", "over"),
    [
        (9.9, "running", "done", None, True), (10.0, "running", "done", None, False),
        (99.0, "gone", "done", None, True), (0.0, "running", "", None, False), (99.0, "gone", "", None, False),
        (99.0, "gone", "failed", job("PENDING"), False), (99.0, "gone", "failed", job("FAILED"), True),
        (99.0, "gone", "failed", job("RUNNING", in_allocation=True), True),
    ],
)  # fmt: skip
def test_the_end_of_a_run(  # noqa: PLR0917  the fixtures, and the columns of the table
    seconds: float, trainer: Any, ending: Any, slurm_job: Job | None, over: bool, watcher: Watcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A trainer that runs for 10 seconds after its last event was resumed."""
    at(seconds, monkeypatch)
    watched = WatchResult(
        directory="x", recipe="sort", trainer=trainer, process=1, silent=None, state=RunState(ending=ending),
        job=slurm_job,
    )  # fmt: skip
    assert watcher.is_over(watched) is over


def test_speed_and_time_left_of_a_run_that_was_resumed() -> None:
    def step(number: int, when: float) -> dict[str, Any]:
        return {"event": "step", "step": number, "steps": 10, "t": when, "metrics": {"reward": number / 10}}

    reducer = RunReducer()
    reducer.apply_all([step(1, 100.0), step(2, 104.0), step(3, 108.0)])
    state = reducer.state()
    assert (state.step_seconds, state.seconds_left, state.rewards) == (4.0, 4.0 * 7, (0.1, 0.2, 0.3))
    reducer.apply_all([step(3, 500.0), step(4, 502.0)])  # step 3 again, from a checkpoint
    state = reducer.state()
    assert (state.step_seconds, state.seconds_left, state.rewards) == (2.0, 2.0 * 6, (0.1, 0.2, 0.3, 0.4))
    reducer.apply({"event": "done", "result": {}})
    assert reducer.state().seconds_left is None
