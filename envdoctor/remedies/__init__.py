"""Exact versions for the remedies of findings, from the built-in release tables and without network access."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.remedies.affected import changes_packages

__all__ = ["add_pinned_remedies", "pin_remedies"]


def pin_remedies(machine: Machine, stack: Stack | None, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with exact versions in their remedies where the tables contain the packages."""
    if stack is None or stack.distributions.value is None or not any(map(changes_packages, findings)):
        return list(findings)
    if stack.torch.value and stack.torch.value.hip.value:  # the tables have no builds for ROCm
        return list(findings)
    from envdoctor.remedies.pins import pin

    return pin(machine, stack, findings)


def add_pinned_remedies(machine: Machine, stack: Stack | None, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with exact versions in their remedies, and the remedies of their rules after them."""
    return [
        msgspec.structs.replace(
            each,
            remedies=tuple({one.commands: one for one in (*pinned.remedies, *each.remedies)}.values()),
        )
        for each, pinned in zip(findings, pin_remedies(machine, stack, findings), strict=True)
    ]
