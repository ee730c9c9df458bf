"""The parts of a check without which there is no verdict, and whose facts were not read."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.commands.rule_filter import RuleFilter
from envdoctor.core.records import Machine, Stack
from envdoctor.rules import RULES

# The part that a rule is about, by the letters of its id.
DECISIVE = {"DRV": "driver", "NVML": "driver", "GPU": "GPU", "NCCL": "GPU"}


def undecided_parts(machine: Machine, stack: Stack | None, rule_filter: RuleFilter) -> Iterator[str]:
    """The driver, the GPU and the packages, if rules on them were selected and they could not be read."""
    selected = [rule for rule in RULES.values() if rule_filter.includes(rule.id)]
    parts = {part for rule in selected for letters, part in DECISIVE.items() if rule.id.startswith(letters)}
    if "driver" in parts and machine.driver.version.state == "unreadable":
        yield "driver"
    unknown = (gpu.compute_capability.state == "unreadable" for gpu in machine.gpus.value or ())
    if "GPU" in parts and (machine.gpus.state == "unreadable" or any(unknown)):
        yield "GPU"
    if stack and not stack.all_packages_read and any(rule.needs_environment for rule in selected):
        yield "packages"
