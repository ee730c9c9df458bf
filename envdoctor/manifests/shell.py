"""Commands of shell text: the simple commands in the order in which a shell runs them. Nothing is executed.

tree-sitter-bash parses the text. Values that the text does not determine stay as they are written (`$HOME`,
`$(date)`), so that a word with a `$` is unknown. Of the branches of `if`, `case` and `||` one is read at a time;
`ShellState.choice` selects it.
"""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.missing_backslashes import missing_backslashes, without_comment
from envdoctor.manifests.shell_records import BOUND_CHARACTERS, Command, ShellState, ShellText
from envdoctor.manifests.shell_statements import StatementReader, parse_tree

# `$ `, `(base) user@host:~$ `, `root@host:/work# `, `[user@login01 ~]$ `, `PS C:\> `, also after a line number.
_PROMPT = lazy_pattern(
    r"\s*(?:\d{1,4}[.:|)]?\s+)?(?:\([\w.\- ]+\)\s*)?"
    r"(?:\[[\w.\-]{1,64}@[^\]\n]{1,200}\][$#%]|[\w.\-]{1,64}@[^$#%\s]{1,300}\s?[$#%\u276f\u279c]"
    r"|[\w.\-]{1,64}@[\w.\-]{1,64} [~/][^>\s]{0,200}>|\u279c +\S+ (?:git:\(\S+\) )?(?:\u2717 )?"
    r"|In \[\d*\]:(?= [!%]pip)|(?:PS\s+)?[A-Za-z]:\\[^>\n]{0,200}>|[$%\u276f\u279c])\s*(?<=\s)[!%]?(.*)",
    re.DOTALL,
)
_SCRIPT_OF_ROOT = lazy_pattern(r"# (?:\./|(?:bash|sh) (?:[\w-]+/)*[\w-]+\.sh\b)\S*")
_LINE_NUMBER = lazy_pattern(r"\A\s*(\d{1,4})[.:|)]?\s+(?=\S)")
_INSTALL_COMMAND = lazy_pattern(
    r"(?:sudo\s+)?(?:(?:uv\s+)?pip3?|python3?\s+-m\s+pip|conda|mamba)\s+(?:install|uninstall|create|activate)\s"
)
# `trl>=0.23` without quotes is a requirement in a guide, and a redirection for the shell. Placeholders such as
# `<your token>` and `<'' or a text>` are no redirection either. Their characters are replaced, so that the grammar
# reads them as a word.
_BOUND = lazy_pattern(r"[<>](?=[=\d])")
_WORD_BEFORE = lazy_pattern(r"[^\s'\"|&;()<>]+$")
_PLACEHOLDER = lazy_pattern(r"""(?<![<\w])<((?:[A-Za-z][\w./:-]*|''|"")(?: (?:[\w./:,-]|\b'\b)+){0,15})>(?![>&])""")
# The grammar ends a word at the second variable of `a-$X-$X-b` and `$X/$Y/b`, unless its name is in braces.
_LATER_NAME = lazy_pattern(r"(?<=[\w.}/:,@+-])\$([A-Za-z_]\w*|\d)(?=[-/.:,@+])")
_CUT_ADDRESS = lazy_pattern(r"^[^#]*(?<![^\s\"=@+])(?:git\+)?https?://[^\s'\"#]*/\\$")
# An editor made a link of the address of a command: `git clone [https://a.org/b](https://a.org/b)`.
_LINKED_ADDRESS = lazy_pattern(r"\[(https?://[^\]\s]{1,300})\]\((https?://[^)\s]{1,300})\)")
_MAX_TEXT_LENGTH = 400_000


def parse_commands(lines: tuple[Line, ...], state: ShellState) -> list[Command]:
    """The simple commands in order. Assignments and functions of the text are added to `state`.

    `TORCH=2.8.0` and then `pip install "torch==${TORCH}" && pip check` are two commands.
    """
    if not lines:
        return []
    lines = _continued(lines)
    rows = [(number, row) for number, text in lines for row in text[:_MAX_TEXT_LENGTH].split("\n")]
    joined = _with_joined_addresses([re.sub(r"\\[ \t\r]+$", r"\\", row.rstrip("\r")) for _, row in rows])
    source = "\n".join(joined)[:_MAX_TEXT_LENGTH]
    source = _LINKED_ADDRESS.sub(r"\2", source)
    source = _LATER_NAME.sub(r"${\1}", source)
    source = _BOUND.sub(_replace_bound, source)
    source = _PLACEHOLDER.sub(lambda match: match[0].translate(BOUND_CHARACTERS), source)
    text = ShellText(source.encode("utf-8", "replace"), tuple(number for number, _ in rows))
    tree = parse_tree(text.source)
    if tree is None:
        state.unread[rows[0][0]] = "the grammar takes too long for this shell text"
        return []
    reader = StatementReader(text, state)
    reader.read(tree)
    return reader.commands


