"""Code blocks of a Markdown file with line numbers: fenced, indented, HTML, and inline code in numbered lists.

markdown-it-py parses the text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.plain_commands import plain_commands

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Line = tuple[int, str]

SHELL_COMMANDS = frozenset({
    "uv", "uvx", "pip", "pip3", "python", "python3", "conda", "mamba", "micromamba", "apt", "apt-get", "docker",
    "podman", "module", "ml", "export", "git", "wget", "curl", "sudo", "source", "huggingface-cli", "hf", "torchrun",
    "accelerate", "srun", "sbatch", "salloc", "apptainer", "singularity", "enroot", "vllm", "pipx", "poetry", "dnf",
    "yum", "cd", "nohup", "deepspeed", "streamlit",
})  # fmt: skip
_ONLY_CODE = lazy_pattern(r"`[^`]+`")  # as an item of a list: a step, and no mention in a sentence
# As a paragraph of its own: the start of a program, and no example of an option.
_START_OF_PROGRAM = lazy_pattern(r"`(?:python3?|bash|sh) [\w./-]+\.(?:py|sh)(?:\s[^`]*)?`")
_INLINE_COMMANDS = frozenset({
    "pip", "pip3", "uv", "conda", "mamba", "python", "python3", "apt", "apt-get", "sudo", "docker", "module",
    "export", "git", "wget", "huggingface-cli", "bash", "sh",
})  # fmt: skip
# A command in a quotation, which some guides use in place of a block of code.
_QUOTED_COMMAND = lazy_pattern(
    r"(?:[A-Z_][A-Z0-9_]*=\S+\s+)*(?:python3?\s+(?:-m\s+\w|(?:-\w\s+)*[\w./-]+\.py\b)|torchrun\s+\S"
    r"|accelerate launch\s|(?:uv |python3? -m )?pip3? install\s|conda (?:create|install|activate|env)\s"
    r"|(?:bash|sh)\s+\S+\.sh\b|git clone\s).*"
)
_FENCE = lazy_pattern(r"^[ \t]*(?:`{3,}[^`\n]*$|~~~)", re.MULTILINE)
_PREFORMATTED = lazy_pattern(r"<pre\b.*?(?:</pre>|\Z)", re.IGNORECASE | re.DOTALL)
_HTML_COMMENT = lazy_pattern(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INLINE_CODE = lazy_pattern(r"`([^`\n]{3,400})`([^`]*)$")
# Words that turn a command in a list into a warning against it.
_NEGATION = lazy_pattern(
    r"\b(?:never|not|don't|avoid|nicht|kein\w*|nie|niemals|statt|instead|rather|nunca|jamais|ne|evit\w+)\b"
    r"|不要|切勿|别|避免|❌|не ",
    re.IGNORECASE,
)
_DIFF = frozenset({"diff", "patch"})
_DIFF_HEADER = lazy_pattern(r"@@|--- |\+\+\+ |diff ")
_MAX_DEPTH = 4  # of fences that are indented like code


class Block(NamedTuple):
    """A block of code. `preceding_text` is the nearest text above it, which may contain a file name."""

    language: str
    info: str
    lines: tuple[Line, ...]
    preceding_text: str = ""

    @property
    def text(self) -> str:
        """The code without line numbers."""
        return "\n".join(text for _, text in self.lines)


def parse_blocks(text: str) -> list[Block]:
    """The code blocks of a Markdown text in order.

    1. `pip install torch`        -> a block of one command
    ```bash                       -> a block in the language bash
    """
    return list(_blocks(text))


@lru_cache(maxsize=2)  # a guide is parsed for its commands, and once more for the paths through it
def _blocks(text: str) -> tuple[Block, ...]:
    return tuple(_MarkdownReader(text.removeprefix("\ufeff")).blocks())


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").disable(["inline"])


class _MarkdownReader:
    """Converts the tokens of a text to blocks. `first` is the number of its first line."""

    def __init__(self, text: str, first: int = 1, depth: int = 0) -> None:
        # The parser would count a carriage return within a line as a line break.
        self.text = text.replace("\r\n", "\n").replace("\r", " ")
        self.lines = self.text.split("\n")
        self.first = first
        self.depth = depth
        self.preceding_text = ""
        self.lists: list[str] = []  # types of the open lists
        self.quotations = 0  # that are open

    def blocks(self) -> Iterator[Block]:
        for token in _parser().parse(self.text):
            if token.type in ("ordered_list_open", "bullet_list_open"):
                self.lists.append(token.type)
            elif token.type in ("ordered_list_close", "bullet_list_close"):
                self.lists.pop()
            elif token.type in ("blockquote_open", "blockquote_close"):
                self.quotations += token.nesting
            elif token.map and token.type == "fence":
                yield self._fenced(token, token.map[0])
            elif token.map and token.type == "code_block":
                yield from self._indented(token, token.map[0])
            elif token.map and token.type in ("html_block", "inline"):
                yield from self._text(token, token.map[0])

    def _fenced(self, token: Token, row: int) -> Block:
        words = token.info.replace("{", " ").replace("}", " ").split()
        language = words[0].lstrip(".").lower() if words else ""
        code = self._code(token.content, row + 1)
        if language in _DIFF and not any(_DIFF_HEADER.match(text) for _, text in code):
            # Commands that are coloured as additions; the patch of a file has headers.
            language, code = "", tuple((number, text.removeprefix("+").removeprefix(" ")) for number, text in code
                                       if not text.startswith("-"))  # fmt: skip
        return Block(language, token.info.strip(), code, self.preceding_text)

    def _code(self, text: str, row: int) -> tuple[Line, ...]:
        lines = text.removesuffix("\n").split("\n") if text else []
        return tuple(enumerate(lines, self.first + row))

    def _indented(self, token: Token, row: int) -> Iterator[Block]:
        """Indented code that starts with a command. Guides also indent fences, such as those of a tab."""
        if fence := _FENCE.search(token.content):
            yield from self._nested(token.content, fence.start(), row)
            return
        code = self._code(token.content, row)
        start = next((index for index, (_, text) in enumerate(code) if _is_command(text)), len(code))
        if start < len(code):
            lines = tuple((number, text.strip()) for number, text in code[start:])
            yield Block("", "", lines, self.preceding_text)

    def _nested(self, content: str, start: int, row: int) -> Iterator[Block]:
        row, content = row + content.count("\n", 0, start), content[start:]
        if self.depth < _MAX_DEPTH:
            reader = _MarkdownReader(dedent(content), self.first + row, self.depth + 1)
            reader.preceding_text = self.preceding_text
            yield from reader.blocks()

    def _text(self, token: Token, row: int) -> Iterator[Block]:
        content = token.content
        if token.type == "html_block":  # no reader sees its comments
            content = _HTML_COMMENT.sub(lambda found: "\n" * found[0].count("\n"), content)
        if fence := _FENCE.search(content):
            yield from self._nested(content, fence.start(), row)
            return
        for match in _PREFORMATTED.finditer(content):
            code = html.unescape(re.sub(r"<[^<>]{0,200}>", "", match[0]))
            yield Block("", "", self._code(code, row + content.count("\n", 0, match.start())), self.preceding_text)
        lines = token.content.rstrip("\n").split("\n")
        if self.quotations and all(map(_QUOTED_COMMAND.fullmatch, lines)):
            yield Block("bash", "", tuple(enumerate(lines, self.first + row)), self.preceding_text)
            lines = []
        elif token.type == "inline" and not self.quotations:
            for index, command in plain_commands(lines):
                yield Block("bash", "", ((self.first + row + index, command),), self.preceding_text)
        if not self.lists and len(lines) == 1 and _START_OF_PROGRAM.fullmatch(lines[0].strip()):
            yield from self._inline(lines[0], row)
        for index, line in enumerate(lines if self.lists else ()):
            if self.lists[-1] == "ordered_list_open" or _ONLY_CODE.fullmatch(line.strip()):
                yield from self._inline(line, row + index)
        self.preceding_text = self.lines[min(row + len(lines), len(self.lines)) - 1].strip() or self.preceding_text

    def _inline(self, line: str, row: int) -> Iterator[Block]:
        """A command at the end of a line of a list, unless the line warns against it."""
        match = _INLINE_CODE.search(line)
        if match and not re.search(r"\w{3}", match[2]) and not _NEGATION.search(line[: match.start()]):
            words = match[1].split()
            if len(words) > 1 and words[0] in _INLINE_COMMANDS:
                yield Block("bash", "", ((self.first + row, match[1]),), self.preceding_text)


def _is_command(line: str) -> bool:
    words = line.strip().removeprefix("$ ").split(None, 2)
    return len(words) > 1 and (words[0] in SHELL_COMMANDS or "=" in words[0])
