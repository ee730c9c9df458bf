"""Whether a check decides anything: the parts whose facts were not read, and the exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envdoctor.core.errors import exit_code
from envdoctor.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envdoctor.commands.check import CheckResult

# The part that a rule is about, by the letters of its id, of those parts without which there is no verdict.
DECISIVE = {"DRV": "driver", "NVML": "driver", "GPU": "GPU", "NCCL": "GPU"}


def undecided_parts(data: CheckResult) -> tuple[str, ...]:
    """The parts of a machine and its environment that were to be checked and could not be read.

    Those of a report are in its coverage.
    """
    if data.coverage:
        return ()
    return tuple(dict.fromkeys(_undecided(data)))


def check_exit_code(data: CheckResult) -> int:
    """1 with an error, 3 without a verdict, else 0."""
    failed = any(finding.status in ("error", "crashed") for finding in data.findings)
    lacks_facts = not data.coverage.enough if data.coverage else bool(undecided_parts(data)) or data.evaluated == 0
    return exit_code(failed=failed, undecided=lacks_facts)


def _undecided(data: CheckResult) -> Iterator[str]:
    selected = [rule for rule in RULES.values() if data.rule_filter.includes(rule.id)]
    parts = {part for rule in selected for letters, part in DECISIVE.items() if rule.id.startswith(letters)}
    machine, stack = data.machine, data.stack
    if "driver" in parts and machine.driver.version.state == "unreadable":
        yield "driver"
    gpus = machine.gpus.value or ()
    if "GPU" in parts and (
        machine.gpus.state == "unreadable" or any(gpu.compute_capability.state == "unreadable" for gpu in gpus)
    ):
        yield "GPU"
    if stack and not stack.all_packages_read and any(rule.needs_environment for rule in selected):
        yield "packages"
