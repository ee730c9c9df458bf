"""Environment markers of requirements, evaluated for the environment's Python instead of this process."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable
from functools import lru_cache

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NAMES = {"os_name", "platform_machine", "platform_system", "sys_platform"}  # compared as text


class Markers:
    """Evaluates the markers of Requires-Dist lines for one environment. Results are cached."""

    def __init__(self, python_version: str, machine: str = "", extra: str = "") -> None:
        full = python_version if python_version.count(".") >= 2 else f"{python_version or '3'}.0"
        self.environment = {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": machine or os.uname().machine,
            "platform_python_implementation": "CPython",
            "platform_release": os.uname().release,
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": full,
            "python_version": ".".join(full.split(".")[:2]),
            "sys_platform": "linux",
            "extra": extra,
        }
        self._is_true = lru_cache(maxsize=None)(self._evaluate)

    def holds(self, marker: str) -> bool:
        """Whether a marker is true."""
        return self._is_true(marker.strip())

    def applicable(self, lines: Iterable[str]) -> tuple[str, ...]:
        """The requirements, without markers, of the lines that apply, with those of the extra."""
        requirements = []
        for line in lines:
            requirement, _, marker = line.partition(";")
            if not marker or self._is_true(marker.strip()):
                requirements.append(requirement.strip())
        return tuple(requirements)

    def _evaluate(self, marker: str) -> bool:
        usual = self._evaluate_usual(marker)
        if usual is not None:
            return usual
        from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

        try:
            return Marker(marker).evaluate(self.environment)
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, RecursionError):
            return True  # a superfluous requirement is visible to the user, a missing one is not

    def _evaluate_usual(self, marker: str) -> bool | None:
        """The value of a marker of a usual form, else None: importing packaging's parser takes 12 ms."""
        if "extra" in marker:
            return False if not self.environment["extra"] and _requires_extra(marker) else None
        if "(" in marker or (" and " in marker and " or " in marker):
            return None
        values = [self._compare(part) for part in re.split(" and | or ", marker)]
        if None in values:
            return None
        return any(values) if " or " in marker else all(values)

    def _compare(self, comparison: str) -> bool | None:
        variable, *rest = comparison.split(" ")
        if len(rest) != 2 or rest[0] not in OPERATORS or rest[1][:1] not in ("'", '"') or rest[1][0] != rest[1][-1]:
            return None
        symbol, value, actual = rest[0], rest[1][1:-1], self.environment.get(variable, "")
        if variable in NAMES and symbol in ("==", "!=") and value.isidentifier():
            return bool(OPERATORS[symbol](actual, value))
        versions = [text.split(".") for text in (actual, value)]
        if variable == "python_version" and all(len(v) == 2 and "".join(v).isdecimal() for v in versions):
            installed, stated = ([int(part) for part in version] for version in versions)
            return bool(OPERATORS[symbol](installed, stated))
        return None


def _requires_extra(marker: str) -> bool:
    """Whether a marker has the form `... and extra == "x"`, without an `or` outside of parentheses."""
    if " or " not in marker and "!=" not in marker:
        return True
    rest, _, extra = marker.rpartition(" and extra == ")
    in_parentheses = rest.startswith("(") and rest.find(")") == len(rest) - 1
    return bool(extra) and " " not in extra and (in_parentheses or (" or " not in rest and "(" not in rest))
