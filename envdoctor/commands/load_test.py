"""`envdoctor load-test`: load every compiled file of an environment and import its libraries."""

from __future__ import annotations

from envdoctor.core.errors import EXIT_NO, EXIT_OK
from envdoctor.core.options import PythonOption, VenvArgument
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.install.environment_use import environment_in_use
from envdoctor.install.known_environments import resolve_interpreter
from envdoctor.verify import loading


class LoadTestRequest(Record, frozen=True, kw_only=True):
    """Loads each compiled file and imports each library in a process of its own. No GPU is needed.

    Example: envdoctor load-test ./venv
    """

    venv: VenvArgument = ""
    python: PythonOption = ""


def run(request: LoadTestRequest, reporter: Reporter) -> CommandResult:
    """Load and import everything; exit code 1 if something fails."""
    reporter.phase("Loading every compiled file")
    interpreter = resolve_interpreter(request.venv, request.python)
    with environment_in_use(interpreter, "envdoctor load-test"):
        result = loading.run_load_test(interpreter)
    return CommandResult(result, EXIT_OK if result.passed else EXIT_NO)
