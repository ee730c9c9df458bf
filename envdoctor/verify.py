"""Prove an installed stack: each probe in a process of its own inside the stack's interpreter, with a deadline.

A crash, a hang, garbage or silence in there is a named outcome, not an accident here.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from envdoctor import process, process_memory
from envdoctor.errors import BadInput, EnvdoctorError, unknown_name
from envdoctor.model import Outcome, ProbeResult, Record, Verification
from envdoctor.probe_scripts import PROBES_FOLDER, Probe, bundled_probes, choose_probes, read_probes

__all__ = ["PROBES_FOLDER", "Probe", "bundled_probes", "choose_probes", "read_probes", "verify"]

VERIFICATION_SCHEMA = 1
MINIMUM_PYTHON = (3, 10)

# Two CPU probes at a time: most of a probe is one thread that imports libraries. More would want more memory
# than small machines have (half a gigabyte each).
CPU_WORKERS = 2
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


def verify(
    python: Path,
    probes: Sequence[str],
    *,
    required: Sequence[str],
    driver: str,
    gpus: Sequence[str],
    lock: str,
    deadline_scale: float = 1.0,
    on_start: Callable[[str], None] = lambda _: None,
    on_result: Callable[[ProbeResult], None] = lambda _: None,
    folder: Path = PROBES_FOLDER,
) -> Verification:
    """Run probes in an interpreter and say what each showed, in the order asked for.

    CPU probes run two at a time, GPU probes after them one by one. The callbacks run in the calling thread.
    """
    known = {probe.name: probe for probe in (bundled_probes() if folder == PROBES_FOLDER else read_probes(folder))}
    for name in (*probes, *required):
        if name not in known:
            raise unknown_name("probe", name, list(known), hint="envdoctor verify --help")
    if not deadline_scale > 0:
        raise BadInput(
            f"deadline scale {deadline_scale}", expected="a number above 0", hint="envdoctor verify --help"
        )
    check_python(python)
    chosen = [known[name] for name in dict.fromkeys(probes)]
    results: dict[str, ProbeResult] = {}
    for needs_gpu, workers in ((False, CPU_WORKERS), (True, 1)):
        batch = [probe for probe in chosen if probe.needs_gpu == needs_gpu]
        results |= _run_batch(
            python, batch, workers=workers, scale=deadline_scale, on_start=on_start, on_result=on_result
        )
    shown = tuple(results[probe.name] for probe in chosen)
    attention, attention_with_sinks = safe_attention(shown)
    return Verification(
        schema=VERIFICATION_SCHEMA,
        python=str(python),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        driver=driver,
        gpus=tuple(gpus),
        lock=lock,
        required=tuple(required),
        results=shown,
        attention=attention,
        attention_with_sinks=attention_with_sinks,
    )


def safe_attention(results: Sequence[ProbeResult]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a trainer may ask transformers for, best first: for most models, and for those with attention sinks.

    vLLM's copy of FlashAttention proves nothing for a trainer: it has no backward and transformers cannot use it.
    """
    passed = {result.probe: result for result in results if result.outcome == "passed"}
    own = [n for n in (3, 2) if (found := passed.get(f"flash_attn{n}")) and found.numbers.get("own_package") == 1]
    plain = (*(f"flash_attention_{n}" for n in own), *(("sdpa",) if "sdpa" in passed else ()), "eager")
    sinks = passed.get("gptoss_sinks")
    return plain, sinks.lists.get("safe", ()) if sinks else ()


def check_python(python: Path) -> None:
    """Raise BadInput unless this is a Python that can run the probes."""
    expected = f"a Python interpreter, {MINIMUM_PYTHON[0]}.{MINIMUM_PYTHON[1]} or newer"
    hint = "envdoctor verify --python PATH, or make an environment: envdoctor install"
    if python.is_dir():
        raise BadInput(f"{python} is a directory", expected=expected, hint=f"envdoctor verify --venv {python}")
    if not python.exists():
        gone = f" (a link to {python.readlink()}, which is gone)" if python.is_symlink() else ""
        raise BadInput(f"{python} does not exist{gone}", expected=expected, hint=hint)
    say = "import sys; print('envdoctor-python', *sys.version_info[:2])"
    try:
        finished = process.run([python, "-I", "-S", "-c", say], deadline=30)
    except EnvdoctorError as error:
        raise BadInput(f"{python} does not run: {error.message}", expected=expected, hint=hint) from error
    words = finished.output.strip().splitlines()[-1:] or [""]
    mark, *version = words[0].split()[:3] or [""]
    if not finished.ok or mark != "envdoctor-python":
        said = f": {words[0][:MESSAGE_LIMIT]}" if words[0] else ""
        raise BadInput(f"{python} is no Python: it {finished.ending}{said}", expected=expected, hint=hint)
    if tuple(map(int, version)) < MINIMUM_PYTHON:
        raise BadInput(f"{python} is Python {'.'.join(version)}", expected=expected, hint=hint)


