"""Verification: probes that really crash, hang and babble, and real ones that fail when the library is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from envdoctor import process, verify
from envdoctor.errors import BadInput, EnvdoctorError
from envdoctor.model import ProbeResult, Verification

SCRIPTS = Path(__file__).parent / "probes"
PYTHON = Path(sys.executable)
CPU_PROBES = tuple(probe.name for probe in verify.bundled_probes() if not probe.needs_gpu)
GPU_PROBES = tuple(probe.name for probe in verify.bundled_probes() if probe.needs_gpu)


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
    assert "SIGABRT, after it had written a result" in result.message


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
    monkeypatch.setattr(verify, "OUTPUT_LIMIT", 2**20)
    result = run_one("endless_flood")
    assert result.outcome == "error"
    assert "printed more than 1 MB" in result.message
    assert result.seconds < 20


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
    assert verify.parse_exception(chained) == "OSError: 2"
    assert verify.parse_exception("only\nthis\n\n") == "this"
    assert verify.parse_exception(f"{head}  cut") == "cut"
    assert verify.parse_exception("") == ""


def test_a_result_of_more_than_a_megabyte_is_no_result() -> None:
    data = msgspec.json.encode({"outcome": "passed", "message": "x" * verify.RESULT_LIMIT})
    with pytest.raises(msgspec.MsgspecError, match="longer"):
        verify.parse_report(data)


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
        "from pathlib import Path; import sys; from envdoctor.verify import verify\n"
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


# --- the bundled probes, without a stack


def test_every_bundled_probe_tells_its_summary_and_its_deadline() -> None:
    assert {"torch_matmul", "trl_grpo"} <= set(CPU_PROBES)
    assert {"sdpa", "triton_jit"} <= set(GPU_PROBES)
    for probe in verify.bundled_probes():
        assert probe.summary.endswith(".")
        assert 60 <= probe.deadline <= 600


def fake_torch(folder: Path, cuda: str | None) -> Path:
    package = folder / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('importing torch was not needed')")
    (package / "version.py").write_text(f"__version__ = '2.9.0+x'\ncuda = {cuda!r}\nhip = None\n")
    return package.parent


def run_probe_script(python: Path, name: str, folder: Path, patch: str = "", **variables: str) -> dict:
    """Run a bundled probe in `python` after a patch of its libraries, and read what it wrote."""
    result = folder / "result.json"
    script = verify.PROBES_FOLDER / f"{name}.py"
    start = f"import sys; sys.path.insert(0, {str(script.parent)!r}); sys.argv = [{str(script)!r}, {str(result)!r}]"
    code = f"{start}\n{patch}\nimport runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    environment = verify.probe_environment(folder) | variables
    finished = process.run([python, "-c", code], deadline=300, env=environment, cwd=folder)
    assert finished.ok, finished.output
    return json.loads(result.read_text())


@pytest.mark.parametrize("name", GPU_PROBES)
def test_a_gpu_probe_names_what_is_missing_without_importing_torch(tmp_path: Path, name: str) -> None:
    use = f"sys.path.append({str(fake_torch(tmp_path, None))!r}); import _needs; _needs.DEVICE_FILES = "
    none = run_probe_script(PYTHON, name, tmp_path, "sys.path = [p for p in sys.path if 'site-packages' not in p]")
    blind = run_probe_script(PYTHON, name, tmp_path, use + "()")
    seeing = run_probe_script(PYTHON, name, tmp_path, use + "('/dev/null',)")
    assert {none["outcome"], blind["outcome"], seeing["outcome"]} == {"unavailable"}
    assert none["message"] == "torch is not installed"
    assert blind["message"] == "torch sees no CUDA device: torch 2.9.0+x is a CPU build"
    assert seeing["message"] == "torch 2.9.0+x is a CPU build, though this machine has an NVIDIA GPU (/dev/null)"


# --- the bundled probes in a real stack


@pytest.mark.stack
def test_all_cpu_probes_pass_in_a_real_stack(stack_python: Path) -> None:
    verification = run(*CPU_PROBES, python=stack_python, folder=verify.PROBES_FOLDER)
    assert {result.probe: result.outcome for result in verification.results} == dict.fromkeys(CPU_PROBES, "passed"), (
        verification.results
    )
    assert all(result.versions for result in verification.results)


WRONG = {
    "torch_matmul computes in bfloat16": (
        "torch_matmul",
        """
import torch
right = torch.matmul
def wrong(a, b, out=None):
    value = right(a.bfloat16(), b.bfloat16()).float()
    return value if out is None else out.copy_(value)
torch.matmul = wrong
""",
        "forward_error is",
    ),
    "torch_matmul leaves its output as it was": (
        "torch_matmul",
        """
import torch
right = torch.matmul
torch.matmul = lambda a, b, out=None: right(a, b) if out is None else out
""",
        "forward_error is nan",
    ),
    "torch_matmul has a wrong gradient": (
        "torch_matmul",
        """
import torch
right = torch.matmul
def wrong(a, b, out=None):
    if out is not None:
        return right(a, b, out=out)
    value = right(a, b)
    value.register_hook(lambda g: g * 1.001)
    return value
torch.matmul = wrong
""",
        "gradient_error is",
    ),
    "torch_compile compiles nothing": (
        "torch_compile",
        "import torch; torch.compile = lambda function, **_: function",
        "generated no kernel",
    ),
    "torch_compile computes something else": (
        "torch_compile",
        "import torch; torch.compile = lambda function, **_: lambda x, y: function(x, y) + 1e-3 * x.sum(-1)",
        "forward_error is",
    ),
    "transformers has a wrong cache": (
        "transformers_generate",
        """
