"""The machine that a command examines: this one or a recorded one, with single facts overridden."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Machine
from envdoctor.knowledge.cuda import complete_driver
from envdoctor.machine import recorded as recordings


def select_machine(recorded: str, facts: Sequence[str]) -> Machine:
    """Read a recorded machine (`recorded`: a file or bundled name) or detect this one; apply `--fact` overrides."""
    if recorded:
        machine = recordings.read_recorded(recorded)
    else:
        from envdoctor.machine.detect import read_machine

        machine = read_machine()
    return recordings.override(machine, list(facts)) if facts else machine


def facts_with_driver(facts: tuple[str, ...], driver: str) -> tuple[str, ...]:
    """The overrides of `--fact` and that of `--driver`, whose last numbers may be missing."""
    if not driver:
        return facts
    if not re.fullmatch(r"\d{3}(?:\.\d{1,3}){0,2}", driver):
        raise BadInput(
            f"--driver {driver}: no driver version",
            expected="the version that nvidia-smi prints, such as 550.54.15",
            hint="nvidia-smi --query-gpu=driver_version --format=csv",
        )
    return (*facts, f"driver.version={complete_driver(driver)}")
