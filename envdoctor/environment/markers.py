"""Environment markers of requirements, for the Python and platform of the stack and not of this process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache


class Markers:
    """Decides which Requires-Dist lines hold in an environment; each marker text is judged once."""

    def __init__(self, python_version: str, machine: str = "") -> None:
        full = python_version if python_version.count(".") >= 2 else f"{python_version or '3'}.0"
        self._environment = {
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
            "extra": "",
        }
        self._holds = lru_cache(maxsize=None)(self._evaluate)

    def holding(self, lines: Iterable[str]) -> tuple[str, ...]:
        """The requirements without their markers, of the lines that hold here with no extra asked for."""
        found = []
        for line in lines:
            requirement, _, marker = line.partition(";")
            if not marker or self._holds(marker.strip()):
                found.append(requirement.strip())
        return tuple(found)

    def _evaluate(self, marker: str) -> bool:
        if "extra" in marker and " or " not in marker and "!=" not in marker:  # spares parsing thousands of lines
            return False
        from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

        try:
            return Marker(marker).evaluate(self._environment)
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, RecursionError):
            return True  # a requirement too many is seen; one too few is not
