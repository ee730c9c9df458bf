"""Commands and images that a guide mentions without a step: commented out, or as code in the text.

Each is judged as if it were the next step. Its findings are less severe, because a reader may not follow it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Status
from envdoctor.manifests.actions import STATED_IN_TEXT, Action, Install, UseImage
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.markdown import SHELL_COMMANDS, Block
from envdoctor.manifests.program_launches import Launch, started_program
from envdoctor.manifests.shell_records import Command

MAX_MENTIONS = 12
_COMMENTED = lazy_pattern(
    r"\s*#+\s*((?:[A-Z_]\w*=\S+\s+)*(?:!|%)?(?:(?:sudo |uv |python3? -m )*pip3? install|uv add|conda install"
    r"|docker (?:run|pull)|export [A-Z_]\w*=|huggingface-cli)\b.*)"
)
_INLINE = lazy_pattern(r"`{1,3}([^`\n]{3,300})`{1,3}")
_SCRIPT = lazy_pattern(r"(?:\./|(?:ba)?sh )(?:[\w.-]+/)*[\w.-]+\.sh(?:\s.*)?")  # a step, and no name of a file
_PART = lazy_pattern(  # of a command: what a sentence explains, `uv pip install -r` or `docker run --gpus all`
    r"docker run(?:\s+--?[\w-]+(?:=\S+|\s+(?:all|\d+\w*|\w+=\S+))?)+"
    r"|.*\sinstall\s(?:.*\s)?(?:-r|-e|--requirement|--editable)"
)
_ASSIGNMENT = lazy_pattern(r"(?:export )?[A-Z][A-Z0-9_]{3,60}=\S{1,200}")
_IMAGE = lazy_pattern(r"\b(nvcr\.io/nvidia/pytorch|(?:docker\.io/)?(?:pytorch/pytorch|nvidia/cuda)):(\d[\w.-]{2,60})")
NEGATION = lazy_pattern(
    r"\b(?:never|not|don't|doesn't|avoid|wrong|fail\w*|br[eo]\w*k\w*|instead of|rather than|previously|no longer"
    r"|useless|warning|caution|beware|replac\w+|overwrit\w+|downgrad\w+|used to|bug|error"
    r"|nicht\w*|nie|statt|achtung|vorsicht|falsch|ersetzt|nunca|jamais|attention)\b"
    r"|不要|切勿|避免|错误|注意|警告|❌|⚠",
    re.IGNORECASE,
)
# What earlier steps lack: a sentence names a command without the steps before it.
_OF_EARLIER_STEPS = frozenset({"RUN018", "RUN019", "RUN041"})
_LOWER: dict[Status, Status] = {"error": "warning", "warning": "info"}
# What programs of the checkout need: of packages that the text states, no command makes an error of it.
_OF_PYTHON = lazy_pattern(r"matching Python (?:ABI|implementation|version)")
OF_PROGRAMS = frozenset({"RUN078", "RUN181", "RUN224"})
OF_CODE = OF_PROGRAMS | {"RUN222", "RUN225", "RUN256", "RUN257", "RUN260"}  # what code imports, calls and reads
# What an open version resolves to today: a command that is commented out takes no release.
_OF_TODAY = frozenset({"RUN003", "RUN017"})


class Mention(NamedTuple):
    """A command or an image, and how the guide mentions it."""

    line: int
    text: str
    place: str  # "commented out", "in the text"


def find_mentions(guide: Guide) -> list[Mention]:
    """The mentioned commands in the order of the lines. Text that warns against a command does not mention it."""
    code = {number for block in guide.blocks for number, _ in block.lines}
    found = [mention for block in guide.blocks for mention in _commented(block)]
    for number, line in enumerate(guide.lines, 1):
        if number not in code:
            found += _in_text(number, line)
    return sorted(found)[:MAX_MENTIONS]


def _commented(block: Block) -> Iterator[Mention]:
    previous = ""
    for index, (number, text) in enumerate(block.lines):
        match = _COMMENTED.fullmatch(text)
        rest = range(index + 1, len(block.lines))  # a slice for each line is quadratic
        following = (block.lines[position][1].lstrip().lstrip("#") for position in rest)
        while match and match[1].endswith("\\"):
            match = _COMMENTED.fullmatch(text := text.rstrip().removesuffix("\\") + next(following, ""))
        if match and not NEGATION.search(previous) and not NEGATION.search(text):
            yield Mention(number, match[1].lstrip("!%"), "commented out")
        elif not match:
            previous = text if text.lstrip().startswith("#") else ""


def _in_text(number: int, line: str) -> Iterator[Mention]:
    for match in _INLINE.finditer(line):
        words = match[1].split()
        is_command = (len(words) > 1 and words[0] in SHELL_COMMANDS) or bool(_SCRIPT.fullmatch(match[1]))
        is_part = bool(_PART.fullmatch(match[1].strip()))
        if ((is_command and not is_part) or _ASSIGNMENT.fullmatch(match[1])) and not NEGATION.search(line):
            yield Mention(number, match[1], "in the text")
    for match in _IMAGE.finditer(line):
        if not NEGATION.search(line):
            yield Mention(number, f"{match[1]}:{match[2]}", "image")


def judge_mentions(guide: Guide, known: list[Finding], evaluate: Callable[[Guide], list[Finding]]) -> list[Finding]:
    """The findings of each mentioned command that the guide without it does not have."""
    keys = {(finding.line, finding.id) for finding in known}
    found: list[Finding] = []
    mentions = find_mentions(guide)
    launches = tuple(_launches(guide, mentions))
    for mention in mentions:
        for finding in evaluate(_with_mention(guide, mention, launches)):
            if mention.place == "in the text" and finding.id in _OF_EARLIER_STEPS:
                continue
            if finding.line == mention.line and (finding.line, finding.id) not in keys:
                keys.add((finding.line, finding.id))
                place = "" if mention.place == "image" else f"the command {mention.place}: "
                is_switched_off = mention.place == "commented out" and finding.id in _OF_TODAY
                status = "info" if is_switched_off else _LOWER.get(finding.status, finding.status)
                found.append(replace(finding, status=status, message=f"{place}{finding.message}"))
    return found


def lower_stated(guide: Guide, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, less severe where they are on packages that the text states and no command installs."""
    installs = [each for each in guide.actions if isinstance(each, Install)]
    stated = [each for each in installs if each.command == STATED_IN_TEXT]
    lines = {requirement.line for each in stated for requirement in each.requirements}
    is_python_open = not guide.python and not guide.stated_machine.python
    return [
        replace(each, status="info")  # an older Python, which the text leaves open, has a wheel
        if stated and each.line in lines and is_python_open and _OF_PYTHON.search(each.message)
        else replace(each, status="warning")
        if each.status == "error" and len(stated) == len(installs) and each.id in OF_PROGRAMS and stated
        else replace(each, status=_LOWER.get(each.status, each.status))
        if each.line in lines and each.id not in OF_PROGRAMS
        else each
        for each in findings
    ]


