"""Environment markers of requirements, evaluated for the environment's Python instead of this process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache


class Markers:
    """Evaluates the markers of Requires-Dist lines for one environment. Results are cached."""

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
        self._is_true = lru_cache(maxsize=None)(self._evaluate)

    def applicable(self, lines: Iterable[str]) -> tuple[str, ...]:
        """The requirements, without markers, of the lines that apply when no extra is requested."""
        requirements = []
        for line in lines:
            requirement, _, marker = line.partition(";")
            if not marker or self._is_true(marker.strip()):
                requirements.append(requirement.strip())
        return tuple(requirements)

    def _evaluate(self, marker: str) -> bool:
        if "extra" in marker and " or " not in marker and "!=" not in marker:  # avoids parsing thousands of lines
            return False
        from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

        try:
            return Marker(marker).evaluate(self._environment)
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, RecursionError):
            return True  # a superfluous requirement is visible to the user, a missing one is not
