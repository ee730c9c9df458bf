"""Verification: probes that really crash, hang and babble."""

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

from envdoctor.core import processes as process
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Outcome, ProbeResult, Verification
from envdoctor.verify import probe_process, process_memory
from envdoctor.verify import runner as verify

SCRIPTS = Path(__file__).parent / "probes"
PYTHON = Path(sys.executable)


def run(*names: str, python: Path = PYTHON, folder: Path = SCRIPTS, scale: float = 1.0) -> Verification:
    return verify.verify(python, names, required=(), driver="", gpus=(), lock="", deadline_scale=scale, folder=folder)


def run_one(name: str, scale: float = 1.0) -> ProbeResult:
    return run(name, scale=scale).results[0]


def is_running(pid: int) -> bool:
    """Whether a process lives two seconds on: a kill takes effect when the kernel gets to it."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":  # ended; the container's init may never collect it
            return False
        time.sleep(0.02)
    return True


# --- outcomes


def test_a_probe_that_passes_is_read_from_its_file_and_not_from_its_chatter() -> None:
    result = run_one("right")
    assert (result.outcome, result.message, result.output) == ("passed", "all well", "")
    assert result.numbers == {"error": 0.5, "count": 3.0}
    assert result.tolerances == {"error": 1.0}
    assert 0 < result.seconds < 30


def test_each_probe_has_a_temporary_directory_of_its_own_that_is_gone_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # would hide the probes' shared modules
    first, second = run_one("right").versions, run_one("right").versions
    assert first["TMPDIR"] == first["cwd"] != second["TMPDIR"]
    assert first["TRITON_CACHE_DIR"].startswith(first["TMPDIR"])
    assert not Path(first["TMPDIR"]).exists()
    assert (first["HF_HUB_OFFLINE"], first["PYTHONPATH"]) == ("1", "")


def test_a_probe_that_reports_wrong_numbers_has_failed_and_its_output_is_kept() -> None:
    result = run_one("wrong")
    assert (result.outcome, result.output) == ("failed", "what it printed")
    assert "expected at most 1" in result.message


def test_a_segmentation_fault_is_named_with_the_python_stack() -> None:
    result = run_one("segfault")
    assert result.outcome == "crashed"
    assert result.message.startswith("was killed by SIGSEGV (")
    assert "before the crash" in result.output
    assert "segfault.py" in result.output  # faulthandler


def test_a_crash_after_the_result_is_still_a_crash() -> None:
    result = run_one("late_abort")
    assert result.outcome == "crashed"
    assert "SIGABRT, after it had written a result (passed: all well)" in result.message


def test_what_was_written_before_a_crash_is_told_and_does_not_count_as_passed() -> None:
    result = run_one("late_segfault")
    assert result.outcome == "crashed"
    assert "was killed by SIGSEGV, after it had written a result (passed: 60 of 64 tokens)" in result.message
    assert "two builds that do not fit together" in result.message
    assert (result.numbers, result.versions) == ({"same_tokens": 60.0}, {"vllm": "0.10.2"})
    assert result.lists == {"safe": ("eager",)}
    assert verify.usable_attention([msgspec.structs.replace(result, probe="gptoss_sinks")]) == (("eager",), ())
    assert not run("late_segfault").passed


def test_a_hang_is_stopped_at_its_deadline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    started = time.monotonic()
    result = run_one("hang", scale=0.01)
    assert result.outcome == "hung"
    assert "waiting" in result.output
    assert time.monotonic() - started < 5
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_printed_garbage_and_exit_0_without_a_result() -> None:
    result = run_one("chatter")
    assert (result.outcome, result.message) == ("no-result", "ended with exit code 0 and wrote no result")
    assert "{]}" in result.output
    assert run_one("silent").outcome == "no-result"


@pytest.mark.parametrize(("name", "said"), [("bad_json", "truncated"), ("foreign_json", "no result")])
def test_a_result_file_that_is_no_result_is_garbage(name: str, said: str) -> None:
    result = run_one(name)
    assert result.outcome == "garbage"
    assert said in result.message


def test_a_traceback_becomes_its_exception_line() -> None:
    result = run_one("raises")
    assert result.outcome == "error"
    assert result.message == "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"
    assert "farewell" in result.output


def test_children_that_a_probe_leaves_behind_are_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    assert run_one("orphan").outcome == "passed"
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_50_mb_of_output_stay_out_of_this_process() -> None:
    tracemalloc.start()
    try:
        result = run_one("flood")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.message == "children ended with [0, 0]"
    assert result.output.endswith("the last words")
    assert len(result.output) <= process.TAIL_BYTES
    assert peak < 10 * 2**20


def test_endless_output_is_stopped_before_it_fills_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_process, "OUTPUT_LIMIT", 2**20)
    result = run_one("endless_flood")
    assert result.outcome == "error"
    assert "printed more than 1 MB" in result.message
    assert result.seconds < 20


def test_a_probe_whose_child_takes_more_memory_than_its_bound_is_stopped() -> None:
    result = run_one("greedy")
    assert result.outcome == "error"
    assert result.message.startswith("was stopped when it held 0.")
    assert result.message.endswith("GiB of memory, its bound is 0.25 GiB")
    assert "about to take it" in result.output  # what `explain` is given
    assert result.seconds < 20


def test_memory_that_files_are_mapped_into_is_not_held() -> None:
    assert (
        process_memory.parse_private("Name:\tx\nRssAnon:\t 12 kB\nRssFile:\t 900 kB\nRssShmem:\t 4 kB\n") == 16 * 1024
    )
    assert process_memory.parse_private("Name:\tkthreadd\n") == 0
    assert process_memory.parse_session("12 (a ) (b) S 1 12 7 0 -1") == 7
    assert process_memory.find_session("no such word on any command line \n") == 0


def test_a_burst_between_two_polls_is_cut_to_its_end(tmp_path: Path) -> None:
    heard: list[str] = []
    say = "print('x' * 20_000_000 + 'end', flush=True)"
    process.run([PYTHON, "-c", say], deadline=30, log=tmp_path / "log", poll=heard.append)
    assert max(map(len, heard)) <= process.BURST_BYTES
    assert "".join(heard).endswith("end\n")


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    finished = process.run([PYTHON, "-c", "import os; os.kill(os.getpid(), 40)"], deadline=30)
    assert finished.ending == "was killed by signal 40"


def test_what_became_of_a_traceback_is_found_among_noise() -> None:
    head = "Traceback (most recent call last):\n"
    chained = f"{head}  File\nKeyError: 1\n\n{head}  x\nOSError: 2\nfarewell"
    assert probe_process.parse_exception(chained) == "OSError: 2"
    assert probe_process.parse_exception("only\nthis\n\n") == "this"
    assert probe_process.parse_exception(f"{head}  cut") == "cut"
    assert probe_process.parse_exception("") == ""


def test_a_result_of_more_than_a_megabyte_is_no_result() -> None:
    data = msgspec.json.encode({"outcome": "passed", "message": "x" * probe_process.RESULT_LIMIT})
    with pytest.raises(msgspec.MsgspecError, match="longer"):
        probe_process.parse_report(data)


# --- the run as a whole


def test_results_come_in_the_order_asked_for_and_gpu_probes_run_last() -> None:
    caller, started, ended = threading.get_ident(), [], []
    verification = verify.verify(
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


def test_an_unknown_probe_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="unknown probe 'rihgt'; did you mean 'right'"):
        run("rihgt")


def test_an_interrupt_stops_the_probes(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; import sys; from envdoctor.verify.runner import verify\n"
        "verify(Path(sys.executable), ['hang'], required=(), driver='', gpus=(), lock='', "
        f"folder=Path({str(SCRIPTS)!r}))"
    )
    pid_file = tmp_path / "pid"
    environment = os.environ | {"PID_FILE": str(pid_file), "PYTHONPATH": str(SCRIPTS.parents[1])}
    child = subprocess.Popen([PYTHON, "-c", script], env=environment, stderr=subprocess.PIPE)
    for _ in range(200):
        if pid_file.exists() and pid_file.read_text():
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in error
    assert not is_running(int(pid_file.read_text()))


@pytest.mark.parametrize("content", [None, "just text\n", "#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 7\n"])
def test_a_path_that_is_no_python(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "python"
    if content is not None:
        path.write_text(content)
        path.chmod(0o755)
    with pytest.raises(BadInput) as caught:
        run("right", python=path)
    assert str(path) in caught.value.message
    assert "3.10" in caught.value.expected
    assert caught.value.hint.startswith("envdoctor verify --python")


def test_an_old_python_a_folder_and_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    old, link = tmp_path / "old", tmp_path / "link"
    old.write_text("#!/bin/sh\necho envdoctor-python 3 8\n")
    old.chmod(0o755)
    link.symlink_to(tmp_path / "gone")
    for path, said in ((old, "is Python 3.8"), (tmp_path, "is a directory"), (link, "which is gone")):
        with pytest.raises(BadInput, match=said):
            run("right", python=path)


def test_probes_are_chosen_by_name_or_by_speed() -> None:
    probes = verify.read_probes(SCRIPTS)
    everything = verify.choose_probes(probes)
    assert set(everything) == {probe.name for probe in probes}
    assert verify.choose_probes(probes, only=["right", "wrong"], skip=["wrong"]) == ("right",)
    assert "right" in (quick := verify.choose_probes(probes, quick=True))
    assert "greedy" not in quick
    assert "greedy" in verify.choose_probes(probes, quick=True, required=["greedy"])
    assert verify.choose_probes(probes, only=["greedy"], quick=True) == ("greedy",)
    with pytest.raises(BadInput, match="unknown probe 'rihgt'; did you mean 'right'"):
        verify.choose_probes(probes, skip=["rihgt"])
    with pytest.raises(BadInput, match="no probe is left"):
        verify.choose_probes(probes, only=["right"], skip=["right"])


def result_of(probe: str, outcome: Outcome = "passed", **fields: Any) -> ProbeResult:
    return ProbeResult(probe=probe, outcome=outcome, message="", seconds=0.1, **fields)


def test_the_trainer_is_offered_only_attention_that_passed() -> None:
    own, copy = {"own_package": 1.0}, {"own_package": 0.0}
    sinks = {"safe": ("flex_attention", "eager"), "differs": ("flash_attention_2",)}
    results = [
        result_of("flash_attn3", numbers=copy),
        result_of("flash_attn2", numbers=own),
        result_of("sdpa"),
        result_of("gptoss_sinks", lists=sinks),
    ]
    assert verify.usable_attention(results) == (("flash_attention_2", "sdpa", "eager"), ("flex_attention", "eager"))
    failed = [result_of(result.probe, "failed", numbers=own, lists=sinks) for result in results]
    assert verify.usable_attention(failed) == (("eager",), ())
    assert verify.usable_attention(()) == (("eager",), ())


def test_names_that_a_probe_sorted_reach_the_verification() -> None:
    assert run_one("right").lists == {"safe": ("a", "b")}


# --- what is kept


def test_a_verification_reads_back_and_says_what_made_it_stale(tmp_path: Path) -> None:
    verification = run("right")
    path = tmp_path / "state" / "verification.json"
    verify.write_verification(path, verification)
    assert verify.read_verification(path) == verification
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert verify.stale_reason(verification, "", (), "") == ""
    assert verify.stale_reason(verification, "580.1", (), "") == "driver: none then, 580.1 now"
    assert "GPUs: none then, T4 now" in verify.stale_reason(verification, "", ("T4",), "")
    assert "lock: none then, abc now" in verify.stale_reason(verification, "", (), "abc")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"schema": 2}', b'{"schema": 1, "python": 3}'])
def test_a_verification_that_cannot_be_read_is_bad_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "verification.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"verification\.json"):
        verify.read_verification(path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvdoctorError, match="cannot write"):
        verify.write_verification(tmp_path / "file" / "verification.json", run("right"))
