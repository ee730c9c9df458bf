"""Verification with probes that crash, hang and print garbage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.paths import DATA

from envdoctor.commands import verify
from envdoctor.core import processes as process
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Outcome, ProbeResult, Verification, known
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.profiles import read_profile
from envdoctor.verify import probe_process, process_memory
from envdoctor.verify.probe_scripts import choose_probes, read_probes
from envdoctor.verify.runner import usable_attention, verify_interpreter
from envdoctor.verify.stored_results import read_verification, stale_reason, write_record

SCRIPTS = DATA / "probes"
PYTHON = Path(sys.executable)


def run(*names: str, python: Path = PYTHON, folder: Path = SCRIPTS, scale: float = 1.0) -> Verification:
    return verify_interpreter(
        python, names, required=(), driver="", gpus=(), lock="", deadline_scale=scale, folder=folder
    )


def run_one(name: str, scale: float = 1.0) -> ProbeResult:
    return run(name, scale=scale).results[0]


def is_running(pid: int) -> bool:
    """Whether a process is still running after two seconds; a kill does not take effect at once."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":  # ended, not yet reaped by init
            return False
        time.sleep(0.02)
    return True


# --- outcomes


def test_result_is_read_from_the_file_and_not_from_the_output() -> None:
    result = run_one("right")
    assert (result.outcome, result.message, result.output) == ("passed", "all well", "")
    assert result.numbers == {"error": 0.5, "count": 3.0}
    assert result.tolerances == {"error": 1.0}
    assert 0 < result.seconds < 30


def test_each_probe_has_its_own_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # would hide the probes' shared modules
    first, second = run_one("right").versions, run_one("right").versions
    assert first["TMPDIR"] == first["cwd"] != second["TMPDIR"]
    assert first["TRITON_CACHE_DIR"].startswith(first["TMPDIR"])
    assert not Path(first["TMPDIR"]).exists()
    assert (first["HF_HUB_OFFLINE"], first["PYTHONPATH"]) == ("1", "")


def test_failed_probe_keeps_its_output() -> None:
    result = run_one("wrong")
    assert (result.outcome, result.output) == ("failed", "what it printed")
    assert "expected at most 1" in result.message


def test_segmentation_fault_is_reported_with_the_python_stack() -> None:
    result = run_one("segfault")
    assert result.outcome == "crashed"
    assert result.message.startswith("was killed by SIGSEGV (")
    assert "before the crash" in result.output
    assert "segfault.py" in result.output  # faulthandler


def test_crash_after_the_result_is_a_crash() -> None:
    result = run_one("late_abort")
    assert result.outcome == "crashed"
    assert "SIGABRT, after it wrote a result (passed: all well)" in result.message


def test_numbers_written_before_a_crash_are_kept() -> None:
    result = run_one("late_segfault")
    assert result.outcome == "crashed"
    assert "was killed by SIGSEGV, after it wrote a result (passed: 60 of 64 tokens)" in result.message
    assert "two incompatible builds" in result.message
    assert (result.numbers, result.versions) == ({"same_tokens": 60.0}, {"vllm": "0.10.2"})
    assert result.lists == {"safe": ("eager",)}
    assert usable_attention([msgspec.structs.replace(result, probe="gptoss_sinks")]) == (("eager",), ())
    assert not run("late_segfault").passed


def test_hang_is_stopped_at_its_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    started = time.monotonic()
    result = run_one("hang", scale=0.01)
    assert result.outcome == "hung"
    assert "waiting" in result.output
    assert time.monotonic() - started < 60
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_exit_0_without_a_result() -> None:
    result = run_one("chatter")
    assert (result.outcome, result.message) == ("no-result", "ended with exit code 0 and wrote no result")
    assert "{]}" in result.output
    assert run_one("silent").outcome == "no-result"


@pytest.mark.parametrize(("name", "problem"), [("bad_json", "truncated"), ("foreign_json", "invalid")])
def test_invalid_result_file_is_garbage(name: str, problem: str) -> None:
    result = run_one(name)
    assert result.outcome == "garbage"
    assert problem in result.message


def test_message_is_the_exception_of_the_traceback() -> None:
    result = run_one("raises")
    assert result.outcome == "error"
    assert result.message == "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"
    assert "at exit" in result.output


