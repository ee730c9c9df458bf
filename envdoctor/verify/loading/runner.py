"""Load every compiled file of an environment and import its libraries, one process for each; needs no GPU.

`envdoctor abi` only reads the files. Loading a file also runs its constructors, in which PyTorch extensions register
their operators. Example: `_C.abi3.so` of vLLM 0.10.2 finds all its symbols in torch 2.9 and aborts when it is loaded.
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
from envdoctor.core.directories import PACKAGE
from envdoctor.machine.memory import read_memory
from envdoctor.verify.loading.driver_libraries import DriverLibraries, prepare_driver_libraries
from envdoctor.verify.loading.messages import classify_loader_error, describe_crash, find_warnings
from envdoctor.verify.loading.plan import CompiledEnvironment, plan_files, read_compiled_environment
from envdoctor.verify.loading.records import LoadResult, LoadTest, Outcome
from envdoctor.verify.probe_process import last_lines, parse_exception, probe_variables
from envdoctor.verify.runner import require_python

SCRIPTS = PACKAGE / "probes/loading"
FILE_SECONDS, IMPORT_SECONDS = 60.0, 300.0
# Peak memory to reserve for one process; importing vLLM takes 1.6 GiB.
FILE_BYTES, IMPORT_BYTES = 1 << 30, 3 << 30
# Distribution -> module to import, with an attribute that makes a lazy module import its implementation.
IMPORTS = {
    "torch": "torch",
    "transformers": "transformers:AutoModelForCausalLM",
    "peft": "peft:LoraConfig",
    "trl": "trl:GRPOTrainer",
    "vllm": "vllm:LLM",
    "bitsandbytes": "bitsandbytes",
    "liger-kernel": "liger_kernel.chunked_loss",
}


class LoadContext(NamedTuple):
    """The environment under test and the settings of its processes."""

    interpreter: Path
    environment: CompiledEnvironment
    directory: Path  # for temporary files
    variables: Mapping[str, str]
    on_result: Callable[[LoadResult], None]


def run_load_test(
    interpreter: Path, *, on_result: Callable[[LoadResult], None] = lambda _: None, compiler: str | None = None
) -> LoadTest:
    """Load the compiled files, then import the libraries. `compiler`: see `prepare_driver_libraries`."""
    started = time.monotonic()
    require_python(interpreter)
    environment = read_compiled_environment(interpreter)
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        driver_libraries = prepare_driver_libraries(
            environment.driver_library_users(), directory, environment.linkage.find_system_library, compiler
        )
        plan = plan_files(environment, driver_libraries)
        for result in plan.skipped:
            on_result(result)
        variables = loader_variables(directory, driver_libraries)
        context = LoadContext(interpreter, environment, directory, variables, on_result)
        results = [
            *plan.skipped,
            *_load_files(context, plan.after_torch, first_import="torch"),
            *_load_files(context, plan.without_torch, first_import=""),
            *_import_all(context),
        ]
    return LoadTest(
        python=str(interpreter),
        driver_libraries=driver_libraries.description,
        results=tuple(results),
        seconds=round(time.monotonic() - started, 3),
    )


def loader_variables(directory: Path, driver_libraries: DriverLibraries) -> dict[str, str]:
    """Environment variables of the processes: those of a probe, with the stubs first on LD_LIBRARY_PATH."""
    path = ":".join(filter(None, (driver_libraries.stub_directory, os.environ.get("LD_LIBRARY_PATH", ""))))
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return probe_variables(directory) | one_thread | ({"LD_LIBRARY_PATH": path} if path else {})


def worker_count(bytes_each: int) -> int:
    """How many processes with this memory may run in parallel, by CPU cores and free memory."""
    memory = read_memory()
    available = [size for size in (memory.available.value, memory.cgroup_limit.value) if size]
    return max(1, min(len(os.sched_getaffinity(0)), min(available, default=bytes_each) // bytes_each))


def _load_files(context: LoadContext, files: Sequence[CompiledPath], *, first_import: str) -> list[LoadResult]:
    """Load each file in a child of one process that has already imported `first_import`."""
    if not files:
        return []
    by_path = {file.full: file for file in files}
    workers = worker_count(FILE_BYTES)
    job_file = context.directory / f"jobs{first_import}.json"
    result_file = context.directory / f"loaded{first_import}.jsonl"
    jobs = [
        {
            "path": file.full,
            "module": module_name(file) if first_import else "",
            "before": [other.full for other in context.environment.preloaded_files(file)],
        }
        for file in files
    ]
    first = [first_import] if first_import else []
    job_file.write_text(json.dumps({"first": first, "workers": workers, "seconds": FILE_SECONDS, "files": jobs}))
    result_file.touch()
    results: dict[str, LoadResult] = {}

    def read_new_results(_: str = "") -> None:
        for line in result_file.read_text(encoding="utf-8").splitlines()[len(results) :]:
            report = json.loads(line)
            results[report["path"]] = classify_file_result(by_path[report["path"]], report)
            context.on_result(results[report["path"]])

    finished = process.run(
        [context.interpreter, SCRIPTS / "extensions.py", job_file, result_file],
        timeout=IMPORT_SECONDS + FILE_SECONDS * (1 + len(files) / workers),
        env=context.variables,
        cwd=context.directory,
        on_output=read_new_results,
    )
    read_new_results()
    reason = f"not tested: the parent process {finished.ending}: {parse_exception(finished.output)}"
    for file in files:
        if file.full not in results:
            results[file.full] = LoadResult(
                name=file.path, kind="extension", distribution=file.distribution, outcome="failed", message=reason,
                output=last_lines(finished.output),
            )  # fmt: skip
            context.on_result(results[file.full])
    return list(results.values())


def module_name(file: CompiledPath) -> str:
    """The module of a file: `vllm/_C.abi3.so` is vllm._C. Empty for torch's own, which `import torch` initialises."""
    if file.distribution == "torch":
        return ""
    folder, _, name = file.path.rpartition("/")
    return ".".join(filter(None, (folder.replace("/", "."), name.partition(".")[0])))


