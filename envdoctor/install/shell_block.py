"""The block of `envdoctor fix` in a file of sh, bash or zsh: one line for each variable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import Setting, SetVariable, command_of

BEGIN, END = "# >>> envdoctor fix >>>", "# <<< envdoctor fix <<<"
COMMENT = "# Written by `envdoctor fix --write`. Remove the block to undo it."
VARIABLE = lazy_pattern(r"(?:export\s+(\w+)=|unset\s+(\w+)$)")
# What schedulers read at the start of a job script: nothing may come before it.
DIRECTIVE = lazy_pattern(r"#!|#(?:SBATCH|PBS|BSUB|COBALT|OAR|PJM|flux:|\$)")
# The start of ~/.bashrc on Debian, Ubuntu and Fedora.
RETURN = lazy_pattern(r"\*\)\s*return\b|^\[.*(?:\$-|\$\{?PS1).*(?:&&|\|\|)\s*return\b")


def name_of(setting: Setting) -> str:
    """The name of the variable."""
    return setting.assignment.partition("=")[0] if isinstance(setting, SetVariable) else setting.name


def with_block(text: str, settings: Sequence[Setting], path: Path, *, is_script: bool) -> str:
    """The text with a block that has these settings, and those of its present block for other variables.

    A new block of a profile is at the end, where it overrides earlier lines. A script has it before its first
    command. Raises BadInput for a block without an end.
    """
    if not settings:
        return text
    lines = text.splitlines(keepends=True)
    start, end = _present_block(lines, path, is_script=is_script)
    kept = {_name_in(line): line.strip() for line in lines[start:end] if _name_in(line)}
    added = kept | {name_of(each): command_of(each) for each in settings}
    block = "".join(f"{line}\n" for line in (BEGIN, COMMENT, *added.values(), END))
    before, after = "".join(lines[:start]), "".join(lines[end:])
    return f"{before}{'' if before.endswith(chr(10)) or not before else chr(10)}{block}{after}"


def block_notes(text: str, settings: Sequence[Setting]) -> tuple[str, ...]:
    """Lines of a file with the block that limit its effect."""
    lines = text.splitlines()
    if BEGIN not in lines or END not in lines:
        return ()
    notes = [
        f"line {number} returns in a shell that is not interactive, as that of `ssh HOST COMMAND`: it skips the block"
        for number, line in enumerate(lines[: lines.index(BEGIN)], 1)
        if RETURN.search(line.strip())
    ]
    names = {name_of(each) for each in settings}
    for number, line in enumerate(lines[lines.index(END) :], lines.index(END) + 1):
        found = re.match(r"\s*(?:export\s+|unset\s+)?(\w+)(?:=|\s*$)", line)
        if found and found[1] in names:
            notes.append(f"line {number} changes {found[1]} after the block: {line.strip()}")
    return tuple(notes)


def _present_block(lines: Sequence[str], path: Path, *, is_script: bool) -> tuple[int, int]:
    """The first line of the block and the line after it; both the same where a new block belongs."""
    stripped = [line.strip() for line in lines]
    if BEGIN in stripped:
        start = stripped.index(BEGIN)
        if END not in stripped[start:]:
            raise BadInput(
                f"{path}: line {start + 1} begins a block of envdoctor that has no end",
                expected=f"a later line {END}",
                hint=f"remove line {start + 1}, or add the end of the block",
            )
        return start, stripped.index(END, start) + 1
    position = len(lines)
    if is_script:
        head = next((n for n, line in enumerate(stripped) if line and not line.startswith("#")), len(lines))
        position = max((n + 1 for n in range(head) if DIRECTIVE.match(stripped[n])), default=0)
    return position, position


def _name_in(line: str) -> str:
    found = VARIABLE.match(line.strip())
    return (found[1] or found[2]) if found else ""
