"""Lines of an installation that a backslash should continue: the next line has only arguments of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.manifests.markdown import Line

_INSTALL = re.compile(r"\b(?:pip3?|conda|mamba)\s+install\b|\buv\s+add\b")
_CONTINUES = re.compile(r"(?<!\\)(?:\\\\)*\\\s*$")
_ENDED = re.compile(r"(?:&&|\|\|?|[;&({]|\b(?:then|do|else))\s*$|#")
# What no shell runs: a requirement with a version, the address of a wheel or of a repository, a long option.
_ARGUMENT = re.compile(
    r"\s*(?:(['\"]?)[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?:==|>=|<=|~=|!=)\d[^\s'\"]*\1(?=\s|$)"
    r"|(?:git\+)?https?://\S+(?:\.whl|\.git)\b|--[a-z][\w-]+(?=[\s=]|$))"
)


def missing_backslashes(lines: Sequence[Line]) -> list[int]:
    """The positions of the lines of shell code that end an installation, although the next line continues it.

    Such a line is indented, ends with a backslash, or follows a command of several lines: output of a command is not.
    """
    found: list[int] = []
    start, is_install = 0, False
    for position, (_, text) in enumerate(lines[:-1]):
        is_install |= bool(_INSTALL.search(text)) and not text.lstrip().startswith("#")
        if _CONTINUES.search(text):
            continue
        following = lines[position + 1][1]
        is_complete = bool(_ENDED.search(text)) or any(text.count(quote) % 2 for quote in "\"'")
        is_written_below = (
            start < position or _indent(following) > _indent(lines[start][1]) or _CONTINUES.search(following)
        )
        if is_install and not is_complete and is_written_below and _ARGUMENT.match(following):
            found.append(position)
        else:
            start, is_install = position + 1, False
    return found


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
