"""Checks on commands in code for bash that only a shell of Windows has."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checks.evidence import command_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

SHELLS = frozenset({"bash", "sh", "shell", "console", "zsh"})  # languages of blocks that are for Linux
COMMANDS = "https://learn.microsoft.com/en-us/windows-server/administration/windows-commands/windows-commands"
_OF_WINDOWS = lazy_pattern(
    r"(?i)\bwindows\b|\bwin(?:32|64|1[01])?\b|power ?shell|\bcmd\b|git[ -]bash|\bchoco\b|\.exe\b|\.ps1\b|\.bat\b"
)
# A command of Windows, the form of its arguments, and what Linux has.
_COMMANDS = (
    ("copy", lazy_pattern(r"(?!/)\S*[.\\/]\S* \S+"), "cp"),
    ("xcopy", lazy_pattern(r"\S+ \S+.*"), "cp -r"),
    ("move", lazy_pattern(r"(?!/)\S*[.\\/]\S* \S+"), "mv"),
    ("del", lazy_pattern(r"\S*[.\\/*]\S*"), "rm"),  # `del model` is Python
    ("py", lazy_pattern(r"(?:-3[.\d]* )?(?:-m \w.*|[\w./-]+\.py\b.*)"), "python3"),
)


def names_windows(context: GuideContext) -> bool:
    """Whether the text of a guide names Windows, or has something that only Windows has."""
    return bool(_OF_WINDOWS.search("\n".join(context.guide.lines)))


@rule("RUN266", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=COMMANDS)
def only_windows_has_the_command(context: GuideContext) -> Iterator[Problem]:
    """`copy .env.example .env` or `py -m venv env` in a guide that does not name Windows: bash does not find it.

    An error in a block that is marked as code for bash.
    """
    if names_windows(context):
        return
    marked = {
        number
        for block in filter(is_shell_block, context.guide.blocks)
        if block.language in SHELLS
        for number, _ in block.lines
    }
    rows = {name: (pattern, other) for name, pattern, other in _COMMANDS}
    for command in context.guide.commands:
        name, rest = command.words[0] if command.words else "", " ".join(command.words[1:])
        pattern, other = rows.get(name, (None, ""))
        if pattern and pattern.fullmatch(rest):
            yield Problem(
                "error" if command.line in marked else "warning",
                f"`{command}` is not found: only Windows has the command {name}",
                command_evidence(context, command),
                f"Use {other} in place of {name}.",
                line=command.line,
            )
