"""Commands to paste: built from a list of words, and quoted here for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.core.paths import exists
from envdoctor.core.shell_commands import quote


def command_line(*words: object) -> str:
    """A command of these words. Control characters, which no word of ours has, are shown as `?`."""
    return " ".join(map(quote, words))


def require_program(words: Sequence[str]) -> None:
    """Raise BadInput for a line of shell as the only word of a command."""
    if len(words) == 1 and re.search(r"[\s;&|<>$]", words[0]) and not exists(words[0]):
        raise BadInput(
            f"{words[0]!r} is one word, and not the path of a program",
            expected="a program and its arguments after --",
            hint=f"for a line of shell: -- sh -c {shlex.quote(words[0])}",
        )
