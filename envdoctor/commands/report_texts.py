"""The lines of a report that are about another environment, and those that report the end of a problem."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Distribution
from envdoctor.knowledge.versions import public_part

if TYPE_CHECKING:
    from envdoctor.reports import Report

PIN = lazy_pattern(r"(?<![\w.-])([A-Za-z][\w.-]{1,40})==(\d[\w.+]{0,30})")
# A message, which names what was requested or found. A sentence names any releases.
IS_A_MESSAGE = lazy_pattern(
    r"\b[A-Z]\w*(?:Error|Exception|Warning)\b|\b(?:ERROR|WARNING)\b|^error|satisf|incompatible|found"
)
SOLVED = lazy_pattern(
    r"(?i)\b(?:everything|all|it)(?: is|'s| works| runs)? (?:fine|good|well|ok(?:ay)?|works|working|runs) now\b"
    r"|\bnow (?:it|everything|all) (?:works|runs|is fine|is ok(?:ay)?)\b"
    r"|\b(?:problem|issue|error)(?: is| has been| was)? (?:now )?(?:solved|resolved|gone)\b"
    r"|(?:问题|已经?)\s?(?:已)?解决了"
)
NOT_SOLVED = lazy_pattern(r"(?i)\b(?:but|only|not|never|until|if|when|how|without)\b")


def is_solved(errors: str) -> bool:
    """Whether a text reports that its problem is solved, and no failure after that: `Everything is fine now`."""
    from envdoctor.commands.report_notes import SIGN_OF_FAILURE

    found = next(iter(SOLVED.finditer(errors)), None)
    if not found:
        return False
    start = errors.rfind("\n", 0, found.start()) + 1
    line, _, later = errors[start:].partition("\n")
    sentence = re.split(r"(?<=[.!?])\s", line[: found.end() - start])[-1]
    rest = re.match(r"[^.,;]*", line[found.end() - start :])
    return not NOT_SOLVED.search(sentence + (rest[0] if rest else "")) and not SIGN_OF_FAILURE.search(later)


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
