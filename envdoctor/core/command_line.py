"""Commands to paste: built from a list of words, and quoted here for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.core.paths import exists

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def command_line(*words: object) -> str:
    """A command of these words. Control characters, which no word of ours has, are shown as `?`."""
    return shlex.join(CONTROL.sub("?", str(word)) for word in words)


def quoted(word: object) -> str:
    """One word of a command."""
    return command_line(word)


def require_program(words: Sequence[str]) -> None:
    """Raise BadInput for a line of shell as the only word of a command."""
    if len(words) == 1 and re.search(r"[\s;&|<>$]", words[0]) and not exists(words[0]):
        raise BadInput(
            f"{words[0]!r} is one word, and not the path of a program",
            expected="a program and its arguments after --",
            hint=f"for a line of shell: -- sh -c {shlex.quote(words[0])}",
        )
