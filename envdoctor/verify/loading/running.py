"""Load every compiled file of an environment, and import its libraries, each in a process of its own: needs no GPU.

Reading a file (`envdoctor abi`) shows what it lacks; only loading it runs its constructors, where PyTorch extensions
register their operators: vLLM 0.10.2 over torch 2.9 has all its symbols in `_C.abi3.so`, and aborts there.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.binaries.extensions import CompiledPath
from envdoctor.core import processes as process
from envdoctor.core.bundled import PACKAGE
from envdoctor.core.errors import EXIT_NO, EXIT_OK
from envdoctor.core.results import Answer
from envdoctor.machine.memory import read_memory
from envdoctor.verify.loading.messages import death_words, judge_words, matters
from envdoctor.verify.loading.plan import Place, plan_files, read_place
from envdoctor.verify.loading.records import Loaded, LoadTest, Outcome
from envdoctor.verify.loading.standins import Standins, make_standins
from envdoctor.verify.runner import check_python, last_lines, parse_exception, probe_environment

SCRIPTS = PACKAGE / "probes/loading"
FILE_SECONDS, IMPORT_SECONDS = 60.0, 300.0
FILE_BYTES, IMPORT_BYTES = 1 << 30, 3 << 30  # memory that one of them may take at its peak: vLLM's import 1.6 GiB
# What is imported where its distribution is there, and the name that makes a lazy library import what matters.
IMPORTS = {
    "torch": "torch",
    "transformers": "transformers:AutoModelForCausalLM",
    "peft": "peft:LoraConfig",
    "trl": "trl:GRPOTrainer",
    "vllm": "vllm:LLM",
    "bitsandbytes": "bitsandbytes",
    "liger-kernel": "liger_kernel.chunked_loss",
}


class Bench(NamedTuple):
    """Where the files of an environment are loaded."""

    interpreter: Path
    place: Place
    room: Path
    environment: Mapping[str, str]
    on_result: Callable[[Loaded], None]


def load_test(interpreter: Path, *, on_result: Callable[[Loaded], None] = lambda _: None) -> Answer:
    """The answer of `verify --load`: exit code 1 where a file or an import failed."""
    test = run_load_test(interpreter, on_result=on_result)
    bad = any(result.outcome not in ("loaded", "left-out") for result in test.results)
    return Answer(test, EXIT_NO if bad else EXIT_OK)


def load_all(interpreter: Path, *, on_result: Callable[[Loaded], None] = lambda _: None) -> tuple[Loaded, ...]:
    """What became of every compiled file and every library of an interpreter's environment."""
    return run_load_test(interpreter, on_result=on_result).results


def run_load_test(
    interpreter: Path, *, on_result: Callable[[Loaded], None] = lambda _: None, compiler: str | None = None
) -> LoadTest:
    """Load the files, then import the libraries; `compiler`: for the stand-ins, "" for none, None to look for one."""
    started = time.monotonic()
    check_python(interpreter)
    place = read_place(interpreter)
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as folder:
        room = Path(folder)
        standins = make_standins(place.driver_users(), room, place.find, compiler)
        after_torch, alone, left_out = plan_files(place, standins)
        results = list(left_out)
        for result in left_out:
            on_result(result)
        bench = Bench(interpreter, place, room, load_environment(room, standins), on_result)
        results += _load_files(bench, after_torch, first="torch")
        results += _load_files(bench, alone, first="")
        results += _import_all(bench)
    return LoadTest(
        python=str(interpreter),
        standins=standins.words,
        results=tuple(results),
        seconds=round(time.monotonic() - started, 3),
    )


def load_environment(room: Path, standins: Standins) -> dict[str, str]:
    """What the processes see: a probe's environment, with the stand-ins first on the loader's path."""
    path = ":".join(filter(None, (standins.folder, os.environ.get("LD_LIBRARY_PATH", ""))))
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return probe_environment(room) | one_thread | ({"LD_LIBRARY_PATH": path} if path else {})