def classify_file_result(file: CompiledPath, report: Mapping[str, Any]) -> LoadResult:
    """The result for one file from the report of its child process."""
    outcome: Outcome = "loaded"
    message = ""
    if report["signal"] == signal.SIGALRM:
        outcome, message = "timed-out", f"did not load within {FILE_SECONDS:.0f} s"
    elif report["signal"]:
        outcome, message = "aborted", describe_crash(process.signal_name(report["signal"]), report["output"])
    elif report["error"]:
        outcome, message = classify_loader_error(report["error"])
    elif report["exit_code"]:
        outcome, message = "failed", f"ended the process with exit code {report['exit_code']}"
    return LoadResult(
        name=file.path,
        kind="extension",
        distribution=file.distribution,
        outcome=outcome,
        message=message,
        seconds=round(report["seconds"], 3),
        warnings=find_warnings(report["output"]) if outcome == "loaded" else (),
        output="" if outcome == "loaded" else last_lines(report["output"]),
    )


def _import_all(context: LoadContext) -> list[LoadResult]:
    """Import each installed library of IMPORTS in parallel; `on_result` runs in the calling thread."""
    cancelled = threading.Event()
    names = [name for name in IMPORTS if name in context.environment.distributions]
    results = []
    with ThreadPoolExecutor(worker_count(IMPORT_BYTES)) as pool:
        try:
            futures = [pool.submit(_import_library, context, name, cancelled) for name in names]
            for future in as_completed(futures):
                results.append(future.result())
                context.on_result(results[-1])
        finally:  # Ctrl-C stops all imports
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return results


def _import_library(context: LoadContext, name: str, cancelled: threading.Event) -> LoadResult:
    directory = context.directory / name
    directory.mkdir()
    success_file, log = directory / "result", directory / "output.log"

    def stop_if_cancelled(_: str) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt

    finished = process.run(
        [context.interpreter, SCRIPTS / "imports.py", IMPORTS[name], success_file],
        timeout=IMPORT_SECONDS, env=context.variables, cwd=directory, log=log, on_output=stop_if_cancelled,
    )  # fmt: skip
    outcome: Outcome = "loaded"
    message = ""
    if finished.timed_out:
        outcome, message = "timed-out", finished.ending
    elif finished.signal and not success_file.exists():
        outcome, message = "aborted", describe_crash(process.signal_name(finished.signal), finished.output)
    elif not success_file.exists():
        outcome, message = classify_loader_error(parse_exception(finished.output))
    elif not finished.ok:
        outcome, message = "failed", f"{finished.ending} after the import"
    warnings = find_warnings(log.read_text(errors="replace"))
    return LoadResult(
        name=IMPORTS[name],
        kind="import",
        distribution=name,
        outcome=outcome,
        message=message,
        seconds=round(finished.seconds, 3),
        warnings=tuple(line for line in warnings if not message or message not in line),
        output="" if outcome == "loaded" else last_lines(finished.output),
    )
