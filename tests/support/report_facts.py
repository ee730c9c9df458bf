"""Facts of a report by their path."""

from __future__ import annotations

from functools import reduce
from typing import Any

from envdoctor.core.records import Fact
from envdoctor.reports import Report


def fact(report: Report, path: str) -> Any:
    """The value of a fact, or its state if it is not known: `driver.version`, `stack.torch.cuda`."""
    root = report if path.startswith("stack.") else report.machine
    found = reduce(
        lambda record, name: getattr(getattr(record, "value", None) or record, name), path.split("."), root
    )
    return found.value if found.state == "known" else found.state


def value_at(report: Report, path: str) -> Any:
    """A value by its path in the report, `machine.driver.version`; its state if there is no value."""
    found: Any = report
    for name in path.split("."):
        found = getattr(found.value if isinstance(found, Fact) else found, name)
        if isinstance(found, Fact) and found.value is None:
            return found.state
    return found.value
