"""`envdoctor bench`: measure and grade the speed of the GPUs."""

from __future__ import annotations

from envdoctor.core.errors import EXIT_NO, EXIT_OK
from envdoctor.core.options import PythonOption, VenvArgument
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.install.environment_use import environment_in_use
from envdoctor.install.known_environments import resolve_interpreter
from envdoctor.verify.bench import run_bench


class BenchRequest(Record, frozen=True, kw_only=True):
    """Compares matrix products, attention, memory and transfers with healthy GPUs of the same model, in a minute.

    Example: envdoctor bench ./venv
    """

    venv: VenvArgument = ""
    python: PythonOption = ""


def run(request: BenchRequest, reporter: Reporter) -> CommandResult:
    """Measure the GPUs and grade the results; exit code 1 if one is slow."""
    reporter.phase("Measuring the GPUs")
    interpreter = resolve_interpreter(request.venv, request.python)
    with environment_in_use(interpreter, "envdoctor bench"):
        result = run_bench(interpreter, on_start=reporter.probe_started, on_result=reporter.probe_ended)
    return CommandResult(result, EXIT_OK if result.passed else EXIT_NO)