def _read(mention: Mention) -> tuple[tuple[Action, ...], tuple[Command, ...]]:
    """The actions and the commands of a mentioned command."""
    reader = BlockReader([Block("bash", "", ((mention.line, mention.text),))])
    return tuple(reader.actions()), tuple(reader.commands)


def _launches(guide: Guide, mentions: Sequence[Mention]) -> Iterator[Launch]:
    """The programs that commands in the text start."""
    folders = (guide.checkout.folder, guide.checkout.root) if guide.checkout else ()
    for mention in mentions if folders else ():
        for command in _read(mention)[1] if mention.place == "in the text" else ():
            if program := started_program(command):
                yield Launch(command.line, str(command), program, folders)


def _with_mention(guide: Guide, mention: Mention, launches: Sequence[Launch]) -> Guide:
    """The guide up to a mentioned command, which becomes its last step, with the programs of all such commands."""
    earlier = tuple(action for action in guide.actions if action.line < mention.line)
    if mention.place == "image":
        name, _, tag = mention.text.partition(":")
        return guide._replace(actions=(*earlier, UseImage(mention.line, mention.text, name, tag, is_entered=False)))
    actions, commands = _read(mention)
    return guide._replace(
        actions=(*earlier, *actions), commands=(*guide.commands, *commands), launches=(*guide.launches, *launches)
    )
