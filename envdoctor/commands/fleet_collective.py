"""`envdoctor fleet collective`: run collective operations across machines and measure their bandwidth."""

from __future__ import annotations

from envdoctor.core.errors import EXIT_NO, EXIT_OK
from envdoctor.core.results import CommandResult
from envdoctor.fleet.collective import CollectiveRequest, collective


def run(request: CollectiveRequest) -> CommandResult:
    """Run the collective operations on every rank."""
    result = collective(request)
    failed = any(finding.status == "error" for finding in result.findings)
    return CommandResult(result, EXIT_NO if failed else EXIT_OK)
