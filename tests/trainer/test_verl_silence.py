"""A note on each silence of the trainer, with real processes, signal handlers and run files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run.directory import RunDirectory
from support.paths import TRAIN
from verl_engine.recorder import LOG_PREFIX, stop_command

LIMIT = 2.0  # seconds; enough to start a child on a busy machine
# The part of verl_run.py that runs and follows the trainer, here with a fake one.
RUN = """
import sys
from pathlib import Path
from packaging.version import Version
from run.directory import RunDirectory
from settings import read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.process import Children
from verl_engine.recorder import Recorder
from verl_engine.checkpoints import Checkpoints
from verl_run import follow
run = RunDirectory(Path(sys.argv[1]))
settings = {"quiet_minutes": float(sys.argv[3]) / 60, "stop_on": ["not-a-number"]}
children = Children()
settings = resolve_settings(read_recipe("verl-sft"), settings, file=FILE, find_conflicts=find_conflicts)
recorder = Recorder(
    run, settings, Version("0.7.1"),
    run.path / "metrics.jsonl", steps=100, first_step=0, gpus=1, checkpoints=Checkpoints(run.checkpoints),
    held_out_rows=10)
status = follow(children, recorder, [sys.executable, "-c", sys.argv[2]], {})
run.write_event("end", status=status, interrupted=children.interrupted)
"""
# Prints lines, then only writes metrics, each for longer than the limit; then the errors of a failed vLLM, silence,
# a line, and silence again.
TRAINER = """
import json, os, time
from pathlib import Path
print("process", os.getpid(), flush=True)
for n in range(50):
    print("at work", n, flush=True)
    time.sleep(0.06)
with open("metrics.jsonl", "w") as file:
    for step in range(1, 51):
        print(json.dumps({"step": step, "data": {"train/loss": 1.0}}), file=file, flush=True)
        time.sleep(0.06)
server = "\\x1b[36m(vLLMHttpServer pid=84)\\x1b[0m (Worker pid=85) ERROR 11-22 05:03:27 [multiproc_executor.py:949]"
print(server, "Traceback (most recent call last):")
print(server, "RuntimeError: a bucket of weights does not fit")
print(server, "RuntimeError: a bucket of weights does not fit")
print("\\x1b[36m(WorkerDict pid=9)\\x1b[0m waiting for vLLM", flush=True)
while not Path("go").exists():
    time.sleep(0.1)
print("continued", flush=True)
time.sleep(600)
"""
# Ends three seconds after the first signal.
SIGNAL_COUNTER = """
import signal, sys, time
received = []
signal.signal(signal.SIGTERM, lambda *_: received.append(time.monotonic()))
print("up", flush=True)
time.sleep(1)
with open("metrics.jsonl", "w") as file:
    print('{"step": 1, "data": {"train/loss": NaN}}', file=file)
while not received or time.monotonic() < received[0] + 3:
    time.sleep(0.1)
print(len(received), "signals", flush=True)
sys.exit(3)
"""


def start(folder: Path, trainer: str, limit: float) -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), trainer, str(limit)], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": str(TRAIN), "SLURM_JOB_ID": ""},
    )  # fmt: skip


def notes(folder: Path) -> list[str]:
    return [event["message"] for event in RunDirectory(folder).read_events("note")]


def wait_until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline and run.poll() is None:
        time.sleep(0.1)
    assert condition()


def end(run: subprocess.Popen[str]) -> str:
    """Terminate the run and return its output."""
    killer = threading.Timer(60, run.kill)
    killer.start()
    run.terminate()
    output, _ = run.communicate()
    killer.cancel()
    assert run.returncode == 0, output
    return output


@pytest.mark.early
def test_each_silence_is_noted_once(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    run = start(folder, TRAINER, LIMIT)
    try:
        wait_until(lambda: bool(notes(folder)), run)
        time.sleep(1.5 * LIMIT)
        (first,) = notes(folder)
        (folder / "go").touch()
        wait_until(lambda: len(notes(folder)) > 1, run)
        assert run.poll() is None
    finally:
        output = end(run)
    assert re.match(r"no output and no metrics from verl for 0\.(0[3-9]|[1-9])\d* minutes, at step", first)
    assert "at step 50 of 100; last message: RuntimeError: a bucket of weights does not fit; verl may" in first
    assert f"tail -n 60 '{folder}/train.log'; Ctrl-C ends the run, no checkpoint was saved" in first
    assert output.count("note: no output") == len(notes(folder)) == 2
    assert output.index("waiting for vLLM") < output.index(first) < output.index("continued")
    (ended,) = RunDirectory(folder).read_events("end")
    assert (ended["status"], ended["interrupted"]) == (-signal.SIGTERM, True)
    process = next(line for line in output.splitlines() if line.startswith("process ")).split()[1]
    assert not Path(f"/proc/{process}").exists()


def test_the_stop_command_of_a_batch_job_is_scancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert stop_command() == "scancel 17"


def test_a_limit_of_0_disables_the_note(tmp_path: Path) -> None:
    trainer = "import time; print('up', flush=True); time.sleep(1)"
    run = start(tmp_path / "run", trainer, 0)
    output, _ = run.communicate(timeout=120)
    assert (run.returncode, output, notes(tmp_path / "run")) == (0, "up\n", [])


def test_an_alarm_during_a_silence_sends_one_signal(tmp_path: Path) -> None:
    """Metrics arrive without a line. A second signal would abort the trainer's orderly end."""
    run = start(tmp_path / "run", SIGNAL_COUNTER, LIMIT)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    (ended,) = RunDirectory(tmp_path / "run").read_events("end")
    assert (ended["status"], ended["interrupted"]) == (3, False)
    assert output.splitlines()[-1] == "1 signals"


@pytest.mark.parametrize(
    "line",
    [
        "(WorkerDict pid=9, ip=10.0.0.8) [rank3]: RuntimeError: it",
        "(vLLMHttpServer pid=1) (EngineCore pid=2) ERROR 11-22 05:03:18 [core.py:720] RuntimeError: it",
        "ERROR 11-22 05:03:18 [core.py:720]     RuntimeError: it",
        "RuntimeError: it",
    ],
)
def test_log_prefixes_are_removed(line: str) -> None:
    assert LOG_PREFIX.sub("", line).strip() == "RuntimeError: it"
