"""The lines of a report that are about another environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from envdoctor.core.records import Distribution
from envdoctor.knowledge.versions import public_part

if TYPE_CHECKING:
    from envdoctor.reports import Report

PIN = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{1,40})==(\d[\w.+]{0,30})")
# A message, which names what was requested or found. A sentence names any releases.
IS_A_MESSAGE = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Warning)\b|\b(?:ERROR|WARNING)\b|^error|satisf|incompatible|found"
)


def without_other_releases(errors: str, report: Report) -> str:
    """The lines of a report but the sentences that pin releases of which the report has other ones.

    `The pinned torch==2.4.1 has no kernels for this GPU; I run torch 2.11.0`.
    """
    packages = report.stack.distributions.value or {}
    return "\n".join(line for line in errors.split("\n") if not _pins_others(line, packages))


def _pins_others(line: str, packages: Mapping[str, Distribution]) -> bool:
    """Whether a sentence pins packages, each of which has another version here."""
    from envdoctor.reports.section import distribution_name

    if "==" not in line or IS_A_MESSAGE.search(line):
        return False
    pins = [(distribution_name(name), pin) for name, pin in PIN.findall(line)]
    return bool(pins) and all(
        name in packages and public_part(packages[name].version) != public_part(pin) for name, pin in pins
    )
