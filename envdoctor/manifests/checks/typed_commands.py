"""Checks on commands whose characters a shell reads in another way: typographic ones, backslashes, words of text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checks.evidence import guide_evidence, shown_line
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.markdown import Block, Line
from envdoctor.manifests.missing_backslashes import heredoc_positions, without_comment
from envdoctor.manifests.shell import strip_prompts
from envdoctor.rules.registry import Problem, rule

QUOTES = "https://www.gnu.org/software/bash/manual/html_node/Quoting.html"
ESCAPES = "https://www.gnu.org/software/bash/manual/html_node/Escape-Character.html"
COMMANDS = "https://www.gnu.org/software/bash/manual/html_node/Simple-Commands.html"
CONDITIONS = "https://www.gnu.org/software/bash/manual/html_node/Conditional-Constructs.html"
SUBSTITUTION = "https://www.gnu.org/software/bash/manual/html_node/Command-Substitution.html"
_PROGRAMS = r"(?:python3?|pip3?|torchrun|accelerate|deepspeed|bash|sh|conda|mamba|uv|git|docker|source|cd)"
_START = lazy_pattern(rf"\s*(?:[A-Za-z_]\w*=[^\s'\"]*\s+)*(?:sudo\s+)?(?:{_PROGRAMS}\s|\./[\w.-])")
_CONTINUES = lazy_pattern(r"(?<!\\)\\\s*$")
_QUOTED = lazy_pattern(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_LONG = r"[\u2010-\u2015\u2212]"
_DASH = lazy_pattern(rf"(?<=\s)({_LONG}[-\u2010-\u2015\u2212]?|-{_LONG})([A-Za-z][\w-]*)(?=[\s=]|$)")
_QUOTE = lazy_pattern(r"(?<=[\s=])[\u201c\u201d\u201e\u2018\u2019](?=\S)")
_OF_WINDOWS = lazy_pattern(
    r"\s*(source|\.)\s+(?:\.\\)?([\w.-]+(?:\\[\w.-]+)*\\(?:bin|Scripts)\\[Aa]ctivate)\s*(?:$|&|;)"
)
_ALTERNATIVE = lazy_pattern(
    r"\s*(?!echo\b|printf\b)(?P<first>\S[^#'\"`]*?)\s+(?P<word>or|OR|and|then)\s+"
    r"(?P<second>(?:source\s+\S|(?:python3?|pip3?|conda|bash|sh|git|uv|cd)\s+[\w./-]).*)"
)
_NO_TEST = lazy_pattern(
    r"\s*(?:el)?(?:if|while)\s+(?:!\s+)?(?:(-[a-hk-zGLNOS])\s+[\"$\w./~]"
    r"|(\"?\$\{?\w+\}?\"?)\s+(?:==?|!=|-(?:eq|ne|gt|lt|ge|le))\s)"
)


@rule("RUN241", kind="guide", severity="error", cause="dependency-pin-violated", url=QUOTES)
def command_has_typographic_characters(context: GuideContext) -> Iterator[Problem]:
    """A command has a long dash in place of `--`, or typographic quotes, which no shell reads as such.

    The program gets them as a part of its arguments: it finds no option of that name, and a text with blanks becomes
    several arguments. Not reported within quotes of the shell, where they can be meant.
    """
    for number, text in _program_lines(context):
        code = _QUOTED.sub(lambda found: "_" * len(found[0]), without_comment(text))
        dash, quote = _DASH.search(code), _QUOTE.search(code)
        if dash:
            option = f"{'--' if len(dash[2]) > 1 else '-'}{dash[2]}"
            message = f"`{dash[0]}` begins with a dash of text ({_code_point(dash[1])}): the program gets no {option}"
            yield _problem(context, number, message, f"Write {option}.")
        elif quote:
            message = (
                f"`{quote[0]}` ({_code_point(quote[0])}) is no quote of a shell: the program gets it as a part of "
                "its arguments, and each blank ends one"
            )
            yield _problem(context, number, message, "Write \" or ' in place of the typographic quotes.")


def _code_point(characters: str) -> str:
    return f"U+{ord(characters.strip('-')[0]):04X}"


@rule("RUN242", kind="guide", severity="error", cause="wrong-python-env", url=ESCAPES)
def activation_has_a_path_of_windows(context: GuideContext) -> Iterator[Problem]:
    r"""`source venv\bin\activate`: a shell removes the backslashes, and reads the file `venvbinactivate`.

    The environment is not active, and the next commands install into another one. cmd.exe has no `source`.
    """
    for number, text in _lines(context):
        if match := _OF_WINDOWS.match(text):
            path = match[2].split("\\")
            message = f"`{match[0].strip(' ;&')}` fails: the shell removes the backslashes and reads {''.join(path)}"
            yield _problem(context, number, message, f"Write {match[1]} {'/'.join(path)}.")


@rule("RUN243", kind="guide", severity="warning", cause="dependency-pin-violated", url=COMMANDS)
def word_of_text_joins_two_commands(context: GuideContext) -> Iterator[Problem]:
    """`venv/Scripts/activate or source venv/bin/activate`: the shell passes the rest of the line as arguments."""
    for number, text in _lines(context):
        match = _ALTERNATIVE.fullmatch(without_comment(text))
        if match and (_START.match(text) or re.match(r"\s*[\w.-]+[/\\]\S+\s", text)):
            first, second = shown_line(match["first"]), shown_line(match["second"])
            message = f"`{match['word']} {second}` becomes arguments of `{first}`: the shell has no such operator"
            yield _problem(context, number, message, "Write one command on each line.", "warning")


@rule("RUN244", kind="guide", severity="error", cause="dependency-pin-violated", url=CONDITIONS)
def condition_has_no_test(context: GuideContext) -> Iterator[Problem]:
    """`if -z "$NAME"; then`: without `[` and `]` the shell starts a command named `-z`, which does not exist."""
    for number, text in _lines(context):
        if match := _NO_TEST.match(text):
            message = (
                f"`{shown_line(text)}` starts a command named `{match[1] or match[2]}`: the brackets are missing"
            )
            yield _problem(context, number, message, "Write [ and ] around the condition, each with a blank.")


@rule("RUN245", kind="guide", severity="error", cause="dependency-pin-violated", url=SUBSTITUTION)
def command_has_a_backtick_of_markdown(context: GuideContext) -> Iterator[Problem]:
    """A block of code has one backtick before or after a command: the shell waits for another, and runs nothing."""
    for block in filter(is_shell_block, context.guide.blocks):
        lines = [line for line in block.lines if line[1].count("`")]
        if len(lines) != 1 or lines[0][1].count("`") != 1 or "powershell" in block.info.lower():
            continue
        number, text = lines[0]
        code = text.strip()
        is_outside = code.startswith("`") or (code.endswith("`") and not code.endswith(" `"))
        if is_outside and _START.match(code.strip("`")) and "`" in _QUOTED.sub("", code):
            message = f"a backtick of line {number} has no end: the shell does not run the command"
            yield _problem(context, number, message, "Remove the backtick.")


def _lines(context: GuideContext) -> Iterator[Line]:
    """The lines of the shell code of a guide that are no comments and no text of a file."""
    for block in filter(is_shell_block, context.guide.blocks):
        yield from _code(block)


def _code(block: Block) -> Iterator[Line]:
    lines = strip_prompts(block.lines, console=False)
    is_text = {*heredoc_positions(lines)}
    code = (line for position, line in enumerate(lines) if position not in is_text)
    yield from (line for line in code if not line[1].lstrip().startswith("#"))


def _program_lines(context: GuideContext) -> Iterator[Line]:
    """The lines that start a program, and those that continue them, without texts of several lines."""
    for block in filter(is_shell_block, context.guide.blocks):
        is_started = False
        for number, text in _code(block):
            has_open_quote = bool(re.search("['\"]", _QUOTED.sub("", text)))
            is_started = (is_started or bool(_START.match(text))) and not has_open_quote
            if is_started:
                yield number, text
            is_started = is_started and bool(_CONTINUES.search(text))


def _problem(context: GuideContext, number: int, message: str, fix: str, status: Status = "error") -> Problem:
    text = context.guide.lines[number - 1].strip()[:120]
    return Problem(status, message, (guide_evidence(context, "command", text, number),), fix, line=number)
