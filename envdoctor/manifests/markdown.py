"""Code blocks of a Markdown file with line numbers: fenced, indented, HTML, and inline code in numbered lists."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

Line = tuple[int, str]

SHELL_COMMANDS = frozenset({
    "uv", "uvx", "pip", "pip3", "python", "python3", "conda", "mamba", "micromamba", "apt", "apt-get", "docker",
    "podman", "module", "ml", "export", "git", "wget", "curl", "sudo", "source", "huggingface-cli", "hf", "torchrun",
    "accelerate", "srun", "sbatch", "salloc", "apptainer", "singularity", "enroot", "vllm", "pipx", "poetry", "dnf",
    "yum",
})  # fmt: skip
_INLINE_COMMANDS = frozenset({
    "pip", "pip3", "uv", "conda", "mamba", "python", "python3", "apt", "apt-get", "sudo", "docker", "module",
    "export", "git", "wget", "huggingface-cli",
})  # fmt: skip
_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*(.*)")
_LIST_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+")
_NUMBERED = re.compile(r"[ \t>]*\d{1,9}[.)]\s")
_INLINE_CODE = re.compile(r"`([^`\n]{3,400})`([^`]*)$")
# Words that turn a command in a list into a warning against it.
_NEGATION = re.compile(
    r"\b(?:never|not|don't|avoid|nicht|kein\w*|nie|niemals|statt|instead|rather|nunca|jamais|ne|evit\w+)\b"
    r"|不要|切勿|别|避免|❌|не ",
    re.IGNORECASE,
)


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
    lines = text.removeprefix("\ufeff").split("\n")
    return list(_MarkdownParser([line.rstrip("\r") for line in lines]).blocks())


class _MarkdownParser:
    """Parses the lines in one pass. `index` is the next line."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.index = 0
        self.preceding_text = ""

    def blocks(self) -> Iterator[Block]:
        while self.index < len(self.lines):
            line = self.lines[self.index]
            if fence := _opening_fence(line):
                yield self._fenced(*fence)
            elif "<pre" in line.lower():
                yield self._html()
            elif line.startswith(("    ", "\t")) and _is_command(line):
                yield self._indented()
            else:
                yield from self._inline(line)
                self.preceding_text = line.strip() or self.preceding_text
                self.index += 1

    def _fenced(self, fence: str, info: str, prefix: int) -> Block:
        self.index += 1
        code: list[Line] = []
        while self.index < len(self.lines):
            line = self.lines[self.index]
            stripped = line.lstrip(" \t>")
            self.index += 1
            if stripped.startswith(fence) and not stripped.strip().strip(fence[0]):
                break
            code.append((self.index, _remove_prefix(line, prefix)))
        words = info.replace("{", " ").replace("}", " ").split()
        language = words[0].lstrip(".").lower() if words else ""
        return Block(language, info, tuple(code), self.preceding_text)

    def _html(self) -> Block:
        code: list[Line] = []
        while self.index < len(self.lines):
            line = self.lines[self.index]
            self.index += 1
            code.append((self.index, html.unescape(re.sub(r"<[^<>]{0,200}>", "", line))))
            if "</pre" in line.lower():
                break
        return Block("", "", tuple(code), self.preceding_text)

    def _indented(self) -> Block:
        code: list[Line] = []
        while self.index < len(self.lines) and self.lines[self.index].startswith(("    ", "\t")):
            code.append((self.index + 1, self.lines[self.index].strip()))
            self.index += 1
        return Block("", "", tuple(code), self.preceding_text)

    def _inline(self, line: str) -> Iterator[Block]:
        """A command at the end of a numbered list item, unless the item warns against it."""
        match = _INLINE_CODE.search(line) if _NUMBERED.match(line) else None
        if match and not re.search(r"\w{3}", match[2]) and not _NEGATION.search(line[: match.start()]):
            words = match[1].split()
            if len(words) > 1 and words[0] in _INLINE_COMMANDS:
                yield Block("bash", "", ((self.index + 1, match[1]),), self.preceding_text)


def _opening_fence(line: str) -> tuple[str, str, int] | None:
    """The fence, its info string, and the width of its prefix; None for other lines."""
    stripped = line.lstrip(" \t>")
    if marker := _LIST_MARKER.match(stripped):
        stripped = stripped[marker.end() :]
    match = _FENCE.fullmatch(stripped)
    if not match or (match[1][0] == "`" and "`" in match[2]):
        return None
    return match[1], match[2].strip(), len(line) - len(stripped)


def _remove_prefix(line: str, width: int) -> str:
    """A line of code without the indentation and quote marks of its fence."""
    return line[width:] if not line[:width].strip(" \t>") else line.lstrip(" \t>")


def _is_command(line: str) -> bool:
    words = line.strip().removeprefix("$ ").split(None, 2)
    return len(words) > 1 and (words[0] in SHELL_COMMANDS or "=" in words[0])