def workers_for(need: int) -> int:
    """How many processes of so many bytes may run side by side: by cores and by the memory that is free."""
    memory = read_memory()
    free = [size for size in (memory.available.value, memory.cgroup_limit.value) if size]
    return max(1, min(len(os.sched_getaffinity(0)), min(free, default=need) // need))


def _load_files(bench: Bench, files: Sequence[CompiledPath], *, first: str) -> list[Loaded]:
    """Load files in children of one process, which has imported what comes first."""
    if not files:
        return []
    by_path = {file.full: file for file in files}
    workers = workers_for(FILE_BYTES)
    jobs, lines = bench.room / f"jobs{first}.json", bench.room / f"loaded{first}.jsonl"
    listed = [
        {
            "path": file.full,
            "module": module_of(file) if first else "",
            "before": [other.full for other in bench.place.siblings_of(file)],
        }
        for file in files
    ]
    told = {"first": [first] if first else [], "workers": workers, "seconds": FILE_SECONDS, "files": listed}
    jobs.write_text(json.dumps(told))
    lines.touch()
    results: dict[str, Loaded] = {}

    def read_new(_: str = "") -> None:
        for line in lines.read_text(encoding="utf-8").splitlines()[len(results) :]:
            said = json.loads(line)
            results[said["path"]] = judge_file(by_path[said["path"]], said)
            bench.on_result(results[said["path"]])

    finished = process.run(
        [bench.interpreter, SCRIPTS / "extensions.py", jobs, lines],
        deadline=IMPORT_SECONDS + FILE_SECONDS * (1 + len(files) / workers),
        env=bench.environment,
        cwd=bench.room,
        poll=read_new,
    )
    read_new()
    why = f"not tried: the process that loads them {finished.ending}: {parse_exception(finished.output)}"
    for file in files:
        if file.full not in results:
            results[file.full] = Loaded(
                name=file.path, kind="extension", distribution=file.distribution, outcome="failed", message=why,
                output=last_lines(finished.output),
            )  # fmt: skip
            bench.on_result(results[file.full])
    return list(results.values())


def module_of(file: CompiledPath) -> str:
    """The module of a file: `vllm/_C.abi3.so` is vllm._C. torch's own are initialised by importing torch, once."""
    if file.distribution == "torch":
        return ""
    folder, _, name = file.path.rpartition("/")
    return ".".join(filter(None, (folder.replace("/", "."), name.partition(".")[0])))


def judge_file(file: CompiledPath, said: Mapping[str, Any]) -> Loaded:
    """What a child's end and last words mean."""
    outcome: Outcome = "loaded"
    message = ""
    if said["signal"] == signal.SIGALRM:
        outcome, message = "timed-out", f"did not load within {FILE_SECONDS:.0f} s"
    elif said["signal"]:
        name = process.signal_name(said["signal"])
        outcome, message = "aborted", death_words(name, said["output"])
    elif said["error"]:
        outcome, message = judge_words(said["error"])
    elif said["exit_code"]:
        outcome, message = "failed", f"ended the process with exit code {said['exit_code']}"
    return Loaded(
        name=file.path,
        kind="extension",
        distribution=file.distribution,
        outcome=outcome,
        message=message,
        seconds=round(said["seconds"], 3),
        warnings=matters(said["output"]) if outcome == "loaded" else (),
        output="" if outcome == "loaded" else last_lines(said["output"]),
    )


def _import_all(bench: Bench) -> list[Loaded]:
    """Import each library that is installed; the callback runs in the calling thread."""
    cancelled = threading.Event()
    names = [name for name in IMPORTS if name in bench.place.distributions]
    results = []
    with ThreadPoolExecutor(workers_for(IMPORT_BYTES)) as pool:
        try:
            waiting = [pool.submit(_import_one, bench, name, cancelled) for name in names]
            for future in as_completed(waiting):
                results.append(future.result())
                bench.on_result(results[-1])
        finally:  # Ctrl-C stops them all
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return results


def _import_one(bench: Bench, name: str, cancelled: threading.Event) -> Loaded:
    own = bench.room / name
    own.mkdir()
    report, log = own / "result", own / "output.log"

    def watch(_: str) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt

    finished = process.run(
        [bench.interpreter, SCRIPTS / "imports.py", IMPORTS[name], report],
        deadline=IMPORT_SECONDS, env=bench.environment, cwd=own, log=log, poll=watch,
    )  # fmt: skip
    said = log.read_text(errors="replace")
    outcome: Outcome = "loaded"
    message = ""
    if finished.timed_out:
        outcome, message = "timed-out", finished.ending
    elif finished.signal and not report.exists():
        outcome, message = "aborted", death_words(process.signal_name(finished.signal), finished.output)
    elif not report.exists():
        outcome, message = judge_words(parse_exception(finished.output))
    elif not finished.ok:
        outcome, message = "failed", f"{finished.ending} after the import"
    return Loaded(
        name=IMPORTS[name],
        kind="import",
        distribution=name,
        outcome=outcome,
        message=message,
        seconds=round(finished.seconds, 3),
        warnings=tuple(line for line in matters(said) if not message or message not in line),
        output="" if outcome == "loaded" else last_lines(finished.output),
    )
