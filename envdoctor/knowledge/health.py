"""The action of a scheduler for findings on a node and for Xid messages: health.toml."""

from __future__ import annotations

import re
from typing import Literal

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Finding
from envdoctor.knowledge.tables import TableRow, load_table

Action = Literal["isolate", "reset", "monitor"]
# A line with one of these is about the driver: it is understood, known to be harmless, or at least recorded.
OF_THE_DRIVER = lazy_pattern(r"NVRM|\bS?Xid\b|RmInitAdapter|fallen off the bus", re.IGNORECASE)
UNKNOWN_MESSAGE = "unknown"
ACTIONS: tuple[Action, ...] = ("isolate", "reset", "monitor")  # worst first


class RuleAction(Record, frozen=True, kw_only=True):
    """The action for findings of a rule."""

    id: str
    action: Action
    status: str = ""


class XidAction(TableRow, frozen=True, kw_only=True):
    """The action for an Xid."""

    code: int
    title: str
    action: Action


class MessageAction(TableRow, frozen=True, kw_only=True):
    """The action for another message of the driver in the kernel log."""

    id: str
    pattern: str
    title: str
    action: Action


class HarmlessMessage(TableRow, frozen=True, kw_only=True):
    """A message of the driver that states no fault."""

    pattern: str


def kernel_message(line: str) -> str:
    """The id of a message of the driver that no Xid code states; UNKNOWN_MESSAGE, or empty for a harmless line."""
    if not OF_THE_DRIVER.search(line) and "GPU" not in line:
        return ""
    for row in _messages():
        if re.search(row.pattern, line, re.IGNORECASE):
            return row.id
    if not OF_THE_DRIVER.search(line):
        return ""
    harmless = load_table("health.toml", tuple[HarmlessMessage, ...], "harmless")
    is_harmless = any(re.search(row.pattern, line, re.IGNORECASE) for row in harmless)
    return "" if is_harmless else UNKNOWN_MESSAGE


def message_action(identifier: str) -> tuple[Action, str]:
    """The action for such a message and its title."""
    if identifier == UNKNOWN_MESSAGE:
        return "monitor", "a message of the driver that is in no table"
    row = next(row for row in _messages() if row.id == identifier)
    return row.action, row.title


def _messages() -> tuple[MessageAction, ...]:
    return load_table("health.toml", tuple[MessageAction, ...], "message")


def finding_action(finding: Finding) -> Action | None:
    """The action for a finding; None for one that is no problem."""
    for row in load_table("health.toml", tuple[RuleAction, ...], "rule"):
        if row.id == finding.id and row.status in ("", finding.status):
            return row.action
    return "monitor" if finding.status in ("error", "warning", "crashed") else None


def xid_action(code: int) -> tuple[Action, str]:
    """The action for an Xid and its title."""
    rows = load_table("health.toml", tuple[XidAction, ...], "xid")
    row = next((row for row in rows if row.code == code), None)
    return (row.action, row.title) if row else ("monitor", "not in the table")
