"""Blocks of code whose language is not the one that the guide states for them."""

from __future__ import annotations

from textwrap import dedent

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import SHELL_COMMANDS, Block

_PYTHON = frozenset({"python", "py", "python3"})
_COMMANDS = SHELL_COMMANDS | {"bash", "sh", "mkdir", "deepspeed", "unzip", "tar", "cp", "mv", "chmod", "tensorboard"}
_ASSIGNMENT = lazy_pattern(r"[A-Z_][A-Z0-9_]*=\S+")


def is_shell_marked_as_python(block: Block) -> bool:
    """Whether a block of Python has only shell commands, and is not valid Python: guides use it for its colours."""
    if block.language not in _PYTHON:
        return False
    lines = [text.strip() for _, text in block.lines]
    starts = [
        text.removeprefix("$ ")
        for position, text in enumerate(lines)
        if text and not text.startswith("#") and not (position and lines[position - 1].endswith("\\"))
    ]
    if not starts or not all(map(_is_command, starts)):
        return False
    import ast

    try:
        ast.parse(dedent(block.text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return False


def _is_command(text: str) -> bool:
    words = text.split()
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return len(words) > 1 and words[0] in _COMMANDS and words[1] not in ("=", "==", "+=", "in", "is")
