"""The code of a Markdown file, with line numbers: fenced, indented and HTML blocks, and commands in numbered
lists.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

Line = tuple[int, str]

COMMANDS = frozenset({
    "uv", "uvx", "pip", "pip3", "python", "python3", "conda", "mamba", "micromamba", "apt", "apt-get",
    "docker", "podman",
    "module", "ml", "export", "git", "wget", "curl", "sudo", "source", "huggingface-cli", "hf", "torchrun",
    "accelerate",
    "srun", "sbatch", "salloc", "apptainer", "singularity", "enroot", "vllm", "pipx", "poetry", "dnf", "yum",
})  # fmt: skip
_INSTALLERS = ("pip", "pip3", "uv", "conda", "mamba", "python", "python3", "apt", "apt-get", "sudo", "docker",
"module",
               "export", "git", "wget", "huggingface-cli")  # fmt: skip
_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*(.*)")
_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+")
_NUMBERED = re.compile(r"[ \t>]*\d{1,9}[.)]\s")
_SPAN = re.compile(r"`([^`\n]{3,400})`([^`]*)$")
# Words that turn a command in a list into a warning against it.
_AGAINST = re.compile(
    r"\b(?:never|not|don't|avoid|nicht|kein\w*|nie|niemals|statt|instead|rather|nunca|jamais|ne|evit\w+)\b"
    r"|不要|切勿|别|避免|❌|не ",
    re.IGNORECASE,
)


class Block(NamedTuple):
    """One piece of code. `before` is the nearest text above it, which may name a file."""

    language: str
    info: str
    lines: tuple[Line, ...]
    before: str = ""

    @property
    def text(self) -> str:
        """The code without line numbers."""
        return "\n".join(text for _, text in self.lines)


def parse_blocks(text: str) -> list[Block]:
    """All code of a Markdown text in order.

    1. `pip install torch`        -> a block of one command
    ```bash                       -> a block in the language bash
    """
    lines = text.removeprefix("\ufeff").split("\n")
    return list(_Reader([line.rstrip("\r") for line in lines]).blocks())


class _Reader:
    """Walks through the lines once."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0
        self.before = ""

    def blocks(self) -> Iterator[Block]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if fence := _opening(line):
                yield self._fenced(*fence)
            elif "<pre" in line.lower():
                yield self._html()
            elif line.startswith(("    ", "\t")) and _is_command(line):
                yield self._indented()
            else:
                yield from self._inline(line)
                self.before = line.strip() or self.before
                self.at += 1

    def _fenced(self, mark: str, info: str, prefix: int) -> Block:
        self.at += 1
        found: list[Line] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            bare = line.lstrip(" \t>")
            self.at += 1
            if bare.startswith(mark) and not bare.strip().strip(mark[0]):
                break
            found.append((self.at, _without(line, prefix)))
        words = info.replace("{", " ").replace("}", " ").split()
        language = words[0].lstrip(".").lower() if words else ""
        return Block(language, info, tuple(found), self.before)

    def _html(self) -> Block:
        found: list[Line] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            found.append((self.at, html.unescape(re.sub(r"<[^<>]{0,200}>", "", line))))
            if "</pre" in line.lower():
                break
        return Block("", "", tuple(found), self.before)

    def _indented(self) -> Block:
        found: list[Line] = []
        while self.at < len(self.lines) and self.lines[self.at].startswith(("    ", "\t")):
            found.append((self.at + 1, self.lines[self.at].strip()))
            self.at += 1
        return Block("", "", tuple(found), self.before)

    def _inline(self, line: str) -> Iterator[Block]:
        found = _SPAN.search(line) if _NUMBERED.match(line) else None
        if found and not re.search(r"\w{3}", found[2]) and not _AGAINST.search(line[: found.start()]):
            words = found[1].split()
            if len(words) > 1 and words[0] in _INSTALLERS:
                yield Block("bash", "", ((self.at + 1, found[1]),), self.before)


def _opening(line: str) -> tuple[str, str, int] | None:
    """The fence, its info string, and how far its content is indented; None for other lines."""
    bare = line.lstrip(" \t>")
    marker = _MARKER.match(bare)
    if marker:
        bare = bare[marker.end() :]
    found = _FENCE.fullmatch(bare)
    if not found or (found[1][0] == "`" and "`" in found[2]):
        return None
    return found[1], found[2].strip(), len(line) - len(bare)


def _without(line: str, prefix: int) -> str:
    """A line of code without the indentation and quote marks that its fence has."""
    head = line[:prefix]
    return line[prefix:] if not head.strip(" \t>") else line.lstrip(" \t>")


def _is_command(line: str) -> bool:
    words = line.strip().removeprefix("$ ").split(None, 2)
    return len(words) > 1 and (words[0] in COMMANDS or "=" in words[0])
