"""Watching real processes that write a run as the trainer does: alive, killed, hung, resumed, on another machine."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, envdoctor, envelope, environment
from fakenvml.fixture import FakeNvml, machine_ini
from test_schema import faults

from envdoctor.commands.watch import EventTail, find_run, parse_event
from envdoctor.output.run_lines import lines, plain, span, sparkline
from envdoctor.output.schema import schema_of
from envdoctor.training.run_lock import find_trainer, is_network
from envdoctor.training.run_state import Course, RunState

# A trainer without torch: the real RunDirectory, steps as fast as asked, then what it was told to do.
TRAINER = """
import sys, time, types
sys.path.insert(0, sys.argv[1])
from running import run_directory
from run.directory import RunDirectory
from pathlib import Path
run, end, ago = Path(sys.argv[2]), sys.argv[6], float(sys.argv[7])
first, last, seconds = (float(each) for each in sys.argv[3:6])
if ago:
    real = time.time
    run_directory.time = types.SimpleNamespace(time=lambda: real() - ago)
directory = RunDirectory(run)
directory.lock()
directory.start_phase("train", "steps")
for step in range(int(first), int(last) + 1):
    time.sleep(seconds)
    part = {f"{name}_seconds": share * 0.5 for name, share in (("generate", 0.6), ("score", 0.1), ("update", 0.3))}
    metrics = {"reward": step / 100, "reward_smooth": step / 100, "loss": 0.1, "entropy": None, "seconds": 0.5} | part
    directory.write_event("step", step=step, steps=100, metrics=metrics)
    if step % 10 == 0:
        metrics = {"greedy_reward": 0.5, "sampled_reward": 0.25}
        directory.write_event("eval", when="during", step=step, metrics=metrics)
    if step == 15:
        hint = "--set temperature=1.2"
        directory.write_event("alarm", name="no-signal", step=15, message="all the same", hint=hint)
if end == "done":
    directory.write_event("done", result={"status": "done"})
if end == "error":
    directory.write_event("error", kind="crash", message="RuntimeError: boom", expected="", hint="read it")
if end == "interrupted":
    directory.write_event("interrupted", step=int(last))
if end == "hang":
    print("hanging", flush=True)
    time.sleep(600)