from transformers import DynamicCache
right = DynamicCache.update
def wrong(self, key, value, *rest, **named):
    keys, values = right(self, key, value, *rest, **named)
    return keys * 1.05, values
DynamicCache.update = wrong
""",
        "cached_logit_error is",
    ),
    "peft starts with a delta": (
        "peft_lora",
        """
import peft
right = peft.LoraConfig
peft.LoraConfig = lambda **named: right(**named, init_lora_weights=False)
""",
        "initial_delta is",
    ),
    "peft merges something else": (
        "peft_lora",
        """
from peft.tuners.lora import Linear
right = Linear.get_delta_weight
Linear.get_delta_weight = lambda self, adapter: right(self, adapter) * 1.01
""",
        "merge_error is",
    ),
    "peft trains the model under the adapter": (
        "peft_lora",
        """
import peft
right = peft.get_peft_model
def wrong(*rest):
    model = right(*rest)
    next(p for n, p in model.named_parameters() if "lora_" not in n).requires_grad_()
    return model
peft.get_peft_model = wrong
""",
        "trainable outside the adapter",
    ),
    "datasets forgets its filter": (
        "datasets_map",
        "import datasets; datasets.Dataset.filter = lambda self, *_, **__: self",
        "1000 rows came back, expected 500",
    ),
    "trl takes a step that changes nothing": (
        "trl_grpo",
        "import torch; torch.optim.AdamW.step = lambda self, closure=None: None",
        "weights that the step left as they were",
    ),
}


@pytest.mark.stack
@pytest.mark.parametrize("case", WRONG)
def test_a_probe_fails_where_its_library_is_wrong(stack_python: Path, tmp_path: Path, case: str) -> None:
    name, patch, fault = WRONG[case]
    report = run_probe_script(stack_python, name, tmp_path, patch)
    assert report["outcome"] == "failed"
    assert fault in report["message"]


@pytest.mark.stack
def test_torch_compile_names_the_compiler_or_the_switch_that_stops_it(stack_python: Path, tmp_path: Path) -> None:
    without = run_probe_script(stack_python, "torch_compile", tmp_path, CXX="/gone/g++")
    assert (without["outcome"], without["message"]) == ("unavailable", "torch.compile needs CXX=/gone/g++")
    switched = run_probe_script(stack_python, "torch_compile", tmp_path, TORCH_COMPILE_DISABLE="1")
    assert switched["message"] == "torch.compile is switched off by TORCH_COMPILE_DISABLE=1"


ON_CPU = """
import torch
from _result import Result
{setup}
torch.manual_seed(0)  # the CPU's flash attention comes near the bound that the GPU's keeps well away from
result = Result()
{call}
import json, pathlib
pathlib.Path(sys.argv[1]).write_text(json.dumps([result.numbers, result.faults]))
sys.exit(0)
"""


DROPS_A_BLOCK = """
right = torch.matmul
torch.matmul = lambda a, b, **out: right(a[:, 64:], b[64:], **out)
"""
CUTS_TO_TF32 = """
right = torch.matmul
cut = lambda x: x if x.requires_grad else (x.view(torch.int32) & -8192).view(torch.float32)
torch.matmul = lambda a, b, **out: right(cut(a), cut(b), **out)
"""
LOOKS_AHEAD = """
import torch.nn.functional as F
right = F.scaled_dot_product_attention
F.scaled_dot_product_attention = lambda q, k, v, is_causal: right(q, k, v, is_causal=False)
"""
GPU_ARITHMETIC = {
    "bfloat16_forward_error": (
        "import cuda_matmul; cuda_matmul.compare(result, 'cpu', torch.bfloat16)",
        DROPS_A_BLOCK,
    ),
    "float32_forward_error": ("import cuda_matmul; cuda_matmul.compare(result, 'cpu', torch.float32)", CUTS_TO_TF32),
    "flash_output_error": (
        "import sdpa; sdpa.SIZES = ((64, 256),); sdpa.judge_all(result, 'cpu', torch.bfloat16)",
        LOOKS_AHEAD,
    ),
}


@pytest.mark.stack
@pytest.mark.parametrize("number", GPU_ARITHMETIC)
def test_the_arithmetic_of_gpu_probes_on_the_cpu(stack_python: Path, tmp_path: Path, number: str) -> None:
    call, wrong = GPU_ARITHMETIC[number]
    right_numbers, right_faults = run_arithmetic(stack_python, tmp_path, "", call)
    assert (number in right_numbers, right_faults) == (True, [])
    _, wrong_faults = run_arithmetic(stack_python, tmp_path, wrong, call)
    assert any(number in fault for fault in wrong_faults)


def run_arithmetic(python: Path, folder: Path, setup: str, call: str) -> tuple[dict[str, float], list[str]]:
    result = folder / "result.json"
    start = f"import sys; sys.path.insert(0, {str(verify.PROBES_FOLDER)!r}); sys.argv = ['', {str(result)!r}]"
    code = start + ON_CPU.format(setup=setup, call=call)
    finished = process.run([python, "-c", code], deadline=120, env=verify.probe_environment(folder))
    assert finished.ok, finished.output
    numbers, faults = json.loads(result.read_text())
    return numbers, faults
