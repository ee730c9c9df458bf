"""Imports modules in the environment of a trial, many in one process, and again alone where that fails."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from envdoctor.core import processes
from envdoctor.core.directories import PACKAGE
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.trial.confinement import confined, own_folders
from envdoctor.trial.contents import Contents
from envdoctor.trial.plan import PlannedImport
from envdoctor.verify.loading.messages import describe_crash
from envdoctor.verify.probe_process import probe_variables

SCRIPT = PACKAGE / "probes/trial/imports.py"
IMPORT_SECONDS = 120.0  # limit of one module; the import of vLLM takes a minute from a cold disk
START_SECONDS = 60.0  # for the start and the end of the interpreter
MAX_OUTPUT = 16_384
MAX_REASON = 400
# What torch and others print where they were compiled for NumPy 1: the import succeeds, and arrays do not work.
_NUMPY_1 = lazy_pattern(
    r"A module that was compiled using NumPy 1\.x cannot be run in\s+NumPy (\S+) as"
    r"|Failed to initialize NumPy: _ARRAY_API not found"
)
_FILE = lazy_pattern(r'File "([^"]+)", line (\d+)')


class ImportResult(NamedTuple):
    """How one import ended."""

    target: PlannedImport
    state: Literal["imported", "exception", "crash", "hang", "degraded"]
    reason: str = ""
    missing: str = ""  # the module that was not found
    path: str = ""  # the innermost file of a package
    line: int = 0
    output: str = ""  # the traceback, and what was printed

    @property
    def key(self) -> tuple[str, str, str]:
        """Failures with the same key have one reason."""
        return self.state, self.reason, self.path if self.state != "crash" else self.target.module


class _Report(Record, frozen=True, kw_only=True):
    """A line of the result file."""

    id: int
    state: Literal["started", "imported", "failed"]
    output: int
    error: str = ""
    message: str = ""
    missing: str = ""
    frames: tuple[tuple[str, int], ...] = ()
    traceback: str = ""


_LINES = msgspec.json.Decoder(_Report)


def import_modules(
    python: Path, targets: Sequence[PlannedImport], contents: Contents, variables: dict[str, str]
) -> list[ImportResult]:
    """Import modules. One that fails after others is imported once more, in a process of its own."""
    results: list[ImportResult] = []
    waiting = list(targets)
    while waiting:
        found = _import_batch(python, waiting, contents, variables)
        results += found
        waiting = waiting[max(len(found), 1) :]
    for number, result in enumerate(results):
        if result.state in ("exception", "crash") and number:
            results[number] = _import_batch(python, [result.target], contents, variables)[0]
    return results


def _import_batch(
    python: Path, targets: Sequence[PlannedImport], contents: Contents, variables: dict[str, str]
) -> list[ImportResult]:
    """The results up to the end of the process: that of a crash is the last one."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        jobs, results, log, home = (folder / each for each in ("jobs.json", "results", "log", "home"))
        own = own_folders(folder)
        results.touch()
        listed = [{"id": n, "module": each.module, "names": each.names} for n, each in enumerate(targets)]
        jobs.write_bytes(msgspec.json.encode({"seconds": IMPORT_SECONDS, "targets": listed}))
        hidden = {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void", "PYTHONNOUSERSITE": "1"}
        finished = processes.run(
            [*confined([folder, python.parent.parent]), python, SCRIPT, jobs, results],
            timeout=START_SECONDS + IMPORT_SECONDS * len(targets),
            env=variables | probe_variables(folder) | hidden | own | {"KERNELS_CACHE": str(folder)},
            cwd=home,
            log=log,
            grace=0.5,
        )
        printed = log.read_bytes()
        reports = [_LINES.decode(line) for line in results.read_bytes().splitlines() if line]
    found: list[ImportResult] = []
    start = 0
    for report in reports:
        if report.state == "started":
            start = report.output
            continue
        output = printed[start : report.output][-MAX_OUTPUT:].decode("utf-8", "replace")
        found.append(_result(targets[report.id], report, output, contents))
    if len(found) < len(targets):
        found.append(_ended(targets[len(found)], finished, printed[start:][-MAX_OUTPUT:], contents))
    return found


def _result(target: PlannedImport, report: _Report, output: str, contents: Contents) -> ImportResult:
    if report.state == "imported":
        if printed := _NUMPY_1.search(output):
            path, line = _innermost(_FILE.findall(output[: printed.end() + 4000]), contents)
            numpy = contents.versions.get("numpy", "2")
            reason = f"it was compiled for NumPy 1, and does not work with arrays of NumPy {numpy}"
            return ImportResult(target, "degraded", reason, "", path, line, output)
        return ImportResult(target, "imported")
    message = " ".join(report.message.split())
    reason = f"{report.error}: {message}" if message else report.error
    path, line = _innermost(report.frames, contents)
    return ImportResult(
        target, "exception", reason[:MAX_REASON], report.missing, path, line, f"{output}\n{report.traceback}"
    )


def _ended(
    target: PlannedImport, finished: processes.CompletedProcess, printed: bytes, contents: Contents
) -> ImportResult:
    """The result of the import during which the process ended."""
    output = printed.decode("utf-8", "replace")
    path, line = _innermost(reversed(_FILE.findall(output)), contents)
    if finished.timed_out or processes.signal_name(finished.signal) == "SIGALRM":
        return ImportResult(target, "hang", f"did not end within {IMPORT_SECONDS:.0f} s", "", path, line, output)
    if finished.signal:
        reason = describe_crash(processes.signal_name(finished.signal), output)
    else:
        reason = f"ended the interpreter with exit code {finished.returncode}"
    return ImportResult(target, "crash", reason[:MAX_REASON], "", path, line, output)


def _innermost(frames: Iterable[Sequence[object]], contents: Contents) -> tuple[str, int]:
    """The last file of the environment in a traceback."""
    own = [(str(path), int(str(line))) for path, line in frames if Path(str(path)).is_relative_to(contents.folder)]
    return own[-1] if own else ("", 0)
