"""One probe's process: what it may see, when it is stopped, and what its end and its result file mean."""

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
from envdoctor.core.records import Outcome, ProbeResult, Record
from envdoctor.verify import process_memory
from envdoctor.verify.probe_scripts import Probe

# Threads of one probe at most: on two cores the CPU probes took 31 s of processor time with a thread each, and
# 43 s with two, which wait for each other by spinning.
THREADS = 4
MEMORY_SECONDS = 1.0  # between two looks at a probe's memory
OUTPUT_LIMIT = 256 * 2**20  # bytes printed; more than that fills a disk before the deadline comes
RESULT_LIMIT = 2**20
MESSAGE_LIMIT = 400
OUTPUT_LINES = 40

# What a death by signal most often means.
SIGNAL_MEANINGS = {
    "SIGKILL": "most often the kernel's out-of-memory killer: dmesg | grep -i oom",
    "SIGILL": "an instruction that this processor lacks: a build for another one",
    "SIGBUS": "most often a full /dev/shm or a truncated file: df -h /dev/shm",
    "SIGABRT": "a library gave up: its last words are in the output",
    "SIGSEGV": "a native library read memory that is not its own: often two builds that do not fit together",
}


class Reported(Record, frozen=True):
    """What a probe writes into its result file."""

    outcome: Literal["passed", "failed", "unavailable"]
    message: str
    numbers: dict[str, float] = {}
    tolerances: dict[str, float] = {}
    versions: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}


class Stopped(Exception):  # noqa: N818  the name states what was done
    """A probe was stopped from here; the message says why, empty where it was not its fault."""


def watcher(probe: Probe, room: Path, cancelled: threading.Event) -> Callable[[str], None]:
    """What looks at a running probe five times a second, and raises Stopped where it takes too much."""
    session, looked = 0, time.monotonic()

    def watch(_: str) -> None:
        nonlocal session, looked
        if cancelled.is_set():
            raise Stopped
        if (room / "output.log").stat().st_size > OUTPUT_LIMIT:
            raise Stopped(f"was stopped after it had printed more than {OUTPUT_LIMIT // 2**20} MB")
        if time.monotonic() - looked < MEMORY_SECONDS:
            return
        looked = time.monotonic()
        # the path of its result file is on its command line alone, since the room has a name of its own
        session = session or process_memory.find_session(str(room / "result.json"))
        held = process_memory.session_memory(session) if session else 0
        if held > probe.memory:
            bound = f"{probe.memory / 2**30:.3g} GiB"
            raise Stopped(f"was stopped when it held {held / 2**30:.3g} GiB of memory, its bound is {bound}")

    return watch


def run_probe(
    python: Path, probe: Probe, scale: float, cancelled: threading.Event, *, workers: int = 1
) -> ProbeResult:
    """Run one probe in a temporary directory of its own, `workers` of them at a time."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as folder:
        room = Path(folder)
        log, report = room / "output.log", room / "result.json"

        try:
            finished = process.run(
                [python, probe.path, report],
                deadline=probe.deadline * scale,
                env=probe_variables(room, workers),
                cwd=room,
                log=log,
                poll=watcher(probe, room, cancelled),
            )
        except Stopped as stopped:
            seconds = round(time.monotonic() - started, 3)
            output = last_lines(log.read_bytes()[-process.TAIL_BYTES :].decode("utf-8", "replace"))
            return ProbeResult(
                probe=probe.name, outcome="error", message=str(stopped), seconds=seconds, output=output
            )
        return judge(probe.name, finished, read_report(report))


def probe_variables(room: Path, workers: int = 2) -> dict[str, str]:
    """What a probe's process sees beside the user's own environment: no network, no cache but its own.

    The cores are shared out among the `workers` probes that run at a time.
    """
    threads = min(THREADS, max(1, len(os.sched_getaffinity(0)) // workers))
    return {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(room / "huggingface"),
        # kernels of the hub that lie on this machine already are part of the stack: transformers loads them
        "KERNELS_CACHE": os.environ.get("KERNELS_CACHE") or str(hub_cache_directory()),
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(room),
        "XDG_CACHE_HOME": str(room / "cache"),
        "TRITON_CACHE_DIR": str(room / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(room / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(room / "extensions"),
        "PYTHONFAULTHANDLER": "1",  # a crash leaves a Python stack in the output
        "PYTHONUNBUFFERED": "1",  # and its last words
        # Empty means unset. Bytecode is wanted: importing torch takes 3.2 s without and 1.5 s with it, and each
        # probe and the training after it imports it again. The others would hide _result.py or turn warnings fatal.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONSAFEPATH": "",
        "PYTHONWARNINGS": "",
    }


def hub_cache_directory() -> Path:
    """Where the user's copies of the Hugging Face hub lie, as huggingface_hub finds it."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("HOME", "/"), ".cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub"))


