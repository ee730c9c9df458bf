"""Parser for shell text: simple commands with quotes, comments, continuations, heredocs and variables.

Nothing is executed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.manifests.markdown import Line

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_PROMPT = re.compile(r"\s*(?:\([\w.\- ]+\)\s*)?(?:[\w.\-]+@[\w.\-]+[^$#%\s]*\s?)?[$%\u276f\u279c]\s+(.*)", re.DOTALL)
# A comment with one of these words marks the next command as a bad example.
_BAD_EXAMPLE = re.compile(r"(?i)❌|✗|\b(?:wrong|bad|falsch|incorrect|do not run|don't run|do not do|don't do)\b|错误")
_SEPARATORS = ("&&", "||", ";;", ";", "|", "&")
_KEYWORDS = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "(", ")", "fi", "done", "time"}
)
_MAX_WORD_LENGTH = 20_000
_MAX_COMMAND_LENGTH = 100_000


class Command(NamedTuple):
    """A simple command. `words` are unquoted, with known variables expanded."""

    line: int
    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()  # before the command: `MAX_JOBS=4 pip install`
    output: str = ""  # file of `> FILE`
    heredoc: tuple[Line, ...] = ()
    unquoted_bounds: tuple[str, ...] = ()  # words with an unquoted `>` or `<`

    @property
    def name(self) -> str:
        """The name of the program without its directory."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    def __str__(self) -> str:
        """The command as one line."""
        text = " ".join([*(f"{name}={value}" for name, value in self.assignments), *self.words])
        return text if len(text) <= 200 else text[:197] + "..."


def strip_prompts(lines: tuple[Line, ...], *, console: bool) -> tuple[Line, ...]:
    """The commands of a shell session without prompts and output. A script is returned unchanged."""
    matches = [_PROMPT.fullmatch(text) for _, text in lines]
    if not any(matches):
        return () if console and any(text.startswith(">>> ") for _, text in lines) else lines
    commands: list[Line] = []
    continues = False
    for (number, text), match in zip(lines, matches, strict=True):
        if match or continues:
            command = match[1] if match else text.removeprefix("> ")
            commands.append((number, command))
            continues = command.rstrip().endswith("\\")
    return tuple(commands)


def parse_commands(lines: tuple[Line, ...], variables: dict[str, str]) -> list[Command]:
    """The simple commands in order. Assignments of the script are added to `variables`.

    `TORCH=2.8.0` and then `pip install "torch==${TORCH}" && pip check` are two commands.
    """
    commands: list[Command] = []
    index = 0
    bad_example = False
    while index < len(lines):
        number, text = lines[index]
        index += 1
        if text.lstrip().startswith("#"):
            bad_example = bool(_BAD_EXAMPLE.search(text))
            continue
        text, index = _join_continuations(text, lines, index)
        heredoc: list[Line] = []
        marker = _HEREDOC.search(text)
        if marker and "<<<" not in text:
            while index < len(lines) and lines[index][1].strip() != marker[2]:
                heredoc.append(lines[index])
                index += 1
            index += 1
            text = text[: marker.start()] + text[marker.end() :]
        if not bad_example:
            parts = (_build_command(number, part, tuple(heredoc), variables) for part in _split(text, variables))
            commands += [command for command in parts if command]
        bad_example = False
    return commands


def _join_continuations(text: str, lines: tuple[Line, ...], index: int) -> tuple[str, int]:
    """A command with its continuation lines, and the index of the line after them."""
    parts: list[str] = []
    length = 0
    quote, code = _scan_line(text, "")
    while index < len(lines) and length < _MAX_COMMAND_LENGTH:
        stripped = code.rstrip()
        if quote:
            part = text + "\n"
        elif stripped.endswith("\\"):
            part = stripped[:-1] + " "
        elif stripped.endswith(("&&", "||", "|")):
            part = stripped + " "
        else:
            break
        parts.append(part)
        length += len(part)
        text = lines[index][1]
        index += 1
        quote, code = _scan_line(text, quote)
    return "".join([*parts, text]), index


def _scan_line(text: str, quote: str) -> tuple[str, str]:
    """The quotation mark that is open at the end of a line (or ""), and the line without its comment."""
    escaped = False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and (index == 0 or text[index - 1].isspace()):
            return quote, text[:index]
    return quote, text


