"""`envdoctor fleet check`: check several machines and compare them."""

from __future__ import annotations

from envdoctor.core.errors import EXIT_NO, EXIT_OK
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.fleet.check import FleetRequest, check


def run(request: FleetRequest, reporter: Reporter) -> CommandResult:
    """Check every node of the request."""
    result = check(request, reporter.node_checked)
    failed = any(finding.status in ("error", "crashed") for finding in result.findings)
    return CommandResult(result, EXIT_NO if failed else EXIT_OK)
