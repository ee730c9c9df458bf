"""What a report holds. Everything in it has been scrubbed; nothing is added to it afterwards."""

from __future__ import annotations

from typing import Any

from envdoctor.core.records import Finding, Machine, Record, Stack, Verification

REPORT_SCHEMA = 1


class LastInstall(Record, frozen=True):
    """The newest install log."""

    file: str
    lines: tuple[str, ...]


class LastRun(Record, frozen=True):
    """The newest run: its configuration, how it ended, and its last words."""

    directory: str
    configuration: dict[str, Any]
    result: dict[str, Any]  # empty where it did not get to its end
    events: tuple[dict[str, Any], ...]
    lines: tuple[str, ...]  # of train.log


class IssueReport(Record, frozen=True, kw_only=True):
    """What `envdoctor report` answers with."""

    schema: int = REPORT_SCHEMA
    envdoctor: str
    created: str  # ISO 8601, UTC
    removed: dict[str, int]  # kind: how many different values
    summary: str  # the same in words
    machine: Machine
    stack: Stack | None
    findings: tuple[Finding, ...]
    install: LastInstall | None
    verification: Verification | None
    run: LastRun | None
    notes: tuple[str, ...]  # what could not be read
