"""Facts of a report by their path."""

from __future__ import annotations

from functools import reduce
from typing import Any

from envdoctor.reports import Report


def fact(report: Report, path: str) -> Any:
    """The value of a fact, or its state if it is not known: `driver.version`, `stack.torch.cuda`."""
    root = report if path.startswith("stack.") else report.machine
    found = reduce(
        lambda record, name: getattr(getattr(record, "value", None) or record, name), path.split("."), root
    )
    return found.value if found.state == "known" else found.state