def read_report(path: Path) -> bytes | None:
    """What a probe has written, None if nothing."""
    try:
        with path.open("rb") as file:
            return file.read(RESULT_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError:
        return b""


def judge(name: str, finished: process.Finished, report: bytes | None) -> ProbeResult:
    """Name what happened: how the process ended comes first, then what it wrote.

    Who crashes, hangs or fails after a result has not passed, whatever the result says; what was shown is kept.
    """
    said, problem = _said(report)
    wrote = f"a result ({said.outcome}: {said.message})" if said else problem
    outcome, message = judge_ending(finished, wrote)
    if outcome is None:
        outcome, message = (said.outcome, said.message) if said else ("garbage", f"its result file is {problem}")
    return ProbeResult(
        probe=name,
        outcome=outcome,
        message=message[:MESSAGE_LIMIT],
        seconds=round(finished.seconds, 3),
        numbers=said.numbers if said else {},
        tolerances=said.tolerances if said else {},
        versions=said.versions if said else {},
        lists=said.lists if said else {},
        output="" if outcome == "passed" else last_lines(finished.output),
    )


def _said(report: bytes | None) -> tuple[Reported | None, str]:
    """What a probe's result file says, or what is wrong with it."""
    if report is None:
        return None, ""
    try:
        return parse_report(report), ""
    except msgspec.MsgspecError as error:
        return None, f"no result: {error}"


def judge_ending(finished: process.Finished, wrote: str) -> tuple[Outcome | None, str]:
    """The outcome that the end of the process alone decides, None if it ended well; `wrote`: what, "" for nothing."""
    after = f", after it had written {wrote}" if wrote else ""
    if finished.timed_out:
        return "hung", finished.ending + after
    if finished.signal:
        meaning = next((text for name, text in SIGNAL_MEANINGS.items() if name in finished.ending), "")
        return "crashed", finished.ending + after + (f" ({meaning})" if meaning else "")
    if finished.returncode:
        return "error", parse_exception(finished.output) or finished.ending + after
    if not wrote:
        return "no-result", "ended with exit code 0 and wrote no result"
    return None, ""


def parse_report(data: bytes) -> Reported:
    """Read a probe's result file; raises msgspec.MsgspecError.

    {"outcome": "passed", "message": "...", "numbers": {"error": 0.1}, "tolerances": {"error": 1.0}, "versions": {}}
    """
    if len(data) > RESULT_LIMIT:
        raise msgspec.DecodeError(f"longer than {RESULT_LIMIT} bytes")
    return msgspec.json.decode(data, type=Reported)


def parse_exception(output: str) -> str:
    """The exception of the last traceback, else the last line.

    Traceback (most recent call last):
      File "probe.py", line 3, in <module>
        import trl
    ModuleNotFoundError: No module named 'trl'
    [W init.cpp:42] some library's farewell
    """
    lines = [line for line in output.splitlines() if line.strip()]
    heads = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    after = lines[heads[-1] + 1 :] if heads else []
    return next((line for line in after if not line[0].isspace()), lines[-1] if lines else "").strip()


def last_lines(output: str) -> str:
    """The end of what was printed."""
    return "\n".join(output.splitlines()[-OUTPUT_LINES:])
