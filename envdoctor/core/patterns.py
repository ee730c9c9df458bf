"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import re
from typing import Any, cast


class _LazyPattern:
    """Has the methods of `re.Pattern`."""

    def __init__(self, text: str, flags: int) -> None:
        self._source = text, flags
        self.pattern = text  # without a compilation: patterns are made of others

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)  # the next use finds it without this function
        return method


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern of a module. A command imports hundreds of them and uses a few; to compile one takes up to 1 ms."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))
