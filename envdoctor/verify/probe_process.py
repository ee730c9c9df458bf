"""The process of one probe: its environment variables, its limits, and the outcome from its exit and result file."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from envdoctor.core import processes as process
from envdoctor.core.record import Record
from envdoctor.core.records import Outcome, ProbeResult
from envdoctor.verify import process_memory
from envdoctor.verify.probe_scripts import Probe

# On two cores, the CPU probes took 31 s of CPU time with one thread each and 43 s with two, which spin while waiting.
MAX_THREADS = 4
MEMORY_POLL_SECONDS = 1.0
MAX_OUTPUT_BYTES = 256 * 2**20  # protects the disk from endless output
MAX_RESULT_BYTES = 2**20
MAX_MESSAGE = 400  # characters
OUTPUT_LINES = 40

# The most frequent cause of a death by signal.
SIGNAL_MEANINGS = {
    "SIGKILL": "most often the kernel's out-of-memory killer: dmesg | grep -i oom",
    "SIGILL": "an instruction that this CPU does not support: the binary was built for another CPU",
    "SIGBUS": "most often a full /dev/shm or a truncated file: df -h /dev/shm",
    "SIGABRT": "a library aborted: see its last message in the output",
    "SIGSEGV": "invalid memory access in a native library: often two incompatible builds",
}


class ProbeReport(Record, frozen=True):
    """The contents of a probe's result file."""

    outcome: Literal["passed", "failed", "unavailable"]
    message: str
    numbers: dict[str, float] = {}
    tolerances: dict[str, float] = {}
    versions: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}


class ProbeStopped(Exception):  # noqa: N818  not an error of the tool
    """The tool stopped a probe. The message is the reason, empty after a cancellation."""


def limit_checker(probe: Probe, directory: Path, cancelled: threading.Event) -> Callable[[str], None]:
    """A function that is called five times a second and raises ProbeStopped if the probe exceeds its limits."""
    session, last_poll = 0, time.monotonic()

    def check(_: str) -> None:
        nonlocal session, last_poll
        if cancelled.is_set():
            raise ProbeStopped
        if (directory / "output.log").stat().st_size > MAX_OUTPUT_BYTES:
            raise ProbeStopped(f"was stopped after printing more than {MAX_OUTPUT_BYTES // 2**20} MB")
        if time.monotonic() - last_poll < MEMORY_POLL_SECONDS:
            return
        last_poll = time.monotonic()
        # The path of the result file is unique to this probe's command line.
        session = session or process_memory.find_session(str(directory / "result.json"))
        used = process_memory.session_memory(session) if session else 0
        if used > probe.memory:
            limit = f"{probe.memory / 2**30:.3g} GiB"
            raise ProbeStopped(f"was stopped because it used {used / 2**30:.3g} GiB of memory; its limit is {limit}")

    return check


def run_probe(
    python: Path, probe: Probe, scale: float, cancelled: threading.Event, *, workers: int = 1
) -> ProbeResult:
    """Run one probe in its own temporary directory. `workers`: the number of probes that run in parallel."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        log, result_file = directory / "output.log", directory / "result.json"
        try:
            finished = process.run(
                [python, probe.path, result_file],
                timeout=probe.deadline * scale,
                env=probe_variables(directory, workers),
                cwd=directory,
                log=log,
                on_output=limit_checker(probe, directory, cancelled),
            )
        except ProbeStopped as stopped:
            seconds = round(time.monotonic() - started, 3)
            output = last_lines(log.read_bytes()[-process.TAIL_BYTES :].decode("utf-8", "replace"))
            return ProbeResult(
                probe=probe.name, outcome="error", message=str(stopped), seconds=seconds, output=output
            )
        return classify_result(probe.name, finished, read_result_file(result_file))


def probe_variables(directory: Path, workers: int = 2) -> dict[str, str]:
    """Environment variables that are added to the user's: no network, and caches below `directory`.

    The CPU cores are divided among the `workers` probes that run in parallel.
    """
    threads = min(MAX_THREADS, max(1, len(os.sched_getaffinity(0)) // workers))
    return {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(directory / "huggingface"),
        # downloaded kernels of the Hugging Face hub are part of the stack: transformers loads them
        "KERNELS_CACHE": os.environ.get("KERNELS_CACHE") or str(hub_cache_directory()),
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(directory),
        "XDG_CACHE_HOME": str(directory / "cache"),
        "TRITON_CACHE_DIR": str(directory / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(directory / "extensions"),
        "PYTHONFAULTHANDLER": "1",  # prints a Python stack after a crash
        "PYTHONUNBUFFERED": "1",
        # Empty means unset. Bytecode files reduce the import of torch from 3.2 s to 1.5 s in later processes. The
        # other two variables could hide _result.py or turn warnings into errors.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONSAFEPATH": "",
        "PYTHONWARNINGS": "",
    }


def hub_cache_directory() -> Path:
    """The cache directory of the Hugging Face hub, in huggingface_hub's order of precedence."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("HOME", "/"), ".cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub"))