def _continued(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines with the backslashes that a command of several lines lacks: they are read as they are meant."""
    missing = {position for positions in missing_backslashes(lines) for position in positions}
    return tuple(
        (number, f"{without_comment(text)} \\" if position in missing else text)
        for position, (number, text) in enumerate(lines)
    )


def _with_joined_addresses(rows: list[str]) -> list[str]:
    """The rows with each address in one: the shell joins `https://host/v1/\\` with a next row that is not indented.

    The grammar reads two words. The number of rows is as before.
    """
    for index in range(len(rows) - 1):
        if _CUT_ADDRESS.search(rows[index]) and re.match(r"[\w.]", rows[index + 1]):
            rows[index] = f"{rows[index][:-1]}{rows[index + 1]}"
            rows[index + 1] = "\\" if rows[index].endswith("\\") else ""
    return rows


def _replace_bound(match: re.Match[str]) -> str:
    """The replacement of a `>` or `<` that follows a word other than a file descriptor."""
    word = _WORD_BEFORE.search(match.string, max(0, match.start() - 100), match.start())
    return match[0] if word is None or word[0].isdigit() else match[0].translate(BOUND_CHARACTERS)


def expand_word(text: str, state: ShellState) -> str:
    """A word without quotes, such as the image in `FROM ${IMAGE}`, with known variables expanded."""
    if "$" not in text:
        return text
    command = next(iter(parse_commands(((0, f": {text}"),), state)), None)
    return " ".join(command.words[1:]) if command else text


def without_prompt(line: str) -> str:
    """A line of a text without the prompt of a shell, or the line number of a web page."""
    if match := _PROMPT.fullmatch(line):
        return match[1]
    return _LINE_NUMBER.sub("", line, count=1)


def strip_prompts(lines: tuple[Line, ...], *, console: bool) -> tuple[Line, ...]:
    """The commands of a shell session without prompts and output. A script is returned unchanged.

    `> ` is a prompt where each line has it, and `# ` where each line starts a script: `# ./train.sh`. An install
    command without a prompt is output in a console block only. So is an indented prompt after one that is not: a
    program printed the command.
    """
    lines = _strip_line_numbers(lines)
    matches = [_PROMPT.fullmatch(text) for _, text in lines]
    if not any(matches):
        if all(text.startswith(("> ", "#")) or not text.strip() for _, text in lines):
            is_of_root = all(_SCRIPT_OF_ROOT.match(text) or not text.strip() for _, text in lines)
            return tuple((number, text.removeprefix("# " if is_of_root else "> ")) for number, text in lines)
        return () if console and any(text.startswith(">>> ") for _, text in lines) else lines
    if console and any(match and not text[:1].isspace() for match, (_, text) in zip(matches, lines, strict=True)):
        matches = [None if text[:1].isspace() else match for match, (_, text) in zip(matches, lines, strict=True)]
    commands: list[Line] = []
    continues = False
    for (number, text), match in zip(lines, matches, strict=True):
        if match or continues or (not console and _INSTALL_COMMAND.match(text)):
            command = match[1] if match else text.removeprefix("> ")
            commands.append((number, command))
            continues = command.rstrip().endswith("\\")
    return tuple(commands)


def _strip_line_numbers(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines without the numbers that a web page shows next to them: all lines have one, in sequence."""
    found = [(int(match[1]) if (match := _LINE_NUMBER.match(text)) else -1) for _, text in lines if text.strip()]
    if len(found) < 2 or found[0] not in (0, 1) or found != list(range(found[0], found[0] + len(found))):
        return lines
    return tuple((number, _LINE_NUMBER.sub("", text, count=1)) for number, text in lines)
