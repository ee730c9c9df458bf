"""`envdoctor watch` on processes that write runs like the trainer: alive, killed, hung, resumed, remote."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope, environment, interpreter
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.json_schema import validate
from support.paths import ROOT

from envdoctor.core.errors import BadInput
from envdoctor.output.run_lines import lines, plain, span, sparkline
from envdoctor.output.schema import schema_of
from envdoctor.training.runs.directory import find_run
from envdoctor.training.runs.events import EventReader, parse_event
from envdoctor.training.runs.lock import is_network, read_trainer_status
from envdoctor.training.runs.state import RunReducer, RunState

# A trainer without torch: it writes steps with the real RunDirectory, then ends as its arguments say.
TRAINER = """
import sys, time, types
sys.path.insert(0, sys.argv[1])
from run import directory as run_directory
from run.directory import RunDirectory
from pathlib import Path
run, end, ago = Path(sys.argv[2]), sys.argv[6], float(sys.argv[7])
first, last, pause = (int(argument) for argument in sys.argv[3:6])
if ago:
    real = time.time
    run_directory.time = types.SimpleNamespace(time=lambda: real() - ago)
directory = RunDirectory(run)
directory.lock()
directory.start_phase("train", "steps")
for step in range(first, last + 1):
    part = {f"{name}_seconds": share * 0.5 for name, share in (("generate", 0.6), ("score", 0.1), ("update", 0.3))}
    metrics = {"reward": step / 100, "reward_smooth": step / 100, "loss": 0.1, "entropy": None, "seconds": 0.5} | part
    directory.write_event("step", step=step, steps=100, metrics=metrics)
    if step % 10 == 0:
        metrics = {"greedy_reward": 0.5, "sampled_reward": 0.25}
        directory.write_event("eval", when="during", step=step, metrics=metrics)
    if step == 15:
        hint = "--set temperature=1.2"
        directory.write_event("alarm", name="no-signal", step=15, message="all the same", hint=hint)
    if step == pause:
        print("paused", flush=True)
        sys.stdin.readline()
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
    """A child process that writes a run."""

    def __init__(
        self, run: Path, *, first: int = 1, last: int = 20, pause: int = 0, end: str = "done", ago: float = 0.0
    ) -> None:
        arguments = map(str, (ROOT / "train", run, first, last, pause, end, ago))
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.run = run

    def wait(self) -> None:
        self.process.communicate(timeout=60)

    def wait_until(self, word: str) -> None:
        """Wait until the trainer is `paused` or `hanging`."""
        assert self.process.stdout
        assert f"{word}\n" in self.process.stdout, "the trainer ended"

    def resume(self) -> None:
        """End the pause."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Watch:
    """A running `envdoctor watch`, whose output goes to files."""

    def __init__(self, run: Path, *arguments: str, **extra: str) -> None:
        self.outputs = [run.parent.parent / name for name in (f"out{''.join(arguments)}", f"err{''.join(arguments)}")]
        with self.outputs[0].open("wb") as out, self.outputs[1].open("wb") as err:
            self.process = subprocess.Popen(
                [interpreter(), "-m", "envdoctor", "watch", str(run), *arguments],
                env=environment(run.parent.parent, **extra), stdout=out, stderr=err,
            )  # fmt: skip

    @property
    def errors(self) -> str:
        return self.outputs[1].read_text()

    def wait_until_shown(self, text: str) -> None:
        end = time.monotonic() + 60
        while text not in self.errors:
            assert self.process.poll() is None, self.errors
            assert time.monotonic() < end, self.errors
            time.sleep(0.02)

    def wait(self) -> int:
        return self.process.wait(60)


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


def watch_json(run: Path, *arguments: str, **extra: str) -> tuple[int, dict[str, Any]]:
    done = envdoctor("watch", run, "--format", "json", *arguments, home=run.parent.parent, **extra)
    document, schema = envelope(done), schema_of("watch")
    assert validate(document, schema, schema) == []
    return done.returncode, document["data"]


def test_finished_run_exits_with_0(run: Path) -> None:
    Trainer(run).wait()
    code, data = watch_json(run)
    assert code == 0
    assert (data["trainer"], data["state"]["ending"], data["state"]["step"]) == ("gone", "done", 20)
    assert data["state"]["evaluations"][-1] == {
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


def test_notes_before_the_first_poll_are_shown_once(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, pause=20))
    trainers[0].wait_until("paused")
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps({"t": time.time(), "event": "note", "message": "nothing came for 10 minutes"}) + "\n")
    watch = Watch(run)
    watch.wait_until_shown("step 20/100")
    trainers[0].resume()
    assert watch.wait() == 0
    assert watch.errors.count("nothing came for 10 minutes") == 1


def test_running_run_is_followed_to_its_end(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, last=40, pause=20))
    trainers[0].wait_until("paused")
    now = watch_json(run, "--once")
    assert (now[0], now[1]["trainer"], now[1]["process"]) == (0, "running", trainers[0].process.pid)
    watch = Watch(run)
    watch.wait_until_shown("step 20/100")
    trainers[0].resume()
    assert watch.wait() == 0
    printed = watch.outputs[0].read_text()
    assert "sort done" in printed
    assert "held-out during (step 40)" in watch.errors
    assert re.search(r"step \d+/100 .* left", watch.errors)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed + watch.errors), "a pipe gets no control characters"


@pytest.mark.parametrize(("end", "code"), [("error", 1), ("interrupted", 130)])
def test_exit_code_states_how_the_run_ended(run: Path, end: str, code: int) -> None:
    Trainer(run, end=end).wait()
    for arguments in ([], ["--once"]):
        done = envdoctor("watch", run, *arguments, home=run.parent.parent)
        assert done.returncode == code
        assert ("RuntimeError: boom" in done.stdout) == (end == "error")
        assert ("--resume latest" in done.stdout) == (end == "interrupted")


def test_killed_trainer_is_detected_while_watching(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until("hanging")
    followed, watch = Watch(run, "--format=json"), Watch(run)
    watch.wait_until_shown("step 20/100")
    assert watch.process.poll() is followed.process.poll() is None, "a running run is followed"
    trainers[0].kill()
    assert (watch.wait(), followed.wait()) == (1, 1)
    data = json.loads(followed.outputs[0].read_text())["data"]
    assert data["trainer"] == "gone"
    assert "ended without an event, at step 20 of 100" in data["state"]["error"]["message"]
    assert f"--run {run} --resume latest" in data["state"]["error"]["hint"]


def test_hung_trainer_is_reported_as_silent(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang", ago=300.0))  # its last event is five minutes old
    trainers[0].wait_until("hanging")
    code, data = watch_json(run, "--once")
    assert code == 0
    assert data["trainer"] == "running"
    assert 300 <= data["silent"] < 330
    shown = envdoctor("watch", run, "--once", home=run.parent.parent).stdout
    assert "no event for 5:0" in shown
    assert "a step takes 0.5 s" in shown


def test_resumed_run_is_not_over(run: Path, trainers: list[Trainer]) -> None:
    Trainer(run, end="interrupted", ago=60.0).wait()
    assert watch_json(run)[0] == 130
    trainers.append(Trainer(run, first=11, last=30, end="hang"))
    trainers[0].wait_until("hanging")
    code, data = watch_json(run, "--once")
    assert (code, data["state"]["ending"], data["trainer"]) == (0, "", "running")
    assert len(data["state"]["rewards"]) == 30, "repeated steps count once"


def test_restarted_trainer_is_followed(run: Path, trainers: list[Trainer]) -> None:
    """The trainer holds the lock while the last event is still the earlier end."""
    Trainer(run, end="interrupted", ago=60.0).wait()
    trainers.append(Trainer(run, first=21, last=21, pause=21))
    while read_trainer_status(run, local=True)[0] != "running":
        time.sleep(0.01)
    watch = Watch(run)
    watch.wait_until_shown("step 2")
    trainers[0].resume()
    assert watch.wait() == 0


def test_run_that_has_not_started(run: Path) -> None:
    code, data = watch_json(run, "--once")
    assert (code, data["trainer"], data["state"]["step"]) == (0, "not started", 0)


def test_copied_run_has_no_process(run: Path) -> None:
    Trainer(run, end="none").wait()
    (run / ".lock").unlink()
    code, data = watch_json(run, "--once")
    assert (code, data["trainer"]) == (0, "unknown")


def test_status_on_a_network_file_system(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until("hanging")
    lock, process = run / ".lock", trainers[0].process.pid
    assert read_trainer_status(run, local=False) == ("running", process)
    trainers[0].kill()
    assert read_trainer_status(run, local=False) == ("unknown", process)
    assert read_trainer_status(run, local=True) == ("gone", process)
    lock.write_text("not a number")
    assert read_trainer_status(run, local=True) == ("gone", 0)


def test_lock_decides_where_the_process_number_does_not(run: Path, trainers: list[Trainer]) -> None:
    """As for a trainer in a container: the number in the lock file is another process here."""
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until("hanging")
    (run / ".lock").write_text(str(os.getpid()))
    assert read_trainer_status(run, local=True) == ("running", os.getpid())


def test_network_file_systems() -> None:
    mounts = (
        "/dev/vda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nme@gpu:/r /mnt/my\\040gpu fuse.sshfs rw 0 0\n"
        "tmpfs /home/local tmpfs rw 0 0\nbroken\n"
    )
    assert is_network(Path("/home/a/runs"), mounts)
    assert is_network(Path("/mnt/my gpu/runs"), mounts)
    assert not is_network(Path("/homes/a"), mounts)
    assert not is_network(Path("/a"), "x / fuse.fuse-overlayfs rw 0 0\n")
    assert not is_network(Path("/home/local/a"), mounts)


def test_reader_returns_new_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert list(reader.read_new()) == []
    path.write_text('{"event": "a"}\n{"event": "b"}\n{"eve')
    assert [event["event"] for event in reader.read_new()] == ["a", "b"]
    assert reader.offset == 30
    with path.open("a") as file:
        file.write('nt": "c"}\nnot json\n[1]\n{"event": "d"}\n')
    assert [event["event"] for event in reader.read_new()] == ["c", "d"]
    path.write_text('{"event": "replaced"}\n')
    assert [event["event"] for event in reader.read_new()] == ["replaced"]


def test_long_files_are_read_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    note = json.dumps({"event": "note", "message": "x" * 5000})
    path.write_text("\n".join([note] * 700) + "\n")
    assert len(list(EventReader(path).read_new())) == 700


def test_default_is_the_run_that_changed_last(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = run.parent / "zzz"
    older.mkdir()
    (older / "run.json").write_text("{}")
    os.utime(older / "run.json", (1, 1))
    monkeypatch.chdir(run.parent.parent)
    assert find_run("", needs_steps=False) == run
    Trainer(older).wait()
    os.utime(run / "run.json", (2, 2))
    assert find_run("") == older, "its events are newer"


def test_a_failed_start_is_not_the_newest_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Trainer(run).wait()
    monkeypatch.chdir(run.parent.parent)
    failed, starting = (run.parent / name for name in ("sort-2", "sort-3"))
    for folder in (failed, starting):
        folder.mkdir()
        (folder / "run.json").write_text("{}")
    (failed / "events.jsonl").write_text('{"t": 1.0, "event": "error", "message": "no GPU"}\n')
    later = time.time() + 10
    os.utime(failed / "run.json", (later + 1, later + 1))
    os.utime(starting / "run.json", (later, later))
    assert find_run("") == run
    assert find_run("", needs_steps=False) == starting
    os.utime(starting / "run.json", (1, 1))  # it never created its lock
    assert find_run("", needs_steps=False) == run
    shutil.rmtree(run)
    with pytest.raises(BadInput, match=r"no run below .* has steps \(2 without\)") as caught:
        find_run("", needs_steps=False)
    assert caught.value.hint.startswith(f"envdoctor watch {failed}")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("runs", "has no run.json (it contains: sort-1)", "runs/sort-1"),
        ("none", "No such file", "ls -d runs/*"),
        ("runs/sort-1/run.json", "is a file", "runs/sort-1"),
    ],
)
def test_wrong_folder_is_an_error_that_lists_its_content(run: Path, name: str, message: str, hint: str) -> None:
    home = run.parent.parent
    done = envdoctor("watch", home / name, home=home, COLUMNS="500")
    assert done.returncode == 2
    assert message in done.stderr
    assert hint in done.stderr
    no_runs = envdoctor("watch", home=run)
    assert no_runs.returncode == 2
    assert "there is no run below" in no_runs.stderr


def test_gpus_are_shown(run: Path, fake_nvml: FakeNvml) -> None:
    Trainer(run).wait()
    ini = machine_ini("h200", "[gpu]", "utilization = 97", "memory_used = 75161927680")
    fake = fake_nvml(ini)
    variables = {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    shown = envdoctor("watch", run, "--once", home=run.parent.parent, **variables).stdout
    assert re.search(r"GPU 0  97 % busy  70\.\d of 140 GiB  78 of 700 W  31 °C", shown), shown


def test_hanging_driver_does_not_block_watch(run: Path, fake_nvml: FakeNvml, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, pause=20))
    trainers[0].wait_until("paused")
    ini = machine_ini("h200", "[system]", "hang.nvmlInitWithFlags = 1")
    fake = fake_nvml(ini)
    variables = {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")}
    watch = Watch(run, **variables)
    watch.wait_until_shown("step 20/100")
    trainers[0].resume()
    assert watch.wait() == 0
    assert "GPU" not in watch.errors + watch.outputs[0].read_text()
    code, data = watch_json(run, **variables)
    assert (code, data["gpus"]) == (0, [])


def test_live_display_on_a_terminal(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, last=30, pause=20))
    trainers[0].wait_until("paused")
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [interpreter(), "-m", "envdoctor", "watch", str(run)], env=environment(run, COLUMNS="60", TERM="xterm"),
        stdout=subprocess.DEVNULL, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    written, resumed = b"", False
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        written += chunk
        if b"no-signal" in written and not resumed:
            trainers[0].resume()
            resumed = True
    os.close(master)
    assert child.wait(60) == 0
    shown = written.decode()
    assert "\x1b[" in shown
    assert re.search(r"step \d+/100 ", shown)
    assert "the trainer runs" in shown
    assert "no-signal" in shown


def test_ctrl_c_ends_watch_and_not_the_trainer(run: Path, trainers: list[Trainer]) -> None:
    trainers.append(Trainer(run, end="hang"))
    trainers[0].wait_until("hanging")
    watch = Watch(run)
    watch.wait_until_shown("step 20/100")
    watch.process.send_signal(signal.SIGINT)
    assert watch.wait() == 130
    assert "Traceback" not in watch.errors
    assert trainers[0].process.poll() is None


SHOW_EVENTS = """
import json, sys
from envdoctor.output.reporter import LazyReporter
reporter = LazyReporter()
for line in sys.stdin:
    reporter.event(json.loads(line))
