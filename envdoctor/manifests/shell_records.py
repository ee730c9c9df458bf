"""The commands of a shell text, the state of a shell, and the text that the grammar parses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.alternatives import Branch
from envdoctor.manifests.markdown import Line

if TYPE_CHECKING:
    from tree_sitter import Node

_REPLACED_PLACEHOLDER = lazy_pattern("\ue001[A-Za-z\ue004\ue005][^\ue001\ue002]*\ue002")
BOUND_CHARACTERS = str.maketrans("<> '\"", "\ue001\ue002\ue003\ue004\ue005")  # what the grammar shall not interpret
_ORIGINAL_CHARACTERS = str.maketrans("\ue001\ue002\ue003\ue004\ue005", "<> '\"")


class Command(NamedTuple):
    """A simple command. `words` are unquoted, with known variables expanded."""

    line: int
    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()  # before the command: `MAX_JOBS=4 pip install`
    output: str = ""  # file of `> FILE`
    heredoc: tuple[Line, ...] = ()
    unquoted_bounds: tuple[str, ...] = ()  # words with an unquoted `>` or `<`

    @property
    def name(self) -> str:
        """The name of the program without its directory."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def text(self) -> str:
        """The complete command as one line."""
        return " ".join([*(f"{name}={value}" for name, value in self.assignments), *self.words])

    def __str__(self) -> str:
        """The command as one line, cut for output."""
        return self.text if len(self.text) <= 200 else self.text[:197] + "..."


class ShellState:
    """Known variables, arrays and functions. They are available to later texts of the same guide.

    `choice` is the number of the branch that is read of each `if`, `case` and `||`, and `followed` the branches that
    were read. `choices` is the largest number of branches seen. `arguments` are the known positional parameters of a
    function call. `platform` is the value of `$(uname -m)`, if it is known. `has_file` is whether a file exists.
    """

    def __init__(self, choice: int = 0, platform: str = "") -> None:
        self.variables: dict[str, str] = {}
        self.arrays: dict[str, list[str]] = {}
        self.functions: dict[str, tuple[Node, ShellText]] = {}
        self.arguments: list[str] = []
        self.unread: dict[int, str] = {}  # first line of a text that was not read -> what it is
        self.choice = choice
        self.choices = 1
        self.followed: list[Branch] = []
        self.platform = platform
        self.has_file: Callable[[str], bool] = lambda _path: False


class ShellText(NamedTuple):
    """A text that the grammar can parse, with the line numbers of its rows."""

    source: bytes
    numbers: tuple[int, ...]

    def line(self, node: Node) -> int:
        """The line of a node."""
        return self.numbers[min(node.start_point[0], len(self.numbers) - 1)]

    def last_line(self, node: Node) -> int:
        """The last line of a node."""
        return self.numbers[min(node.end_point[0], len(self.numbers) - 1)]


def original_text(text: str) -> str:
    """The text with the characters that `parse_commands` replaced."""
    return text.translate(_ORIGINAL_CHARACTERS)


def has_replaced_bound(text: str) -> bool:
    """Whether a word contains a `<` or `>` that the shell reads as a redirection.

    A reader replaces a placeholder, `<repo>/requirements.txt`, before the shell reads it.
    """
    return bool(re.search("[\ue001\ue002]", _REPLACED_PLACEHOLDER.sub("", text)))


def is_known(text: str) -> bool:
    """Whether a word has no part that only a shell on the target machine can determine."""
    return not re.search(r"[$`{]|<['\"A-Za-z]", text)