def test_orphaned_children_are_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    assert run_one("orphan").outcome == "passed"
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_large_output_is_not_held_in_memory() -> None:
    tracemalloc.start()
    try:
        result = run_one("flood")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.message == "children ended with [0, 0]"
    assert result.output.endswith("the last line")
    assert len(result.output) <= process.TAIL_BYTES
    assert peak < 10 * 2**20


def test_endless_output_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_process, "MAX_OUTPUT_BYTES", 2**20)
    result = run_one("endless_flood")
    assert result.outcome == "error"
    assert "printing more than 1 MB" in result.message
    assert result.seconds < 20


def test_probe_that_exceeds_its_memory_limit_is_stopped() -> None:
    result = run_one("greedy")
    assert result.outcome == "error"
    assert result.message.startswith("was stopped because it used 0.")
    assert result.message.endswith("GiB of memory; its limit is 0.25 GiB")
    assert "about to allocate" in result.output  # the input of `explain`
    assert result.seconds < 20


def test_private_memory_does_not_include_mapped_files() -> None:
    assert (
        process_memory.parse_private_memory("Name:\tx\nRssAnon:\t 12 kB\nRssFile:\t 900 kB\nRssShmem:\t 4 kB\n")
        == 16 * 1024
    )
    assert process_memory.parse_private_memory("Name:\tkthreadd\n") == 0
    assert process_memory.parse_session("12 (a ) (b) S 1 12 7 0 -1") == 7
    assert process_memory.find_session("an argument of no process \n") == 0


def test_output_between_two_polls_is_limited_to_its_end(tmp_path: Path) -> None:
    polled: list[str] = []
    code = "print('x' * 20_000_000 + 'end', flush=True)"
    process.run([PYTHON, "-c", code], timeout=30, log=tmp_path / "log", on_output=polled.append)
    assert max(map(len, polled)) <= process.MAX_POLL_BYTES
    assert "".join(polled).endswith("end\n")


def test_signal_without_a_name_is_reported_by_number() -> None:
    finished = process.run([PYTHON, "-c", "import os; os.kill(os.getpid(), 40)"], timeout=30)
    assert finished.ending == "was killed by signal 40"


def test_parse_exception() -> None:
    head = "Traceback (most recent call last):\n"
    chained = f"{head}  File\nKeyError: 1\n\n{head}  x\nOSError: 2\na warning"
    assert probe_process.parse_exception(chained) == "OSError: 2"
    assert probe_process.parse_exception("only\nthis\n\n") == "this"
    assert probe_process.parse_exception(f"{head}  cut") == "cut"
    assert probe_process.parse_exception("") == ""


def test_result_file_is_limited_to_one_megabyte() -> None:
    data = msgspec.json.encode({"outcome": "passed", "message": "x" * probe_process.MAX_RESULT_BYTES})
    with pytest.raises(msgspec.MsgspecError, match="longer"):
        probe_process.parse_report(data)


# --- several probes


def test_results_are_in_the_given_order_and_gpu_probes_run_last() -> None:
    caller, started, ended = threading.get_ident(), [], []
    verification = verify_interpreter(
        PYTHON,
        ["needs_gpu", "wrong", "right", "wrong"],
        required=["right"],
        driver="580.1",
        gpus=["NVIDIA H200"],
        lock="abc",
        on_start=lambda name: started.append((name, threading.get_ident())),
        on_result=lambda result: ended.append((result.probe, threading.get_ident())),
        folder=SCRIPTS,
    )
    assert [result.probe for result in verification.results] == ["needs_gpu", "wrong", "right"]
    assert (started[-1], ended[-1]) == (("needs_gpu", caller), ("needs_gpu", caller))
    assert {ident for _, ident in started + ended} == {caller}
    assert verification.passed is False
    assert run("right", "needs_gpu").passed is True


def test_unknown_probe_suggests_the_nearest_name() -> None:
    with pytest.raises(BadInput, match="unknown probe 'rihgt'; did you mean 'right'"):
        run("rihgt")


