"""The records of a report. Their content is redacted; nothing is added after the redaction."""

from __future__ import annotations

from typing import Any

from envdoctor.core.record import Record
from envdoctor.core.records import Finding, Machine, Stack, Verification

REPORT_SCHEMA = 1


class LastInstall(Record, frozen=True):
    """The newest install log."""

    file: str
    lines: tuple[str, ...]


class LastRun(Record, frozen=True):
    """The newest run: configuration, result, and the end of its events and log."""

    directory: str
    configuration: dict[str, Any]
    result: dict[str, Any]  # empty if the run did not finish
    events: tuple[dict[str, Any], ...]
    lines: tuple[str, ...]  # of train.log


class IssueReport(Record, frozen=True, kw_only=True):
    """The result of `envdoctor report`."""

    schema: int = REPORT_SCHEMA
    envdoctor: str
    created: str  # ISO 8601, UTC
    removed: dict[str, int]  # number of different values by kind
    summary: str  # the removed values as a sentence
    machine: Machine
    stack: Stack | None
    findings: tuple[Finding, ...]
    install: LastInstall | None
    verification: Verification | None
    run: LastRun | None
    notes: tuple[str, ...]  # files that could not be read
