"""`envdoctor facts check`: compare the built-in compatibility tables with the package index."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from envdoctor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from envdoctor.core.options import Option
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.download.sources import read_sources
from envdoctor.knowledge_check import check_facts


class FactsCheckRequest(Record, frozen=True):
    """Prints table entries that differ from published wheels, and new releases.

    Metadata is compared for all releases, the Python names for one release of each library.

    Example: envdoctor facts check --only vllm
    """

    only: Annotated[
        tuple[str, ...],
        Option("--only", "Check only this table or package, such as torch.", "TABLE|PACKAGE"),
    ] = ()
    every: Annotated[bool, Option("--all", "Compare the names in every release.")] = False


def run(request: FactsCheckRequest, reporter: Reporter) -> CommandResult:
    """Compare all tables, or those named in `only`, with published wheels."""
    found = check_facts(
        request.only, read_sources(), reporter.phase, today=datetime.now(UTC).date(), every=request.every
    )
    return CommandResult(found, EXIT_NO if found.has_drifted else EXIT_FAILED if found.is_incomplete else EXIT_OK)
