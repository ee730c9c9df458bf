"""Real child processes: successful, crashing, hanging, with large output, with orphans, or not startable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.paths import ROOT

from envdoctor.core import processes as process
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import MAX_POLL_BYTES, TAIL_BYTES, clean_environment, run


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", code]


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(path: Path, seconds: float = 60) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    pytest.fail(f"{path} was not written within {seconds} s")


def has_ended(pid: int, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


def test_a_successful_program() -> None:
    done = run(python("import sys; print('out'); print('err', file=sys.stderr)"), timeout=30)
    assert (done.ok, done.returncode, done.signal, done.timed_out) == (True, 0, 0, False)
    assert sorted(done.output.split()) == ["err", "out"]
    assert done.log == ""


def test_standard_error_can_be_discarded() -> None:
    done = run(python("import sys; print('out'); print('err', file=sys.stderr)"), timeout=30, separate_stderr=True)
    assert done.output == "out\n"


def test_an_exit_code_is_reported() -> None:
    done = run(python("raise SystemExit(7)"), timeout=30)
    assert not done.ok
    assert done.ending == "ended with exit code 7"


@each_case(("number", "name"), [(signal.SIGSEGV, "SIGSEGV"), (signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
def test_a_crash_is_described_by_its_signal(number: int, name: str) -> None:
    done = run(python(f"import os; os.kill(os.getpid(), {int(number)})"), timeout=30)
    assert done.signal == number
    assert done.ending == f"was killed by {name}"


def test_a_hanging_program_is_stopped_after_the_timeout() -> None:
    done = run(["sh", "-c", "echo here; exec sleep 300"], timeout=0.5)  # sh starts in a fraction of this
    assert done.timed_out
    assert not done.ok
    assert done.ending.startswith("did not finish within")
    assert done.seconds < 60
    assert "here" in done.output


def test_the_timeout_applies_while_output_is_polled() -> None:
    texts: list[str] = []
    done = run(python("import time; time.sleep(300)"), timeout=0.5, on_output=texts.append)
    assert done.timed_out
    assert 1 <= len(texts) <= 30


STUBBORN = "import signal, time; signal.signal(2, 1); signal.signal(15, 1); signal.signal(1, 1);"


def test_a_process_group_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    """Parent and child ignore SIGINT, SIGTERM and SIGHUP."""
    note = tmp_path / "pid"
    child = f"echo $$ > {note}; exec sleep 300"
    done = run(["sh", "-c", f"trap '' INT TERM HUP; sh -c '{child}' & sleep 300"], timeout=1.0, grace=0.3)
    assert done.timed_out
    assert done.signal == signal.SIGKILL
    assert has_ended(int(wait_for(note)))


def test_a_child_that_outlives_its_parent_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = (
        f"{STUBBORN} import os, pathlib; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(300)"
    )
    parent = (
        f"import subprocess, sys, pathlib, time; subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"while not pathlib.Path({str(note)!r}).exists(): time.sleep(0.01)"
    )
    done = run(python(parent), timeout=30)
    assert done.ok
    assert done.seconds < 30
    assert has_ended(int(wait_for(note)))


def test_large_output_is_not_held_in_memory() -> None:
    pieces: list[int] = []
    flood = "import sys\nfor _ in range(50): sys.stdout.write('x' * (1 << 20))\nprint('end')"
    done = run(python(flood), timeout=60, on_output=lambda text: pieces.append(len(text)))
    assert done.ok
    assert len(done.output) == TAIL_BYTES
    assert done.output.endswith("xend\n")
    assert max(pieces) <= MAX_POLL_BYTES


def test_standard_input_is_passed_or_empty() -> None:
    echo = python("import sys; print(repr(sys.stdin.read()))")
    assert run(echo, timeout=30, stdin="größe".encode()).output == "'größe'\n"
    assert run(echo, timeout=30).output == "''\n"


def test_a_log_is_appended_and_output_is_that_of_the_last_run(tmp_path: Path) -> None:
    log = tmp_path / "logs/a.log"
    seen: list[str] = []
    run(python("print('first')"), timeout=30, log=log)
    done = run(python("print('second')"), timeout=30, log=log, on_output=seen.append)
    assert log.read_text() == "first\nsecond\n"
    assert (done.output, done.log) == ("second\n", str(log))
    assert "".join(seen) == "second\n"


def test_an_unwritable_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(EnvdoctorError, match=r"cannot write the log .*file/a\.log") as caught:
        run(python("print(1)"), timeout=30, log=tmp_path / "file/a.log")
    assert "XDG_STATE_HOME" in caught.value.hint


def test_polling_returns_every_character_once() -> None:
    """A character whose two bytes are written half a second apart is decoded once."""
    code = (
        "import os, time; os.write(1, b'gr\\xc3'); time.sleep(0.5); os.write(1, b'\\xb6sse\\n'); time.sleep(0.3);"
        "os.write(1, b'end')"
    )
    seen: list[str] = []
    run(python(code), timeout=30, on_output=seen.append)
    assert "".join(seen) == "grösse\nend"


def test_ctrl_c_while_polling_stops_the_process_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(300)"

    def interrupt(_: str) -> None:
        if note.exists() and note.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(python(code), timeout=30, on_output=interrupt)
    assert has_ended(int(note.read_text()))


HOST = """
import sys
from envdoctor.core.processes import run
try:
    run([sys.executable, "-c", sys.argv[1]], timeout=300, grace=float(sys.argv[2]))
