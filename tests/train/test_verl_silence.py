"""A trainer that falls silent is told, once a silence: real processes, the run's signal handlers and files."""

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
from stacks import TRAIN
from verl_engine.recorder import PREFIX, way_out

LIMIT = 3.0  # seconds; a child on a busy machine is up before
# The part of verl_run.py that starts the trainer and follows it, here with a trainer of ours.
RUN = """
import sys
from pathlib import Path
from packaging.version import Version
from run.directory import RunDirectory
from settings import read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.process import Children
from verl_engine.recorder import Recorder
from verl_engine.launch_context import Checkpoints
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
run.write_event("end", status=status, asked=children.asked)
"""
# Lines, then numbers alone, each for longer than the limit; the words of a vLLM that fails; nothing more. Then again.
TRAINER = """
import json, os, time
from pathlib import Path
print("process", os.getpid(), flush=True)
for n in range(50):
    print("at work", n, flush=True)
    time.sleep(0.1)
with open("metrics.jsonl", "w") as file:
    for step in range(1, 51):
        print(json.dumps({"step": step, "data": {"train/loss": 1.0}}), file=file, flush=True)
        time.sleep(0.1)
server = "\\x1b[36m(vLLMHttpServer pid=84)\\x1b[0m (Worker pid=85) ERROR 11-22 05:03:27 [multiproc_executor.py:949]"
print(server, "Traceback (most recent call last):")
print(server, "RuntimeError: a bucket of weights does not fit")
print(server, "RuntimeError: a bucket of weights does not fit")
print("\\x1b[36m(WorkerDict pid=9)\\x1b[0m waiting for vLLM", flush=True)
while not Path("go").exists():
    time.sleep(0.1)
print("on we go", flush=True)
time.sleep(600)
"""
# Ends three seconds after the first signal.
COUNTS_SIGNALS = """
import signal, sys, time
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(time.monotonic()))
print("up", flush=True)
time.sleep(1)
with open("metrics.jsonl", "w") as file:
    print('{"step": 1, "data": {"train/loss": NaN}}', file=file)
while not came or time.monotonic() < came[0] + 3:
    time.sleep(0.1)
print(len(came), "signals", flush=True)
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


def wait_until(met: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    last = time.monotonic() + 120
    while not met() and time.monotonic() < last and run.poll() is None:
        time.sleep(0.1)
    assert met()


def end(run: subprocess.Popen[str]) -> str:
    """All that it printed, after a SIGTERM where it runs still."""
    killer = threading.Timer(60, run.kill)
    killer.start()
    run.terminate()
    said, _ = run.communicate()
    killer.cancel()
    assert run.returncode == 0, said
    return said


def test_a_silence_is_told_once_and_the_run_goes_on_until_it_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    run = start(folder, TRAINER, LIMIT)
    try:
        wait_until(lambda: bool(notes(folder)), run)
        time.sleep(2 * LIMIT)
        (first,) = notes(folder)
        (folder / "go").touch()
        wait_until(lambda: len(notes(folder)) > 1, run)
        assert run.poll() is None
    finally:
        said = end(run)
    assert re.match(r"neither a line nor numbers from verl for 0\.\d+ minutes, at step", first)
    assert "at step 50 of 100; it said last: RuntimeError: a bucket of weights does not fit; it may" in first
    assert f"tail -n 60 '{folder}/train.log'; Ctrl-C ends the run, no checkpoint was saved" in first
    assert said.count("note: neither a line") == len(notes(folder)) == 2
    assert said.index("waiting for vLLM") < said.index(first) < said.index("on we go")
    (ended,) = RunDirectory(folder).read_events("end")
    assert (ended["status"], ended["asked"]) == (-signal.SIGTERM, True)
    process = next(line for line in said.splitlines() if line.startswith("process ")).split()[1]
    assert not Path(f"/proc/{process}").exists()


def test_a_batch_job_is_ended_by_its_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert way_out() == "scancel 17"


def test_by_0_no_silence_is_told(tmp_path: Path) -> None:
    trainer = "import time; print('up', flush=True); time.sleep(3)"
    run = start(tmp_path / "run", trainer, 0)
    said, _ = run.communicate(timeout=120)
    assert (run.returncode, said, notes(tmp_path / "run")) == (0, "up\n", [])


def test_an_alarm_in_a_silence_ends_the_run_by_one_signal(tmp_path: Path) -> None:
    """The numbers come without a line, and a second signal would break off what the trainer does at its end."""
    run = start(tmp_path / "run", COUNTS_SIGNALS, LIMIT)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    (ended,) = RunDirectory(tmp_path / "run").read_events("end")
    assert (ended["status"], ended["asked"]) == (3, False)
    assert said.splitlines()[-1] == "1 signals"


@pytest.mark.parametrize(
    "line",
    [
        "(WorkerDict pid=9, ip=10.0.0.8) [rank3]: RuntimeError: it",
        "(vLLMHttpServer pid=1) (EngineCore pid=2) ERROR 11-22 05:03:18 [core.py:720] RuntimeError: it",
        "ERROR 11-22 05:03:18 [core.py:720]     RuntimeError: it",
        "RuntimeError: it",
    ],
)
def test_whose_line_it_is_is_left_out(line: str) -> None:
    assert PREFIX.sub("", line).strip() == "RuntimeError: it"