def _run_batch(
    python: Path,
    probes: Sequence[Probe],
    *,
    workers: int,
    scale: float,
    on_start: Callable[[str], None],
    on_result: Callable[[ProbeResult], None],
) -> dict[str, ProbeResult]:
    """Run probes side by side, the longest first; whatever is raised here, Ctrl-C too, stops them all."""
    events: queue.SimpleQueue[str | ProbeResult | BaseException] = queue.SimpleQueue()
    cancelled = threading.Event()

    def work(probe: Probe) -> None:
        events.put(probe.name)
        try:
            events.put(run_probe(python, probe, scale, cancelled))
        except BaseException as error:
            events.put(error)

    results: dict[str, ProbeResult] = {}
    with ThreadPoolExecutor(workers) as pool:
        try:
            for probe in sorted(probes, key=lambda probe: -probe.deadline):
                pool.submit(work, probe)
            while len(results) < len(probes):
                event = events.get()
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, ProbeResult):
                    results[event.probe] = event
                    on_result(event)
                else:
                    on_start(event)
        finally:
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return results


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


def run_probe(python: Path, probe: Probe, scale: float, cancelled: threading.Event) -> ProbeResult:
    """Run one probe in a temporary directory of its own."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as folder:
        room = Path(folder)
        log, report = room / "output.log", room / "result.json"

        try:
            finished = process.run(
                [python, probe.path, report],
                deadline=probe.deadline * scale,
                env=probe_environment(room),
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


def probe_environment(room: Path) -> dict[str, str]:
    """What a probe's process sees beside the user's own environment: no network, no cache but its own."""
    threads = min(THREADS, max(1, len(os.sched_getaffinity(0)) // CPU_WORKERS))
    return {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(room / "huggingface"),
        # kernels of the hub that lie on this machine already are part of the stack: transformers loads them
        "KERNELS_CACHE": os.environ.get("KERNELS_CACHE") or str(hub_folder()),
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


def hub_folder() -> Path:
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
    """Name what happened: how the process ended comes first, then what it wrote."""
    seconds = round(finished.seconds, 3)
    outcome, message = judge_ending(finished, report is not None)
    if outcome is None and report is not None:
        try:
            said = parse_report(report)
        except msgspec.MsgspecError as error:
            outcome, message = "garbage", f"its result file is no result: {error}"
        else:
            return ProbeResult(
                probe=name,
                outcome=said.outcome,
                message=said.message[:MESSAGE_LIMIT],
                seconds=seconds,
                numbers=said.numbers,
                tolerances=said.tolerances,
                versions=said.versions,
                lists=said.lists,
                output="" if said.outcome == "passed" else last_lines(finished.output),
            )
    return ProbeResult(
        probe=name,
        outcome=outcome or "no-result",
        message=message[:MESSAGE_LIMIT],
        seconds=seconds,
        output=last_lines(finished.output),
    )


def judge_ending(finished: process.Finished, reported: bool) -> tuple[Outcome | None, str]:
    """The outcome that the end of the process alone decides, None if it ended well."""
    after = ", after it had written a result" if reported else ""
    if finished.timed_out:
        return "hung", finished.ending + after
    if finished.signal:
        meaning = next((text for name, text in SIGNAL_MEANINGS.items() if name in finished.ending), "")
        return "crashed", finished.ending + after + (f" ({meaning})" if meaning else "")
    if finished.returncode:
        return "error", parse_exception(finished.output) or finished.ending + after
    if not reported:
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


def write_verification(path: Path, verification: Verification) -> None:
    """Keep a verification, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(verification), indent=2) + b"\n")
        draft.replace(path)
    except OSError as error:
        raise EnvdoctorError(f"cannot write {path}: {error.strerror}", expected="a writable folder") from error


def read_verification(path: Path) -> Verification:
    """Read a verification that was kept."""
    hint = "envdoctor verify"
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data).get("schema")
        if schema != VERIFICATION_SCHEMA:
            raise BadInput(f"{path} has schema {schema}", expected=f"schema {VERIFICATION_SCHEMA}", hint=hint)
        return msgspec.json.decode(data, type=Verification)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected="a verification", hint=hint) from error
    except (msgspec.MsgspecError, AttributeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no verification: {error}", expected="what verify wrote", hint=hint) from error


def stale_reason(verification: Verification, driver: str, gpus: Sequence[str], lock: str) -> str:
    """Why a verification says nothing of this machine and environment any more, empty if it still holds."""
    pairs = (
        ("driver", verification.driver, driver),
        ("GPUs", ", ".join(verification.gpus), ", ".join(gpus)),
        ("lock", verification.lock, lock),
    )
    changed = (f"{what}: {then or 'none'} then, {now or 'none'} now" for what, then, now in pairs if then != now)
    return "; ".join(changed)
