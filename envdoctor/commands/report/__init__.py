"""One file to attach to an issue: what the machine and the stack are, what is wrong, and what was done last."""

from envdoctor.commands.report.gather import make_report
from envdoctor.commands.report.page import to_markdown
from envdoctor.commands.report.records import LastInstall, LastRun, Report

__all__ = ["LastInstall", "LastRun", "Report", "make_report", "to_markdown"]