class _CommandParts:
    """The tokens of one command."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.unquoted_bounds: list[str] = []
        self.output = ""


def _build_command(
    line: int, parts: _CommandParts, heredoc: tuple[Line, ...], variables: dict[str, str]
) -> Command | None:
    words = parts.words
    while words and words[0] in _KEYWORDS:
        words = words[1:]
    assignments: list[tuple[str, str]] = []
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        assignments.append((match[1], match[2]))
        words = words[1:]
    if not words:
        variables.update(assignments)
    elif words[0] in ("export", "declare", "setenv", "ENV", "ARG"):
        matches = (_ASSIGNMENT.fullmatch(word) for word in words[1:])
        variables.update((match[1], match[2]) for match in matches if match)
    if not words and not assignments:
        return None
    return Command(
        line, tuple(words) or ("export",), tuple(assignments), parts.output, heredoc, tuple(parts.unquoted_bounds)
    )


def expand_variables(text: str, variables: dict[str, str]) -> str:
    """Expand known variables in `torch==${TORCH}`. Unknown variables are left as they are."""

    def value(match: re.Match[str]) -> str:
        default = match[2] if match[2] is not None else match[0]
        return variables.get(match[1] or match[3], default)

    return _VARIABLE.sub(value, text)[:_MAX_WORD_LENGTH] if "$" in text else text


def _split(text: str, variables: dict[str, str]) -> list[_CommandParts]:
    """The tokens by command, and the files of output redirections."""
    commands = [_CommandParts()]
    redirection = ""
    for kind, word in _tokenize(text, variables):
        command = commands[-1]
        if kind == "separator":
            commands.append(_CommandParts())
            redirection = ""
        elif kind == "redirect":
            redirection = word
            if command.words and command.words[-1].isdigit():  # 2> FILE
                command.words.pop()
        elif redirection:
            command.output = word if redirection == ">" else command.output
            redirection = ""
        else:
            command.words.append(word)
            command.unquoted_bounds += [word] if kind == "bound" else []
    return commands


def _tokenize(text: str, variables: dict[str, str]) -> list[tuple[str, str]]:
    """Words, bounds (words with an unquoted `>` or `<`), separators and redirections, in order."""
    tokenizer = _Tokenizer(text, variables)
    while tokenizer.index < len(text):
        tokenizer.step()
    tokenizer.end_word()
    return tokenizer.tokens


class _Tokenizer:
    """Splits a command into tokens."""

    def __init__(self, text: str, variables: dict[str, str]) -> None:
        self.text = text
        self.variables = variables
        self.tokens: list[tuple[str, str]] = []
        self.index = 0
        self.word = ""
        self.in_word = self.is_bound = False

    def step(self) -> None:
        text, index = self.text, self.index
        character = text[index]
        if character in "'\"":
            end = _closing_quote(text, index)
            inner = text[index + 1 : end]
            expanded = inner if character == "'" else expand_variables(inner.replace("\\\n", ""), self.variables)
            self.extend_word(expanded, end + 1)
        elif character == "\\" and index + 1 < len(text):
            self.extend_word(text[index + 1].strip("\n"), index + 2)
        elif text.startswith("$(", index):
            end = _after_parenthesis(text, index + 1)
            self.extend_word(text[index:end], end)
        elif character == "#" and not self.in_word:
            line_end = text.find("\n", index)
            self.index = line_end if line_end >= 0 else len(text)
        else:
            self.step_unquoted(character)

    def extend_word(self, part: str, end: int) -> None:
        self.word, self.index, self.in_word = self.word + part, end, True

    def step_unquoted(self, character: str) -> None:
        token = _separator_or_redirect(self.text, self.index, self.word)
        if not token and not character.isspace():
            self.is_bound = self.is_bound or character in "<>"
            self.extend_word(character, self.index + 1)
            return
        self.end_word()
        self.tokens += [token] if token else [("separator", "\n")] if character == "\n" else []
        self.index += len(token[1]) if token else 1
        if token and token[0] == "redirect" and self.text[self.index : self.index + 1] in (">", "&"):
            self.index += 1  # second character of `>>` or `>&`

    def end_word(self) -> None:
        if self.in_word:
            kind = "bound" if self.is_bound else "word"
            self.tokens.append((kind, expand_variables(self.word, self.variables)))
        self.word, self.in_word, self.is_bound = "", False, False


def _separator_or_redirect(text: str, index: int, word: str) -> tuple[str, str] | None:
    if text[index] in "<>" and not (word and word[-1] in "=~!<>") and not _is_version_bound(text, index, word):
        return "redirect", ">" if text[index] == ">" else "<"
    for separator in _SEPARATORS:
        if text.startswith(separator, index) and not (separator == "&" and word.endswith(">")):
            return "separator", separator
    return None


def _is_version_bound(text: str, index: int, word: str) -> bool:
    """Whether `>` belongs to an unquoted requirement such as `trl>=0.23`. A shell treats it as a redirection."""
    return bool(word) and not word.isdigit() and text[index + 1 : index + 2] in ("=", *"0123456789")


def _closing_quote(text: str, index: int) -> int:
    quote = text[index]
    end = index + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote == '"' else 1
    return min(end, len(text))


def _after_parenthesis(text: str, index: int) -> int:
    depth = 0
    for end in range(index, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return end + 1
    return len(text)