def read_result_file(path: Path) -> bytes | None:
    """The contents of a result file, None if it does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_RESULT_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError:
        return b""


def classify_result(name: str, finished: process.CompletedProcess, data: bytes | None) -> ProbeResult:
    """The result of a probe from the exit of its process and the contents of its result file.

    A probe that crashes, hangs or fails after it wrote a result has not passed; the numbers of the result are kept.
    """
    report, problem = _decode_report(data)
    written = f"a result ({report.outcome}: {report.message})" if report else problem
    outcome, message = classify_exit(finished, written)
    if outcome is None:
        outcome, message = (
            (report.outcome, report.message) if report else ("garbage", f"its result file is {problem}")
        )
    return ProbeResult(
        probe=name,
        outcome=outcome,
        message=message[:MAX_MESSAGE],
        seconds=round(finished.seconds, 3),
        numbers=report.numbers if report else {},
        tolerances=report.tolerances if report else {},
        versions=report.versions if report else {},
        lists=report.lists if report else {},
        output="" if outcome == "passed" else last_lines(finished.output),
    )


def _decode_report(data: bytes | None) -> tuple[ProbeReport | None, str]:
    """The report in a result file, or the problem with it."""
    if data is None:
        return None, ""
    try:
        return parse_report(data), ""
    except msgspec.MsgspecError as error:
        return None, f"invalid: {error}"


def classify_exit(finished: process.CompletedProcess, written: str) -> tuple[Outcome | None, str]:
    """The outcome from the exit of the process, None after a normal exit. `written`: describes the result file."""
    after = f", after it wrote {written}" if written else ""
    if finished.timed_out:
        return "hung", finished.ending + after
    if finished.signal:
        meaning = next((text for name, text in SIGNAL_MEANINGS.items() if name in finished.ending), "")
        return "crashed", finished.ending + after + (f" ({meaning})" if meaning else "")
    if finished.returncode:
        return "error", parse_exception(finished.output) or finished.ending + after
    if not written:
        return "no-result", "ended with exit code 0 and wrote no result"
    return None, ""


def parse_report(data: bytes) -> ProbeReport:
    """Read a probe's result file; raises msgspec.MsgspecError.

    {"outcome": "passed", "message": "...", "numbers": {"error": 0.1}, "tolerances": {"error": 1.0}, "versions": {}}
    """
    if len(data) > MAX_RESULT_BYTES:
        raise msgspec.DecodeError(f"longer than {MAX_RESULT_BYTES} bytes")
    return msgspec.json.decode(data, type=ProbeReport)


def parse_exception(output: str) -> str:
    """The exception of the last traceback, else the last line.

    Traceback (most recent call last):
      File "probe.py", line 3, in <module>
        import trl
    ModuleNotFoundError: No module named 'trl'
    [W init.cpp:42] a warning at exit
    """
    lines = [line for line in output.splitlines() if line.strip()]
    heads = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    after = lines[heads[-1] + 1 :] if heads else []
    return next((line for line in after if not line[0].isspace()), lines[-1] if lines else "").strip()


def last_lines(output: str) -> str:
    """The last lines of output."""
    return "\n".join(output.splitlines()[-OUTPUT_LINES:])
