"""Checks on arguments of a program that its shell passes on in another form than the author meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.missing_backslashes import without_comment
from envdoctor.manifests.shell import strip_prompts
from envdoctor.rules.registry import Problem, rule

PARAMETERS = "https://www.gnu.org/software/bash/manual/html_node/Shell-Parameter-Expansion.html"
QUOTES = "https://www.gnu.org/software/bash/manual/html_node/Quoting.html"
_WINDOWS_VARIABLE = lazy_pattern(r"%([A-Za-z_]\w*)%")
_WINDOWS_PATH = lazy_pattern(r"\s*(?:\$\s+)?(?:export\s+)?([A-Za-z_]\w*)=([C-Zcd]:\\[^\"'#]*)")
_BASH = frozenset({"bash", "sh", "shell", "zsh"})
_ASSIGNMENT = lazy_pattern(r"\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)=")
# An option whose value is one name, path or number: options that pass arguments on are named otherwise.
_OF_ONE_VALUE = lazy_pattern(
    r"--[\w-]*(?:model|version|path|dir|folder|ckpt|checkpoint|tokenizer|dataset|precision|name|seed|split)"
)
_PATH_AND_OPTIONS = lazy_pattern(r"([\w.~$@{}-]*(?:/[\w.$@{}-]+)+/?)((?:\s+--[A-Za-z][\w-]*(?:[= ][^\s-]\S*)?)+)\s*")
_PROGRAM = lazy_pattern(r".*\.(?:py|sh)|(?:.*/)?(?:python3?|bash|sh|env)")
_START = lazy_pattern(
    r"\s*(?:[A-Za-z_]\w*=[^\s'\"]*\s+)*(?:python3?|torchrun|accelerate|deepspeed|srun|bash|sh|pip3?|uv|conda)\s"
)
# A variable in front of the rest of a model's name, which has its size: `$Qwen2-VL-7B-Instruct`.
_MODEL = lazy_pattern(
    r"\$([A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*)((?:[.-][A-Za-z0-9]+)*-\d+(?:\.\d+)?[BbMm]\b(?:-[\w.]+)*)"
)
_CLOSED = lazy_pattern(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"")  # in a line: escaped characters and complete quotes


@rule("RUN185", kind="guide", severity="error", cause="dependency-pin-violated", url=PARAMETERS)
def variable_of_windows_in_a_shell_script(context: GuideContext) -> Iterator[Problem]:
    """`%NAME%` reads a variable in cmd.exe. bash passes the characters on, not the value that the script sets."""
    for block in context.guide.blocks:
        if not is_shell_block(block):
            continue
        assigned = {match[1]: number for number, text in block.lines if (match := _ASSIGNMENT.match(text))}
        for number, text in block.lines:
            names = [name for name in _WINDOWS_VARIABLE.findall(text) if assigned.get(name, number) < number]
            if names and not text.lstrip().startswith("#"):
                yield Problem(
                    "error",
                    f"`%{names[0]}%` is a variable of Windows: bash passes these characters, not the value of "
                    f"{names[0]}",
                    (
                        guide_evidence(context, names[0], _line(context, assigned[names[0]]), assigned[names[0]]),
                        guide_evidence(context, "command", _line(context, number), number),
                    ),
                    f'Write "${names[0]}"{" and the others likewise" if len({*names}) > 1 else ""}.',
                    line=number,
                )  # fmt: skip


@rule("RUN258", kind="guide", severity="warning", cause="dependency-pin-violated", url=QUOTES)
def variable_gets_a_path_of_windows(context: GuideContext) -> Iterator[Problem]:
    r"""`NAME=C:\Program Files\x.dll` in a block for bash: it removes the backslashes, and a blank ends the value."""
    for block in context.guide.blocks:
        for number, text in block.lines if block.language in _BASH else ():
            if match := _WINDOWS_PATH.fullmatch(text):
                ends = ", and the value ends at the first blank" if " " in match[2].strip() else ""
                yield Problem(
                    "warning",
                    f"{match[1]} gets a path of Windows without quotes: bash removes the backslashes{ends}",
                    (guide_evidence(context, "command", _line(context, number), number),),
                    "Name the path of this system, in quotes if it has blanks, or mark the block as one for Windows.",
                    line=number,
                )


def _line(context: GuideContext, number: int) -> str:
    return context.guide.lines[number - 1].strip()[:120]


@rule("RUN186", kind="guide", severity="error", cause="dependency-pin-violated", url=QUOTES)
def quotes_contain_an_option(context: GuideContext) -> Iterator[Problem]:
    """Quotes around a value and the option after it make both one argument: `--version='org/model --load_in_4bit'`.

    The program searches for a model or a file of that name, and does not get the option. A quote without an end
    contains the rest of the text: the shell waits for more of it, and the command does not run.
    """
    for number in _unclosed_quotes(context):
        yield Problem(
            "error",
            f"a quote of line {number} has no end: the shell does not run the command",
            (guide_evidence(context, "command", _line(context, number), number),),
            "Add the quote that is missing, or remove this one.",
            line=number,
        )
    for command in context.guide.commands:
        for position, word in enumerate(command.words[1:], 1):
            name, equals, value = word.partition("=")
            if not equals:
                name, value = command.words[position - 1], word
            found = _PATH_AND_OPTIONS.fullmatch(value)
            if found and _OF_ONE_VALUE.fullmatch(name) and not _PROGRAM.fullmatch(found[1]):
                options = found[2].strip()
                yield Problem(
                    "error",
                    f"the quotes of {name} also contain `{options}`: the program gets no such option, and `{value}` "
                    "as one value",
                    command_evidence(context, command),
                    f"End the quotes after {found[1]}.",
                    line=command.line,
                )


def _unclosed_quotes(context: GuideContext) -> Iterator[int]:
    """The lines that start a program and have the only open quote of their block, which no other line can close."""
    for block in filter(is_shell_block, context.guide.blocks):
        lines = strip_prompts(block.lines, console=False)
        if len(lines) == 1 and _START.match(lines[0][1]) and "<<" not in lines[0][1]:
            if has_open_quote(lines[0][1]):
                yield lines[0][0]
            continue
        code = [(number, without_comment(text)) for number, text in lines if not text.lstrip().startswith("#")]
        rests = [(number, _CLOSED.sub("", text)) for number, text in code]
        found = [(number, rest) for number, rest in rests if re.search("['\"]", rest)]
        text = dict(lines)
        if len(found) == 1 and found[0][1].count('"') == 1 and "'" not in found[0][1]:
            number = found[0][0]
            if _START.match(text[number]) and not any("<<" in each for each in text.values()):
                yield number


def has_open_quote(text: str) -> bool:
    """Whether a quote of a complete text has no end, as the shell reads it: `"a lion.' --music 'piano'`."""
    rest = without_comment(text)
    while found := re.search(r"\\.|['\"]", rest):
        end = _CLOSED.match(rest, found.start())
        if end is None:
            return True
        rest = rest[end.end() :]
    return False


@rule("RUN235", kind="guide", severity="warning", cause="dependency-pin-violated", url=PARAMETERS)
def name_of_a_variable_ends_before_a_dash(context: GuideContext) -> Iterator[Problem]:
    """`$Qwen2-VL-7B` is the variable Qwen2 with a text: a name has no dash. Without a value only the text remains.

    Only for the name of a model with its size, where nothing sets the variable that the shell reads.
    """
    for command in context.guide.commands:
        values = (*command.words, *(value for _, value in command.assignments))
        for name, text in dict.fromkeys(found for value in values for found in _MODEL.findall(value)):
            if not _is_set(context, name):
                yield Problem(
                    "warning",
                    f"the shell reads `${name}{text}` as the variable {name}, which no step sets, and the text "
                    f"{text}: the program gets `{text}`",
                    command_evidence(context, command),
                    f"Write the path of {name}{text}, or set a variable whose name has no dash.",
                    line=command.line,
                )


def _is_set(context: GuideContext, name: str) -> bool:
    is_sourced = any(command.name in ("source", ".") for command in context.guide.commands)
    assigned = re.compile(rf"\b{re.escape(name)}=|\b(?:for|read|local|declare)\s[^;|]*\b{re.escape(name)}\b")
    return is_sourced or any(assigned.search(line) for line in context.guide.lines)
