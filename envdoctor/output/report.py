"""`envdoctor report`. A page needs the renderers of other commands, so the command is run from here."""

from __future__ import annotations

from pathlib import Path

from envdoctor.commands import report
from envdoctor.commands.report import IssueReport, ReportRequest, to_markdown
from envdoctor.core.decoding import write_file
from envdoctor.core.results import CommandResult, WrittenFile
from envdoctor.output.text import Part, Verbatim

PAGE = ".html"


def run(request: ReportRequest) -> CommandResult:
    """Print the report, or write it to `output` in the format of its suffix."""
    if not request.output.lower().endswith(PAGE):
        return report.run(request)
    from envdoctor.commands.report.contents import read_contents
    from envdoctor.output.report_page import report_page

    contents = read_contents(request.venv, request.python)
    hint = "envdoctor report --output report.html"
    write_file(Path(request.output), report_page(contents), hint=hint, replace=request.force)
    return CommandResult(WrittenFile(request.output, contents.report.summary))


def render_report(data: IssueReport) -> list[Part]:
    """The report in Markdown, without wrapping."""
    return [Verbatim(to_markdown(data))]