def test_interrupt_stops_the_probes(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; import sys; from envdoctor.verify.runner import verify_interpreter\n"
        "verify_interpreter(Path(sys.executable), ['hang'], required=(), driver='', gpus=(), lock='', "
        f"folder=Path({str(SCRIPTS)!r}))"
    )
    pid_file = tmp_path / "pid"
    environment = os.environ | {"PID_FILE": str(pid_file), "PYTHONPATH": str(SCRIPTS.parents[1])}
    child = subprocess.Popen([PYTHON, "-c", script], env=environment, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < until, "the probe did not start"
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert b"KeyboardInterrupt" in error
    assert not is_running(int(pid_file.read_text()))


@pytest.mark.parametrize("content", [None, "just text\n", "#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 7\n"])
def test_rejects_a_path_that_is_not_a_python(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "python"
    if content is not None:
        path.write_text(content)
        path.chmod(0o755)
    with pytest.raises(BadInput) as caught:
        run("right", python=path)
    assert str(path) in caught.value.message
    assert "3.10" in caught.value.expected
    assert caught.value.hint.startswith("envdoctor verify --python")


def test_rejects_an_old_python_a_folder_and_a_dangling_symlink(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.write_text("#!/bin/sh\necho envdoctor-python 3 8\n")
    old.chmod(0o755)
    link.symlink_to(tmp_path / "gone")
    for path, message in ((old, "is Python 3.8"), (tmp_path, "is a directory"), (link, "which does not exist")):
        with pytest.raises(BadInput, match=message):
            run("right", python=path)


def test_choose_probes() -> None:
    probes = read_probes(SCRIPTS)
    assert set(choose_probes(probes)) == {probe.name for probe in probes}
    assert choose_probes(probes, only=["right", "wrong"], skip=["wrong"]) == ("right",)
    assert "right" in (quick := choose_probes(probes, quick=True))
    assert "greedy" not in quick
    assert "greedy" in choose_probes(probes, quick=True, required=["greedy"])
    assert choose_probes(probes, only=["greedy"], quick=True) == ("greedy",)
    with pytest.raises(BadInput, match="unknown probe 'rihgt'; did you mean 'right'"):
        choose_probes(probes, skip=["rihgt"])
    with pytest.raises(BadInput, match="no probe to run"):
        choose_probes(probes, only=["right"], skip=["right"])


def result_of(probe: str, outcome: Outcome = "passed", **fields: Any) -> ProbeResult:
    return ProbeResult(probe=probe, outcome=outcome, message="", seconds=0.1, **fields)


def test_usable_attention_has_passed() -> None:
    from_package, from_vllm = {"own_package": 1.0}, {"own_package": 0.0}
    sinks = {"safe": ("flex_attention", "eager"), "differs": ("flash_attention_2",)}
    results = [
        result_of("flash_attn3", numbers=from_vllm),
        result_of("flash_attn2", numbers=from_package),
        result_of("sdpa"),
        result_of("gptoss_sinks", lists=sinks),
    ]
    assert usable_attention(results) == (("flash_attention_2", "sdpa", "eager"), ("flex_attention", "eager"))
    failed = [result_of(result.probe, "failed", numbers=from_package, lists=sinks) for result in results]
    assert usable_attention(failed) == (("eager",), ())
    assert usable_attention(()) == (("eager",), ())


def test_lists_of_a_probe_are_in_the_verification() -> None:
    assert run_one("right").lists == {"safe": ("a", "b")}


# --- stored results


def test_verification_round_trip_and_stale_reason(tmp_path: Path) -> None:
    verification = run("right")
    path = tmp_path / "state" / "verification.json"
    write_record(path, verification)
    assert read_verification(path) == verification
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert stale_reason(verification, "", (), "") == ""
    assert stale_reason(verification, "580.1", (), "") == "driver: was none, is 580.1"
    assert "GPUs: was none, is T4" in stale_reason(verification, "", ("T4",), "")
    assert "lock: was none, is abc" in stale_reason(verification, "", (), "abc")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"schema": 2}', b'{"schema": 1, "python": 3}'])
def test_unreadable_verification_is_bad_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "verification.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"verification\.json"):
        read_verification(path)


def test_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvdoctorError, match="cannot write"):
        write_record(tmp_path / "file" / "verification.json", run("right"))


@pytest.mark.parametrize(
    ("variables", "profile"),
    [({"COLAB_RELEASE_TAG": "x"}, "colab"), ({}, "cpu"), ({"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, "cpu")],
)
def test_required_probes_in_a_notebook(
    variables: dict[str, str], profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Colab has a T4, and Kaggle a P100, which its profile does not support."""
    gpu = "7.5" if "COLAB_RELEASE_TAG" in variables else "6.0"
    machine = override(read_recorded("t4"), [f"gpus.0.compute_capability={gpu}"])
    machine = msgspec.structs.replace(machine, environment=known(variables, "environment"))
    monkeypatch.setattr(verify, "select_machine", lambda *_: machine)
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert verify._required_without_record() == read_profile(profile).verify.required