"""


class Trainer:
    """A child that writes a run."""

    def __init__(
        self, run: Path, *, first: int = 1, last: int = 20, seconds: float = 0.0, end: str = "done", ago: float = 0.0
    ) -> None:
        given = map(str, (ROOT / "train", run, first, last, seconds, end, ago))
        self.process = subprocess.Popen([sys.executable, "-c", TRAINER, *given], stdout=subprocess.PIPE, text=True)
        self.run = run

    def wait(self) -> None:
        self.process.communicate(timeout=30)

    def wait_until_it_hangs(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if "hanging" in line:
                return

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "sort-1"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
    (folder / "checkpoints/checkpoint-5").mkdir(parents=True)
    (folder / "checkpoints/checkpoint-5/complete.json").write_text("{}")
    return folder


@pytest.fixture
def trainers() -> Iterator[list[Trainer]]:
    started: list[Trainer] = []
    yield started
    for trainer in started:
        trainer.kill()


def watched(run: Path, *arguments: str, **extra: str) -> tuple[int, dict[str, Any]]:
    done = envdoctor("watch", run, "--format", "json", *arguments, home=run.parent.parent, **extra)
    answer, schema = envelope(done), schema_of("watch")
    assert faults(answer, schema, schema) == []
    return done.returncode, answer["data"]


def test_a_finished_run_is_told_and_ends_with_0(run: Path) -> None:
    Trainer(run).wait()
    code, data = watched(run)
    assert code == 0
    assert (data["trainer"], data["state"]["ending"], data["state"]["step"]) == ("gone", "done", 20)
    assert data["state"]["looks"][-1] == {
        "when": "during",
        "step": 20,
        "metrics": {"greedy_reward": 0.5, "sampled_reward": 0.25},
    }
    assert data["state"]["shares"] == pytest.approx({"generate": 0.6, "score": 0.1, "update": 0.3})
    assert [alarm["name"] for alarm in data["state"]["alarms"]] == ["no-signal"]
    shown = envdoctor("watch", run, "--once", home=run.parent.parent).stdout
    for text in (
        "sort done",
        "step 20/100",
        "reward 0.2",
        "0.5/0.25",
        "generate 60 %",
        "all the same",
        "--set temperature=1.2",
    ):
        assert text in shown
    assert "entropy" not in shown, "null is left out"


def test_who_comes_later_is_told_what_was_noted(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, last=40, seconds=0.1))
    while not (run / "events.jsonl").exists():
        time.sleep(0.02)
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": time.time(), "event": "note", "message": "nothing came for 10 minutes"}) + "\n")
    done = envdoctor("watch", run, home=run.parent.parent)
    assert done.stderr.count("nothing came for 10 minutes") == 1


def test_a_run_that_goes_on_is_followed_to_its_end(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, last=40, seconds=0.1))
    while not (run / "events.jsonl").exists():
        time.sleep(0.02)
    now = watched(run, "--once")
    assert (now[0], now[1]["trainer"], now[1]["process"]) == (0, "running", trainers[0].process.pid)
    done = envdoctor("watch", run, home=run.parent.parent)
    assert done.returncode == 0
    assert "sort done" in done.stdout
    assert "held-out during (step 40)" in done.stderr
    assert re.search(r"step \d+/100 .* left", done.stderr)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr), "a pipe gets no control characters"


@pytest.mark.parametrize(("end", "code"), [("error", 1), ("interrupted", 130)])
def test_watch_ends_as_the_run_did(run: Path, end: str, code: int) -> None:
    Trainer(run, end=end).wait()
    for arguments in ([], ["--once"]):
        done = envdoctor("watch", run, *arguments, home=run.parent.parent)
        assert done.returncode == code
        assert ("RuntimeError: boom" in done.stdout) == (end == "error")
        assert ("--resume latest" in done.stdout) == (end == "interrupted")


def test_a_killed_trainer_is_seen_while_it_is_watched(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until_it_hangs()
    watching = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", "watch", str(run), "--format", "json"],
        env=environment(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.5)
    assert watching.poll() is None, "a run that goes on is followed"
    trainers[0].kill()
    out, _ = watching.communicate(timeout=20)
    data = json.loads(out)["data"]
    assert watching.returncode == 1
    assert data["trainer"] == "gone"
    assert "gone without a word, at step 20 of 100" in data["state"]["trouble"]["message"]
    assert f"--run {run} --resume latest" in data["state"]["trouble"]["hint"]


def test_a_hung_trainer_is_told_so(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang", ago=300.0))  # its last event is five minutes old
    trainers[0].wait_until_it_hangs()
    code, data = watched(run, "--once")
    assert code == 0
    assert data["trainer"] == "running"
    assert 300 <= data["silent"] < 330
    shown = envdoctor("watch", run, "--once", home=run.parent.parent).stdout
    assert "no event for 5:0" in shown
    assert "a step takes 0.5 s" in shown


def test_a_resumed_run_goes_on_after_its_end(run: Path, trainers: list[Trainer]) -> None:
    Trainer(run, end="interrupted", ago=60.0).wait()
    assert watched(run)[0] == 130
    trainers.append(Trainer(run, first=11, last=30, end="hang"))
    trainers[0].wait_until_it_hangs()
    code, data = watched(run, "--once")
    assert (code, data["state"]["ending"], data["trainer"]) == (0, "", "running")
    assert len(data["state"]["rewards"]) == 30, "repeated steps count once"


def test_a_trainer_that_starts_again_is_waited_for(run: Path, trainers: list[Trainer]) -> None:
    """Its lock is held, but the last event is the old end."""
    Trainer(run, end="interrupted", ago=60.0).wait()
    trainers.append(Trainer(run, first=21, last=22, seconds=1.5))
    while find_trainer(run, local=True)[0] != "running":
        time.sleep(0.01)
    assert watched(run)[0] == 0


def test_a_run_that_has_not_started(run: Path) -> None:
    code, data = watched(run, "--once")
    assert (code, data["trainer"], data["state"]["step"]) == (0, "not started", 0)


def test_a_copy_of_a_run_has_no_process(run: Path) -> None:
    Trainer(run, end="none").wait()
    (run / ".lock").unlink()
    code, data = watched(run, "--once")
    assert (code, data["trainer"]) == (0, "unknown")


def test_over_a_network_only_a_process_of_this_machine_is_certain(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until_it_hangs()
    lock, process = run / ".lock", trainers[0].process.pid
    assert find_trainer(run, local=False) == ("running", process)
    trainers[0].kill()
    assert find_trainer(run, local=False) == ("unknown", process)
    assert find_trainer(run, local=True) == ("gone", process)
    lock.write_text("not a number")
    assert find_trainer(run, local=True) == ("gone", 0)


def test_the_lock_tells_where_the_process_number_does_not(run: Path, trainers: list[Trainer]) -> None:
    """As from outside of a container: the number in the lock is another process's here."""
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until_it_hangs()
    (run / ".lock").write_text(str(os.getpid()))
    assert find_trainer(run, local=True) == ("running", os.getpid())


