"""The range of Pythons that the text of a guide states: "Python 3.7 - 3.9 is required"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.core.patterns import lazy_pattern

_RANGE = lazy_pattern(
    r"(?<![\w.])python(?: versions?)?[ :(*`]{1,4}(?:between |from )?v?(3\.\d{1,2})(?:\.(?:\d+|x))?\s?"
    r"(?:[-~–]|to|through|bis)\s?(?:python ?)?(3\.\d{1,2})(?!\d)",  # noqa: RUF001
    re.IGNORECASE,
)
_UPPER = lazy_pattern(
    r"(?<![\w.])python(?: versions?)?[ :(*`]{1,4}(?:>=? ?(3\.\d{1,2})(?:\.\d+)?[ ,]+(?:and )?)?"
    r"(<=?) ?(3\.\d{1,2})(?:\.\d+)?(?!\d)",
    re.IGNORECASE,
)
_NO_STATEMENT = lazy_pattern(r"n't\b|\b(?:not|never|fail\w*|for example|e\.g\.|colab|if|when)\b", re.IGNORECASE)
_MAX_LINE = 500


def python_range(lines: Sequence[str]) -> str:
    """The specifier of the only range with an upper bound that some lines state; empty if they state none or several.

    `>=3.7,<3.10`
    """
    found: set[str] = set()
    for line in lines:
        if len(line) > _MAX_LINE or _NO_STATEMENT.search(line):
            continue
        found |= {_specifier(match[1], match[2]) for match in _RANGE.finditer(line)}
        for lower, operator, upper in _UPPER.findall(line):
            found.add(_specifier(lower, upper) if operator == "<=" else _before(lower, upper))
    return found.pop() if len(found) == 1 else ""


def _specifier(lower: str, upper: str) -> str:
    """The range up to all patch releases of a Python."""
    return _before(lower, f"3.{int(upper.partition('.')[2]) + 1}")


def _before(lower: str, upper: str) -> str:
    return f">={lower},<{upper}" if lower else f"<{upper}"
