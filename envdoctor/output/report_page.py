"""The page of `envdoctor report --output report.html`: verdict, problems, facts, probes, benchmark and curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.commands.report.contents import PageContents
from envdoctor.commands.report.records import IssueReport, LastRun
from envdoctor.core.records import Finding, ProbeResult, Stack, Verification
from envdoctor.output.bench import render_benchmark
from envdoctor.output.check import choice_lines, skipped_checks, verdict
from envdoctor.output.check_status import status_lines, status_table
from envdoctor.output.diagnosis import stack_lines
from envdoctor.output.envelope import json_bytes, json_text
from envdoctor.output.findings import finding_lines
from envdoctor.output.html import inline, to_html
from envdoctor.output.machine import machine_tables
from envdoctor.output.text import Part, Text, count
from envdoctor.output.verification import MARKS, probe_details, probe_verdict
from envdoctor.pages.chart import charts
from envdoctor.pages.document import code_block, details, document, escape, table
from envdoctor.verify.bench_records import BenchmarkReport


def report_page(contents: PageContents) -> str:
    """The page."""
    parts = (
        _header(contents),
        _problems(contents.check.findings),
        _next(contents.check.next_command),
        _facts(contents),
        _verification(contents.report.verification, contents.check.stack),
        _benchmark(contents.benchmark),
        _curves(contents),
        _logs(contents.report),
    )
    return document("envdoctor report", "\n".join(part for part in parts if part))


def _header(contents: PageContents) -> str:
    report, lines = contents.report, status_lines(contents.check)
    created = (
        f"envdoctor report, created by envdoctor {report.envdoctor} on {report.created[:16].replace('T', ' ')} UTC"
    )
    return "\n".join((
        f'<header>\n<p class="muted">{escape(created)}</p>',
        f"<h1>{inline(verdict(contents.check))}</h1>",
        to_html([status_table(lines)], "Status"),
        f'<p class="muted">{escape(report.summary)} Paths in the home directory begin with ~.</p>\n</header>',
    ))  # fmt: skip


def _section(title: str, *parts: str) -> str:
    return "\n".join((f"<section>\n<h2>{escape(title)}</h2>", *(part for part in parts if part), "</section>"))


def _problems(findings: Sequence[Finding]) -> str:
    notes = [finding for finding in findings if finding.status == "info"]
    skipped = [finding for finding in findings if finding.status == "unknown" and not finding.fix]
    problems = [finding for finding in findings if finding not in notes and finding not in skipped]
    parts = (
        *map(_problem, problems),
        _folded(
            count(len(notes), "note"), [part for note in notes for part in finding_lines(note)], is_open=not problems
        ),
        _folded(f"{count(len(skipped), 'check')} skipped", skipped_checks(skipped, details=True)),
    )
    return _section("Problems" if problems else "Notes", *parts) if any(parts) else ""


def _folded(summary: str, parts: Sequence[Part], *, is_open: bool = False) -> str:
    return details(summary, to_html(parts, summary), is_open=is_open) if parts else ""


def _problem(finding: Finding) -> str:
    head, *body = finding_lines(finding, details=False)
    evidence = [f"{each.fact}: {each.value}  ({each.source})" for each in finding.evidence]
    status = "error" if finding.status == "crashed" else finding.status
    return "\n".join((
        f'<article class="problem {status}">\n<h3>{_heading(head)}</h3>',
        to_html([*body, Text(finding.url)]),
        details("Evidence", code_block(evidence)) if evidence else "",
        "</article>",
    ))  # fmt: skip


def _heading(part: Part) -> str:
    return inline(part) if isinstance(part, Text) else to_html([part])


def _next(command: str) -> str:
    return _section("Next command", code_block([command], "command")) if command else ""


def _facts(contents: PageContents) -> str:
    check = contents.check
    return _section(
        "Facts",
        details("Machine", to_html(machine_tables(check.machine), "Machine")),
        details("Environment", to_html(stack_lines(check)[1:], "Environment")),
        *_packages(check.stack),
        details("Profiles", to_html(choice_lines(check.choice)[1:], "Profiles")),
    )


def _packages(stack: Stack | None) -> Iterator[str]:
    if stack and stack.distributions.value:
        packages = sorted(stack.distributions.value.values(), key=lambda each: each.name)
        rows = ([escape(each.name), escape(each.version), escape(each.source)] for each in packages)
        title = count(len(packages), "package")
        yield details(title, table(title, ["package", "version", "installed by"], rows))


def _verification(verification: Verification | None, stack: Stack | None) -> str:
    if verification is None:
        return _section("Probes", "<p>No verification of this environment is stored.</p>") if stack else ""
    unavailable = [result for result in verification.results if result.outcome == "unavailable"]
    ran = [result for result in verification.results if result not in unavailable]
    title = f"{count(len(unavailable), 'probe')} unavailable"
    return _section(
        "Probes",
        f'<p class="muted">Measured on {escape(_time(verification.when))}</p>',
        to_html([probe_verdict(verification)]),
        _probes("Probes", ran),
        to_html(probe_details(verification)),
        details(title, _probes(title, unavailable)) if unavailable else "",
    )


def _probes(title: str, results: Sequence[ProbeResult]) -> str:
    rows = (
        [
            escape(result.probe),
            inline(Text(result.outcome, MARKS.get(result.outcome, ("", "error"))[1])),
            f"{result.seconds:.1f}",
            escape(result.message),
            escape(_measured(result)),
        ]
        for result in results
    )
    return table(title, ["probe", "outcome", "s", "result", "measured"], rows) if results else ""


def _measured(result: ProbeResult) -> str:
    """The numbers of a probe with their limits: `merge_error 2.1e-06 (limit 0.0001)`."""
    return ", ".join(
        f"{name} {value:.3g}" + (f" (limit {result.tolerances[name]:g})" if name in result.tolerances else "")
        for name, value in result.numbers.items()
        if name != "seed"
    )


def _benchmark(data: BenchmarkReport | None) -> str:
    if data is None:
        return ""
    when = f'<p class="muted">Measured on {escape(_time(data.when))}</p>'
    return _section("Benchmark", when, to_html(render_benchmark(data), "Speed"))


def _time(when: str) -> str:
    """A time in UTC as text: 2026-11-23 12:37 UTC."""
    return f"{when[:16].replace('T', ' ')} UTC"


def _curves(contents: PageContents) -> str:
    run = contents.report.run
    if run is None:
        return ""
    name = f'<p class="muted">{escape(run.directory)}: {contents.steps:,} steps</p>'
    drawn = charts(contents.charts, contents.legend) if contents.charts else "<p>No step is recorded yet.</p>"
    return _section("Newest training run", name, drawn)


def _logs(report: IssueReport) -> str:
    install = report.install
    parts = [
        *([details(f"End of {install.file}", code_block(install.lines))] if install else []),
        *(_run_logs(report.run) if report.run else ()),
        *([details("Notes on unreadable files", code_block(report.notes))] if report.notes else []),
    ]
    return _section("Logs", *parts) if parts else ""


def _run_logs(run: LastRun) -> Iterator[str]:
    for title, data in (("Settings of the run", run.configuration), ("Result of the run", run.result)):
        if data:
            yield details(title, code_block(json_text(data).split("\n")))
    if run.events:
        yield details(
            f"Last {count(len(run.events), 'event')}", code_block(json_bytes(event).decode() for event in run.events)
        )
    if run.lines:
        yield details("End of train.log", code_block(run.lines))
