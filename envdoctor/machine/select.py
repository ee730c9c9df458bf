"""The machine that a command examines: this one or a recorded one, with single facts overridden."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.core.records import Machine
from envdoctor.machine import recorded as recordings


def select_machine(recorded: str, facts: Sequence[str]) -> Machine:
    """Read a recorded machine (`recorded`: a file or bundled name) or detect this one; apply `--fact` overrides."""
    if recorded:
        machine = recordings.read_recorded(recorded)
    else:
        from envdoctor.machine.detect import read_machine

        machine = read_machine()
    return recordings.override(machine, list(facts)) if facts else machine
