"""The action of a scheduler for findings on a node and for Xid messages: health.toml."""

from __future__ import annotations

import re
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.core.records import Finding
from envdoctor.knowledge.tables import TableRow, load_table

Action = Literal["isolate", "reset", "monitor"]
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


def kernel_message(line: str) -> MessageAction | None:
    """The row of a line of the kernel log, if it is about a fault that no Xid code states."""
    if "GPU" not in line and "NVRM" not in line and "nvidia" not in line:
        return None
    return next((row for row in _messages() if re.search(row.pattern, line)), None)


def message_action(identifier: str) -> tuple[Action, str]:
    """The action for such a message and its title."""
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