def test_network_file_systems_are_known() -> None:
    mounts = (
        "/dev/vda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nme@gpu:/r /mnt/my\\040gpu fuse.sshfs rw 0 0\n"
        "tmpfs /home/local tmpfs rw 0 0\nbroken\n"
    )
    assert is_network(Path("/home/a/runs"), mounts)
    assert is_network(Path("/mnt/my gpu/runs"), mounts)
    assert not is_network(Path("/homes/a"), mounts)
    assert not is_network(Path("/a"), "x / fuse.fuse-overlayfs rw 0 0\n")
    assert not is_network(Path("/home/local/a"), mounts)


def test_only_new_bytes_are_read_and_half_lines_wait(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = EventTail(path)
    assert list(tail.read_new()) == []
    path.write_text('{"event": "a"}\n{"event": "b"}\n{"eve')
    assert [event["event"] for event in tail.read_new()] == ["a", "b"]
    assert tail.offset == 30
    with path.open("a") as file:
        file.write('nt": "c"}\nnot json\n[1]\n{"event": "d"}\n')
    assert [event["event"] for event in tail.read_new()] == ["c", "d"]
    path.write_text('{"event": "anew"}\n')
    assert [event["event"] for event in tail.read_new()] == ["anew"]


def test_long_files_are_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    note = json.dumps({"event": "note", "message": "x" * 5000})
    path.write_text("\n".join([note] * 700) + "\n")
    assert len(list(EventTail(path).read_new())) == 700


def test_the_newest_run_is_taken_where_none_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = run.parent / "zzz"
    older.mkdir()
    (older / "run.json").write_text("{}")
    os.utime(older / "run.json", (1, 1))
    monkeypatch.chdir(run.parent.parent)
    assert find_run("") == run
    Trainer(older).wait()
    os.utime(run / "run.json", (2, 2))
    assert find_run("") == older, "the one that was heard of last"


@pytest.mark.parametrize(
    ("name", "seen", "hint"),
    [
        ("runs", "holds no run.json (it holds: sort-1)", "runs/sort-1"),
        ("none", "No such file", "ls -d runs/*"),
        ("runs/sort-1/run.json", "is a file", "runs/sort-1"),
    ],
)
def test_a_wrong_folder_is_answered_with_what_it_holds(run: Path, name: str, seen: str, hint: str) -> None:
    home = run.parent.parent
    done = envdoctor("watch", home / name, home=home, COLUMNS="500")
    assert done.returncode == 2
    assert seen in done.stderr
    assert hint in done.stderr
    nothing = envdoctor("watch", home=run)
    assert nothing.returncode == 2
    assert "there is no run below" in nothing.stderr


def test_the_gpus_stand_beside(run: Path, fake_nvml: FakeNvml) -> None:
    Trainer(run).wait()
    ini = machine_ini("h200", "[gpu]", "utilization = 97", "memory_used = 75161927680")
    given = {k: v for k, v in fake_nvml(ini).items() if k in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    shown = envdoctor("watch", run, "--once", home=run.parent.parent, **given).stdout
    assert re.search(r"GPU 0  97 % busy  70\.\d of 140 GiB  78 of 700 W  31 °C", shown), shown


def test_a_driver_that_hangs_does_not_stop_the_watching(
    run: Path, fake_nvml: FakeNvml, trainers: list[Trainer]
) -> None:
    trainers.append(Trainer(run, last=60, seconds=0.1))
    ini = machine_ini("h200", "[system]", "hang.nvmlInitWithFlags = 1")
    given = {k: v for k, v in fake_nvml(ini).items() if k in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    began = time.monotonic()
    code, data = watched(run, **given)
    assert (code, data["gpus"]) == (0, [])
    assert time.monotonic() - began < 15


def test_a_terminal_gets_changing_lines(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, last=30, seconds=0.1))
    while not (run / "events.jsonl").exists():
        time.sleep(0.02)
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", "watch", str(run)], env=environment(run, COLUMNS="60", TERM="xterm"),
        stdout=subprocess.DEVNULL, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(master)
    assert child.wait(10) == 0
    shown = written.decode()
    assert "\x1b[" in shown
    assert re.search(r"step \d+/100 ", shown)
    assert "the trainer runs" in shown
    assert "no-signal" in shown


def test_ctrl_c_ends_the_watching_alone(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until_it_hangs()
    child = subprocess.Popen(
        [sys.executable, "-m", "envdoctor", "watch", str(run)], env=environment(run),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert child.returncode == 130
    assert "Traceback" not in errors
    assert trainers[0].process.poll() is None


SHOWN = """
import json, sys
from envdoctor.output.reporter import Reporter
reporter = Reporter()
for line in sys.stdin:
    reporter.event(json.loads(line))
reporter.close()
"""


def show(events: list[dict[str, Any]], home: Path) -> str:
    """What `train` prints of events, in a pipe."""
    given = "".join(json.dumps(event) + "\n" for event in events)
    done = subprocess.run(
        [sys.executable, "-c", SHOWN], input=given, env=environment(home), capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_train_in_a_pipe_prints_a_line_every_ten_steps_and_all_that_matters(tmp_path: Path) -> None:
    steps = [
        {"t": float(n), "event": "step", "step": n, "steps": 100, "metrics": {"reward": n / 100, "seconds": 1.0}}
        for n in range(1, 101)
    ]
    around = [
        {"event": "phase", "name": "load", "detail": "torch"},
        {"event": "lora", "targets": {"q_proj": 24}, "trainable": 1_000, "total": 100_000},
        {"event": "plan", "plan": {}},
        {"event": "note", "message": "max_prompt_length does nothing in this TRL: prompts are cut by us"},
    ]
    told = [
        {"event": "alarm", "name": "truncation", "step": 100, "message": "m" * 200, "hint": "--set a=b"},
        {"event": "checkpoint_skipped", "path": "checkpoints/checkpoint-50", "reason": "half"},
        {"event": "error", "message": "boom"},
        {"event": "interrupted", "step": None},
    ]
    warmup = [{"event": "warmup", "step": n, "steps": 40, "loss": 2.0} for n in range(1, 41)]
    lines = show([*around, *warmup, {"event": "phase", "name": "train"}, *steps, *told], tmp_path).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  step ")][-10:] == [
        f"{n}/100" for n in range(1, 101, 10)
    ]
    assert len([line for line in lines if "loss 2" in line]) == 4
    assert not [line for line in lines if re.search(r"[\x00-\x1f\x7f]", line)]
    shown = "\n".join(lines)
    assert "! truncation at step 100: " + "m" * 200 in shown
    for part in ("LoRA: 1,000 of 100,000", "i max_prompt_length", "try: --set a=b", "checkpoint-50 is skipped: half"):
        assert part in shown
    assert "  ! interrupted" in lines


def state_of(*events: dict[str, Any]) -> RunState:
    course = Course()
    course.take_all(events)
    return course.state()


FULL = state_of(
    {"t": 1.0, "event": "phase", "name": "train"},
    *(
        {
            "t": 10.0 * step, "event": "step", "step": step, "steps": 500,
            "metrics": {
                "reward": 0.5, "reward_smooth": step / 100, "exact_match_smooth": 0.25, "completion_length": 311.5,
                "kl": 0.01,
                "entropy": 0.31, "tokens_per_second": 12345.6, "seconds": 10.0, "generate_seconds": 6.0,
                "score_seconds": 0.1, "update_seconds": 3.0, "sync_seconds": 0.4, "memory_gib": 71.25,
                "truncated": 0.02, "loss": 0.1, "grad_norm": 0.5, "frac_reward_zero_std": 0.25,
            },
        }
        for step in range(1, 51)
    ),
    {"t": 501.0, "event": "eval", "step": 50, "metrics": {"greedy_reward": 0.5, "sampled_reward": 0.4}},
)  # fmt: skip


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_display_fits_every_width_and_keeps_the_essentials(width: int) -> None:
    shown = [line.plain for line in lines(FULL, width)]
    assert all(len(line) <= width for line in shown)
    joined = "\n".join(shown)
    for essential in ("step 50/500", "1:15:00 left", "reward 0.5", "length 312", "held-out ", "12,346 tokens/s"):
        assert essential in joined
    assert ("peak 71.2 GiB" in joined) == (width >= 100)
    assert ("▁" in joined) == (width >= 60)


def test_the_plain_line_has_everything() -> None:
    assert all(
        part in plain(FULL) for part in ("KL 0.01", "sync 4 %", "no signal 25 %", "held-out reward 0.5/0.4 (step 50)")
    )
    assert "▁" not in plain(FULL)


def test_strange_events_change_nothing_and_reach_no_terminal() -> None:
    state = state_of(
        {}, {"event": 7}, {"event": "step"}, {"event": "step", "step": "x", "metrics": [1]}, {"event": "state"},
        {"event": "step", "t": None, "step": 3, "steps": 9, "metrics": {"reward": "x", "loss": True, "kl": 10**400}},
        {"event": "note", "message": "a\x1b[31mred\nline"}, {"event": "eval", "metrics": None}, {"event": "alarm"},
        {"event": "done", "result": 5},
    )  # fmt: skip
    assert (state.step, state.metrics, state.ending, state.result) == (3, {}, "done", {})
    assert state.notes == ("a [31mred line",)
    assert next(line.plain for line in lines(state, 80)).startswith("  step 3/9")
    assert parse_event(b'{"event": "x", "loss": NaN}') is None
    assert parse_event(b"[" * 100_000) is None


def test_time_left_counts_the_looks_between_the_steps() -> None:
    steps = [
        {"t": 10.0 * n + (100 if n > 5 else 0), "event": "step", "step": n, "steps": 20, "metrics": {"seconds": 8.0}}
        for n in range(1, 11)
    ]
    state = state_of(*steps)
    assert state.step_seconds == 8.0
    assert state.seconds_left == pytest.approx((190 / 9) * 10)
    after_resume = state_of(
        *steps,
        {"t": 900.0, "event": "phase", "name": "train"},
        {"t": 910.0, "event": "step", "step": 8, "steps": 20, "metrics": {}},
    )
    assert after_resume.seconds_left is None


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1:00"), (8049, "2:14:09"), (273_600, "3 d 4 h")]
)
def test_spans(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_sparklines() -> None:
    assert sparkline([0.0, 1.0], 10) == "▁█"
    assert sparkline([0.0, 1.0, 2.0], 3) == "", "too narrow to tell anything"
    assert sparkline(list(range(100)), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0.5] * 9, 4) == "▁▁▁▁"
    assert sparkline([1.0], 8) == sparkline([], 8) == ""