reporter.close()
"""


def show(events: list[dict[str, Any]], home: Path) -> str:
    """Return what `train` prints for events on a pipe."""
    lines = "".join(json.dumps(event) + "\n" for event in events)
    done = subprocess.run(
        [interpreter(), "-c", SHOW_EVENTS],
        input=lines,
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


def test_train_on_a_pipe_prints_every_tenth_step_and_all_messages(tmp_path: Path) -> None:
    steps = [
        {"t": float(n), "event": "step", "step": n, "steps": 100, "metrics": {"reward": n / 100, "seconds": 1.0}}
        for n in range(1, 101)
    ]
    setup = [
        {"event": "phase", "name": "load", "detail": "torch"},
        {"event": "lora", "targets": {"q_proj": 24}, "trainable": 1_000, "total": 100_000},
        {"event": "plan", "plan": {}},
        {"event": "note", "message": "max_prompt_length does nothing in this TRL: prompts are cut by us"},
    ]
    messages = [
        {"event": "alarm", "name": "truncation", "step": 100, "message": "m" * 200, "hint": "--set a=b"},
        {"event": "checkpoint_skipped", "path": "checkpoints/checkpoint-50", "reason": "half"},
        {"event": "error", "message": "boom"},
        {"event": "interrupted", "step": None},
    ]
    warmup = [{"event": "warmup", "step": n, "steps": 40, "loss": 2.0} for n in range(1, 41)]
    lines = show([*setup, *warmup, {"event": "phase", "name": "train"}, *steps, *messages], tmp_path).splitlines()
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
    reducer = RunReducer()
    reducer.apply_all(events)
    return reducer.state()


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


@each_case("width", [40, 60, 80, 100, 200])
def test_display_fits_each_width(width: int) -> None:
    shown = [line.plain for line in lines(FULL, width)]
    assert all(len(line) <= width for line in shown)
    joined = "\n".join(shown)
    for essential in ("step 50/500", "1:15:00 left", "reward 0.5", "length 312", "held-out ", "12,346 tokens/s"):
        assert essential in joined
    assert ("peak 71.2 GiB" in joined) == (width >= 100)
    assert ("▁" in joined) == (width >= 60)


def test_plain_line_has_all_cells() -> None:
    assert all(
        part in plain(FULL) for part in ("KL 0.01", "sync 4 %", "no signal 25 %", "held-out reward 0.5/0.4 (step 50)")
    )
    assert "▁" not in plain(FULL)


def test_malformed_events_are_ignored_and_control_characters_removed() -> None:
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


def test_time_left_includes_evaluations_between_steps() -> None:
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


@each_case(
    ("seconds", "shown"), [(0.4, "0 s"), (59.4, "59 s"), (60, "1:00"), (8049, "2:14:09"), (273_600, "3 d 4 h")]
)
def test_spans(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_sparklines() -> None:
    assert sparkline([0.0, 1.0], 10) == "▁█"
    assert sparkline([0.0, 1.0, 2.0], 3) == "", "too narrow for a sparkline"
    assert sparkline(list(range(100)), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0.5] * 9, 4) == "▁▁▁▁"
    assert sparkline([1.0], 8) == sparkline([], 8) == ""
