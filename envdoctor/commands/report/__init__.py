"""`envdoctor report`: one file with machine, environment, findings and recent activity, for a bug report."""

from __future__ import annotations

import os
from pathlib import Path

from envdoctor.commands.report.gather import make_report
from envdoctor.commands.report.page import to_markdown
from envdoctor.commands.report.records import IssueReport, LastInstall, LastRun
from envdoctor.core.decoding import write_file
from envdoctor.core.directories import state_directory
from envdoctor.core.errors import BadInput
from envdoctor.core.options import OutputOption, PythonOption, ReplaceOption, VenvArgument
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult, WrittenFile
from envdoctor.environment.find import find_environment
from envdoctor.environment.select import read_environment
from envdoctor.install.known_environments import installed_environments
from envdoctor.machine.recorded import json_text
from envdoctor.machine.select import select_machine
from envdoctor.rules import evaluate
from envdoctor.verify.stored_results import verification_path

__all__ = ["IssueReport", "LastInstall", "LastRun", "make_report", "run", "to_markdown"]

SUFFIXES = (".json", ".md", ".markdown", ".txt", "")


class ReportRequest(Record, frozen=True, kw_only=True):
    """Contains machine, environment, findings, last install, verification and last run.

    Secrets, names, addresses and serial numbers are removed; the report lists the kinds of removed values. The
    suffix of --output selects Markdown, JSON or, with the benchmark and training curves, an HTML page.

    Example: envdoctor report --output report.html
    """

    venv: VenvArgument = ""
    python: PythonOption = ""
    output: OutputOption = ""
    force: ReplaceOption = False


def run(request: ReportRequest) -> CommandResult:
    """Print the report or write it to `output`, as JSON if the name ends in `.json`."""
    suffix = Path(request.output).suffix.lower()
    if suffix not in SUFFIXES:
        raise BadInput(
            f"--output {request.output}: a report has no format {suffix}",
            expected="a file name that ends in .html, .json or .md",
            hint="envdoctor report --output report.html",
        )
    machine = select_machine("", ())
    stack = read_environment(
        find_environment(request.venv, request.python, os.environ, installed=installed_environments)
    )
    interpreter = Path(stack.python.value) if stack and stack.python.value else None
    report = make_report(
        machine,
        stack,
        evaluate(machine, stack),
        logs=state_directory() / "logs",
        runs=Path("runs"),
        verification=verification_path(interpreter) if interpreter else None,
    )
    if not request.output:
        return CommandResult(report)
    text = json_text(report) if suffix == ".json" else to_markdown(report)
    write_file(Path(request.output), text, hint="envdoctor report --output report.md", replace=request.force)
    return CommandResult(WrittenFile(request.output, report.summary))
