"""Commands to paste: built from a list of words, and quoted here for a shell."""

from __future__ import annotations

import re
import shlex

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def command_line(*words: object) -> str:
    """A command of these words. Control characters, which no word of ours has, are shown as `?`."""
    return shlex.join(CONTROL.sub("?", str(word)) for word in words)


def quoted(word: object) -> str:
    """One word of a command."""
    return command_line(word)
