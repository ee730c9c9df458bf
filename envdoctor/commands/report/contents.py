"""The contents of a report page: the report, the result of `check`, the benchmark, the curves of the newest run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.commands.check import CheckRequest, CheckResult
from envdoctor.commands.check import run as run_check
from envdoctor.commands.report.gather import collect, redact_data
from envdoctor.commands.report.records import IssueReport
from envdoctor.core.directories import state_directory
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.paths import is_file
from envdoctor.core.record import Record
from envdoctor.pages.chart import Chart, Key
from envdoctor.redact.identity import Identity, read_identity
from envdoctor.training.runs.curves import default_metrics, legend, make_charts
from envdoctor.training.runs.metrics import read_metrics
from envdoctor.verify.bench_records import BenchmarkReport
from envdoctor.verify.stored_results import bench_path, read_bench, verification_path

COMMAND_FIELDS = ("commands", "next_command")  # a quoted ~ is not expanded by the shell


class PageContents(Record, frozen=True, kw_only=True):
    """What a report page shows. Everything but the numbers of the charts is redacted."""

    report: IssueReport
    check: CheckResult
    benchmark: BenchmarkReport | None
    charts: tuple[Chart, ...] = ()  # of the newest run
    legend: tuple[Key, ...] = ()
    steps: int = 0


def read_contents(venv: str, python: str) -> PageContents:
    """Examine this machine and an environment as `check` does."""
    check = run_check(CheckRequest(venv=venv, python=python)).data
    return page_contents(check, logs=state_directory() / "logs", runs=Path("runs"))


def page_contents(
    check: CheckResult, *, logs: Path, runs: Path, identity: Identity | None = None, home: Path | None = None
) -> PageContents:
    """Collect everything and redact it. Paths below `home` begin with ~."""
    interpreter = Path(check.stack.python.value) if check.stack and check.stack.python.value else None
    verification = verification_path(interpreter) if interpreter else None
    raw = collect(check.machine, check.stack, check.findings, logs=logs, runs=runs, verification=verification)
    notes = list(raw.notes)
    benchmark = _read_benchmark(interpreter, notes)
    charts, keys, steps = _read_curves(runs / raw.run.directory if raw.run else None, notes)
    raw = msgspec.structs.replace(raw, notes=tuple(notes))
    check = msgspec.structs.replace(check, stack=raw.stack)  # without home pages
    titles = [chart.title for chart in charts]
    data, others = (
        _shorten(msgspec.to_builtins(each), home or Path.home()) for each in (raw, (check, benchmark, titles))
    )
    data, (check_data, benchmark_data, titles) = redact_data(raw, data, others, identity or read_identity())
    return PageContents(
        report=msgspec.convert(data, IssueReport),
        check=msgspec.convert(check_data, CheckResult),
        benchmark=msgspec.convert(benchmark_data, BenchmarkReport | None),
        charts=tuple(
            msgspec.structs.replace(chart, title=title) for chart, title in zip(charts, titles, strict=True)
        ),
        legend=tuple(keys),
        steps=steps,
    )


def _read_benchmark(interpreter: Path | None, notes: list[str]) -> BenchmarkReport | None:
    if interpreter is None or not is_file(bench_path(interpreter)):
        return None
    try:
        return read_bench(bench_path(interpreter))
    except EnvdoctorError as error:
        notes.append(error.message)
        return None


def _read_curves(run: Path | None, notes: list[str]) -> tuple[Sequence[Chart], Sequence[Key], int]:
    if run is None:
        return (), (), 0
    try:
        runs = {run.name: read_metrics(run)}
    except EnvdoctorError as error:
        notes.append(error.message)
        return (), (), 0
    charts = make_charts(runs, default_metrics(runs))
    return charts, legend(runs, charts), runs[run.name].steps


def _shorten(data: Any, home: Path) -> Any:
    """The data with ~ in place of the home directory."""
    if len(home.parts) < 2:  # the root directory
        return data
    path = rf"(?<![\w./~-]){re.escape(str(home))}(?![\w.-])"
    plain, quoted = re.compile(path), re.compile(rf"'{path}/")

    def walk(value: Any, field: str) -> Any:
        if isinstance(value, str):
            text = quoted.sub("~/'", value) if field in COMMAND_FIELDS else value
            return plain.sub("~", text)
        if isinstance(value, dict):
            return {walk(name, ""): walk(item, str(name)) for name, item in value.items()}
        return [walk(item, field) for item in value] if isinstance(value, list | tuple) else value

    return walk(data, "")
