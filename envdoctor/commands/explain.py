"""`envdoctor explain`: the causes of an error text or log, or the documentation of a rule or cause."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from envdoctor.core.decoding import MAX_FILE_BYTES, open_input
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.options import Argument, FactOption, MachineOption, PythonOption, VenvOption
from envdoctor.core.paths import exists, is_file, is_folder, is_link
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.environment.select import select_stack
from envdoctor.explain import explain
from envdoctor.explain.documentation import find_documentation
from envdoctor.machine.select import select_machine

if TYPE_CHECKING:
    from envdoctor.rules.registry import Rule

LOG_SUFFIXES = (".log", ".txt", ".out", ".err")
MAX_FILES = 10_000  # of each level of a directory
_PATH = lazy_pattern(r"(?:~|\.{1,2})?/[\w.~-]+(?:/[\w.~-]+)*")  # of a file, whether or not it exists
# Files that name packages. Their text has no error; `audit` examines them.
MANIFEST = lazy_pattern(
    r"(?:.*requirements.*|constraints.*)\.(?:txt|in)|pyproject\.toml|environment\.ya?ml|.*\.lock|pylock\..*toml|setup\.(?:py|cfg)"
    r"|(?:.*[.-])?(?:Dockerfile|Containerfile)(?:[.-].*)?",
    re.IGNORECASE,
)

# A report with an error in it is a text to explain.
ERROR_LINE = lazy_pattern(
    r"(?:Error|Exception): |Traceback \(most recent call last\)|^\W{0,4}(?:Error|ERROR|Exception)\b|"
    r"\bExpected all tensors to be on the same device\b",
    re.MULTILINE,
)

# Headings of the forms in which features are requested. The versions in them are wishes.
FEATURE_REQUEST = lazy_pattern(
    r"^\W{0,8}(?:\[?Feature(?:\]|[ :]+(?:description|request)\b)|The feature, motivation|Feature, motivation"
    r"|What feature or enhancement|Is your feature request related)",
    re.MULTILINE | re.IGNORECASE,
)


class ExplainRequest(Record, frozen=True, kw_only=True):
    """Prints the likely causes of an error, the most likely first, each with its fix.

    For a rule id or a cause, prints its documentation. For the directory of a run, explains its log.

    Example: envdoctor explain train.log --venv ./venv
    """

    text: Annotated[
        str,
        Argument("An error text, a log file, a run directory, a rule id or a cause.", "[TEXT|FILE|-|RULE|CAUSE]"),
    ] = ""
    venv: VenvOption = ""
    python: PythonOption = ""
    machine: MachineOption = ""
    facts: FactOption = ()


def run(request: ExplainRequest) -> CommandResult:
    """Explain an error text or log, or return the documentation of a rule or cause."""
    if documentation := find_documentation(request.text, _audit_rules):
        return CommandResult(documentation)
    stack = select_stack(request.venv, request.python)
    # A named environment is on this machine, so its errors are judged with this machine's facts.
    use_machine = request.machine or request.facts or stack
    machine = select_machine(request.machine, request.facts) if use_machine else None
    with _open_text(request.text) as stream:
        explained = explain(stream, machine, stack, pin=_pin if stack else None)
    if not explained.size:
        name = "standard input" if request.text in ("", "-") else request.text
        raise BadInput(f"{name} is empty", expected="an error text or a log", hint="envdoctor check")
    has_line = explained.program_errors or any(cause.lines for cause in explained.causes)
    if not has_line and not stack and _is_manifest(request.text):
        raise BadInput(
            f"{request.text} names packages and contains no known error",
            expected="an error text or a log",
            hint=shell_command("envdoctor audit {}", request.text),
            data=explained,
        )
    if not has_line and not stack and _is_report(request.text):
        raise BadInput(
            f"{request.text} is an environment report without a known error",
            expected="an error text or a log",
            hint=shell_command("envdoctor check --from-report {}", request.text),
            data=explained,
        )
    return CommandResult(explained, EXIT_OK if explained.causes or explained.program_errors else EXIT_NO)


def _audit_rules() -> Mapping[str, Rule]:
    from envdoctor.manifests.rules import audit_rules  # takes time to import

    return audit_rules()


def _pin(machine: Machine, stack: Stack | None, findings: Sequence[Finding]) -> list[Finding]:
    from envdoctor.remedies import pin_remedies  # takes time to import

    return pin_remedies(machine, stack, findings)


def _is_manifest(text: str) -> bool:
    return MANIFEST.fullmatch(Path(text).name) is not None and is_file(Path(text))


def _is_report(text: str) -> bool:
    """Whether a file is an environment report, by its layout or because its versions have a fault."""
    from envdoctor.commands.report_findings import diagnose_report  # takes time to import
    from envdoctor.reports import WEAK_KINDS, parse_report

    if "\n" in text or not is_file(Path(text)):
        return False
    with open_input(Path(text), expected="a text", hint="envdoctor explain -") as stream:
        content = stream.read(MAX_FILE_BYTES).decode("utf-8", "replace")
    if ERROR_LINE.search(content) or FEATURE_REQUEST.search(content):
        return False
    report = parse_report(content)
    has_layout = any(kind not in WEAK_KINDS for kind in report.kinds)
    return has_layout or any(finding.status == "error" for finding in diagnose_report(report))


def _log_of_directory(folder: Path) -> Path:
    """The log of a run directory. Raises BadInput for other directories."""
    from envdoctor.training.runs.directory import LOG_FILE, RUN_FILE

    if exists(folder / LOG_FILE):
        return folder / LOG_FILE
    if exists(folder / RUN_FILE):
        raise BadInput(
            f"the run {folder} has no log ({LOG_FILE})",
            expected="a run that was started by envdoctor",
            hint=shell_command("envdoctor watch {}", folder),
        )
    is_environment = exists(folder / "pyvenv.cfg") or exists(folder / "conda-meta")
    logs = [] if is_environment else _newest_logs(folder)
    raise BadInput(
        f"{folder} is a directory without a log of a run",
        expected="an error text, a log file or the directory of a run",
        hint=shell_command("envdoctor check --venv {}", folder)
        if is_environment
        else shell_command("envdoctor explain {}", logs[0])
        if logs
        else "envdoctor explain train.log",
    )


def _newest_logs(folder: Path) -> list[Path]:
    """The logs of another program, such as `attempt_0/0/stderr.log` of torchrun: of the first level with any."""
    for pattern in ("*", "*/*", "*/*/*", "*/*/*/*"):
        files = islice(folder.glob(pattern), MAX_FILES)
        logs = [file for file in files if file.suffix in LOG_SUFFIXES and is_file(file) and file.stat().st_size]
        if logs:
            return sorted(logs, key=lambda file: file.stat().st_mtime, reverse=True)
    return []


def _open_text(text: str) -> BinaryIO:
    """Standard input, a file, or the argument itself."""
    if text == "-" or (not text and not sys.stdin.isatty()):
        return sys.stdin.buffer
    if not text:
        raise BadInput(
            "nothing to explain",
            expected="an error text, a file, a rule, a cause, or text on standard input",
            hint="envdoctor explain train.log",
        )
    is_path = "\n" not in text and len(text) < 1024 and (exists(text) or is_link(Path(text)))
    is_directory = is_path and is_folder(Path(text))
    if is_directory:
        text = str(_log_of_directory(Path(text)))
    # A missing file is an error. Its name is not explained as an error text.
    is_name = "\n" not in text and " " not in text and Path(text).suffix in LOG_SUFFIXES
    if is_path or is_name or _PATH.fullmatch(text):
        expected = "a file with an error text or log"
        return open_input(Path(text), expected=expected, hint="envdoctor explain -", pipes=not is_directory)
    return io.BytesIO(text.encode("utf-8", "replace"))
