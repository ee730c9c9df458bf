"""Load compiled files, each in its own process, which is forked after `import torch` if the file needs torch.

    python extensions.py JOBS RESULTS

JOBS is JSON: {"first": ["torch"], "workers": 2, "seconds": 60, "files": [FILE]}, where FILE is
{"path": "/.../_C.so", "module": "vllm._C", "before": ["/.../libsibling.so"]}. RESULTS receives one JSON object
per line. Forking after the import means that 40 files of vLLM need one import of torch instead of 40.
Only the standard library is used, since this runs in the interpreter under test.
"""

import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

OUTPUT_BYTES = 8192


def load(path: str, module: str, before: list[str]) -> None:
    """Load a file like Python loads an extension module (RTLD_NOW, RTLD_LOCAL), then initialise the module.

    `before`: libraries that the package loads by full path before this file, dependencies first. They are loaded only
    if the file does not find its libraries through its RPATH.
    """
    preloaded = []
    try:
        library = open_library(path)
    except OSError as error:
        if "cannot open shared object file" not in str(error) or not before:
            raise
        preloaded = [open_library(name) for name in before]
        library = open_library(path)
    if module and hasattr(library, f"PyInit_{module.rpartition('.')[2]}"):
        loader = importlib.machinery.ExtensionFileLoader(module, path)
        spec = importlib.util.spec_from_file_location(module, path, loader=loader)
        assert spec is not None
        loader.exec_module(importlib.util.module_from_spec(spec))
    del preloaded


def open_library(path: str) -> ctypes.CDLL:
    """Open a shared library."""
    return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)


def work(job: dict[str, Any], report: int, output: int, seconds: float) -> None:
    """Run the child process; never returns."""
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # kills a file that hangs in a constructor
        signal.setitimer(signal.ITIMER_REAL, seconds)
        load(job["path"], job["module"], job["before"])
        code = 0
    except BaseException as error:
        os.write(report, json.dumps(f"{type(error).__name__}: {error}").encode())
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def start(job: dict[str, Any], seconds: float) -> tuple[int, dict[str, Any]]:
    """Fork a child for one file."""
    report, output = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  closed by collect
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        work(job, report.fileno(), output.fileno(), seconds)
    return child, {"job": job, "report": report, "output": output, "started": started}


def collect(status: int, running: dict[str, Any]) -> dict[str, Any]:
    """The report of one child process."""
    report, output = running["report"], running["output"]
    report.seek(0)
    error = report.read()
    end = output.seek(0, os.SEEK_END)
    output.seek(max(0, end - OUTPUT_BYTES))
    text = output.read().decode(errors="replace")
    report.close()
    output.close()
    return {
        "path": running["job"]["path"],
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
        "error": json.loads(error) if error else "",
        "output": text,
        "seconds": time.monotonic() - running["started"],
    }


def main() -> None:
    """Load every file, `workers` in parallel, and report each result."""
    jobs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name in jobs["first"]:
        importlib.import_module(name)
    waiting, running = list(reversed(jobs["files"])), {}
    with Path(sys.argv[2]).open("a", encoding="utf-8") as results:
        while waiting or running:
            while waiting and len(running) < jobs["workers"]:
                child, state = start(waiting.pop(), jobs["seconds"])
                running[child] = state
            child, status = os.wait()
            if child in running:
                results.write(json.dumps(collect(status, running.pop(child))) + "\n")
                results.flush()


if __name__ == "__main__":
    main()