except KeyboardInterrupt:
    print("interrupted")
"""


def start_host(code: str, grace: float = process.GRACE_SECONDS) -> subprocess.Popen[str]:
    """Start a process that runs a child through envdoctor.core.processes."""
    return subprocess.Popen(
        [sys.executable, "-c", HOST, code, str(grace)],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_tool_stops_its_child(number: int, tmp_path: Path) -> None:
    """SIGTERM is sent by schedulers and `kill`, SIGHUP by a closed terminal. No child may continue."""
    note = tmp_path / "pid"
    host = start_host(
        f"import os, pathlib, time; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(300)"
    )
    pid = int(wait_for(note))
    host.send_signal(number)
    assert host.communicate(timeout=60)[0] == "interrupted\n"
    assert has_ended(pid)


def test_a_signal_during_the_start_stops_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Popen returned, the exception of the handler left the child running."""
    started: list[subprocess.Popen[bytes]] = []

    def interrupted_start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    start = subprocess.Popen
    monkeypatch.setattr(process.subprocess, "Popen", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        process.run(["sleep", "300"], timeout=60)
    assert has_ended(started[0].pid)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_ctrl_c_kills_immediately(tmp_path: Path) -> None:
    note, first = tmp_path / "pid", tmp_path / "first"
    host = start_host(
        f"{STUBBORN} import os, pathlib; signal.signal(2, lambda *_: pathlib.Path({str(first)!r}).write_text('1'));"
        f"pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\nwhile True: time.sleep(300)",
        grace=200,  # SIGKILL came after 400 s without the second signal
    )
    pid = int(wait_for(note))
    host.send_signal(signal.SIGINT)
    wait_for(first)
    host.send_signal(signal.SIGINT)
    assert host.communicate(timeout=60)[0] == "interrupted\n"
    assert has_ended(pid)


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run(python(""), timeout=30)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_nohup_is_respected() -> None:
    """A process that ignores SIGHUP continues."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = run(python("import os, signal; os.kill(os.getppid(), signal.SIGHUP); print('on')"), timeout=30)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert done.output == "on\n"


def test_the_environment_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONHOME", "PYTHONPATH", "UV_PYTHON", "VIRTUAL_ENV", "UV_CACHE_DIR", "PLAIN"):
        monkeypatch.setenv(name, "/nowhere")
    code = "import os; print([n for n in ('PYTHONHOME', 'PYTHONPATH', 'UV_PYTHON', 'VIRTUAL_ENV', 'UV_CACHE_DIR',"
    done = run([sys.executable, "-c", code + "'PLAIN', 'EXTRA') if n in os.environ])"], timeout=30, env={"EXTRA": ""})
    assert done.output == "['UV_CACHE_DIR', 'PLAIN', 'EXTRA']\n"


def test_credentials_of_named_indexes_reach_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_INDEX_MIRROR_PASSWORD", "secret")
    assert clean_environment()["UV_INDEX_MIRROR_PASSWORD"] == "secret"


@each_case("argv", [["/nowhere/program"], ["/etc/hosts"], ["/"], ["echo", "a\0b"]])
def test_a_program_that_cannot_start_is_an_error(argv: list[str]) -> None:
    with pytest.raises(EnvdoctorError, match=f"cannot start {argv[0]}: ."):
        run(argv, timeout=30)


def test_an_invalid_variable_name_is_an_error() -> None:
    with pytest.raises(EnvdoctorError, match="illegal environment variable name"):
        run(python(""), timeout=30, env={"A=B": "1"})
