"""A reporter that costs nothing until something is reported: Rich is imported at the first line of progress."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envdoctor.output.json_lines import JsonLines
    from envdoctor.output.progress import Shown


class Reporter:
    """Passes everything on to what shows it, for people or as JSON lines, which is made when it is first needed."""

    def __init__(self, *, json_lines: bool = False) -> None:
        self._json_lines = json_lines

    @cached_property
    def _shown(self) -> Shown | JsonLines:
        if self._json_lines:
            from envdoctor.output.json_lines import JsonLines

            return JsonLines()
        from envdoctor.output.progress import Shown

        return Shown()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)

    def close(self) -> None:
        """Take the changing line away, if there ever was one."""
        if "_shown" in self.__dict__:
            self._shown.close()
