"""The commands of remedies."""

from __future__ import annotations

from typing import Any


def commands_of(found: Any) -> tuple[str, ...]:
    """The commands of all remedies of a finding or a cause, in their order."""
    return tuple(command for remedy in found.remedies for command in remedy.commands)
