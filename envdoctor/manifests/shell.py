"""Shell text as simple commands: quotes, comments, continuations, here-documents and variables. Nothing is ever
run.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.manifests.markdown import Line

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_PROMPT = re.compile(r"\s*(?:\([\w.\- ]+\)\s*)?(?:[\w.\-]+@[\w.\-]+[^$#%\s]*\s?)?[$%\u276f\u279c]\s+(.*)", re.DOTALL)
_WRONG = re.compile(
    r"❌|✗|\b(?:wrong|bad|falsch|incorrect|do not run|don't run|do not do|don't do)\b|错误", re.IGNORECASE
)
_SEPARATORS = ("&&", "||", ";;", ";", "|", "&")
_KEYWORDS = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "(", ")", "fi", "done", "time"}
)
_LONGEST_WORD = 20_000
_LONGEST_COMMAND = 100_000


class Command(NamedTuple):
    """One simple command. `words` are without quotes and with known variables filled in."""

    line: int
    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()  # before the command: `MAX_JOBS=4 pip install`
    output: str = ""  # file of `> FILE`
    document: tuple[Line, ...] = ()  # here-document
    bare_bounds: tuple[str, ...] = ()  # words with a `>` or `<` that no quote protects from the shell

    @property
    def name(self) -> str:
        """The program's name without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    def __str__(self) -> str:
        """The command as one line."""
        text = " ".join([*(f"{name}={value}" for name, value in self.assignments), *self.words])
        return text if len(text) <= 200 else text[:197] + "..."


def without_prompts(lines: tuple[Line, ...], *, console: bool) -> tuple[Line, ...]:
    """Lines of a session without prompts and without output; a script comes back as it is."""
    shown = [_PROMPT.fullmatch(text) for _, text in lines]
    if not any(shown):
        return () if console and any(text.startswith(">>> ") for _, text in lines) else lines
    kept: list[Line] = []
    goes_on = False
    for (number, text), prompt in zip(lines, shown, strict=True):
        if prompt or goes_on:
            command = prompt[1] if prompt else text
            kept.append((number, command.removeprefix("> ") if not prompt else command))
            goes_on = command.rstrip().endswith("\\")
    return tuple(kept)


def parse_commands(lines: tuple[Line, ...], variables: dict[str, str]) -> list[Command]:
    """Simple commands in order; `variables` gains what the script assigns.

    `TORCH=2.8.0` and then `pip install "torch==${TORCH}" && pip check` are two commands.
    """
    found: list[Command] = []
    at = 0
    wrong = False
    while at < len(lines):
        number, text = lines[at]
        at += 1
        if text.lstrip().startswith("#"):
            wrong = bool(_WRONG.search(text))
            continue
        text, at = _whole(text, lines, at)
        document: list[Line] = []
        mark = _HEREDOC.search(text)
        if mark and "<<<" not in text:
            while at < len(lines) and lines[at][1].strip() != mark[2]:
                document.append(lines[at])
                at += 1
            at += 1
            text = text[: mark.start()] + text[mark.end() :]
        if not wrong:
            found += _simple(number, text, tuple(document), variables)
        wrong = False
    return found


def _whole(text: str, lines: tuple[Line, ...], at: int) -> tuple[str, int]:
    """A command with the lines that continue it, and where the next one begins."""
    parts: list[str] = []
    length = 0
    quote, code = _scan(text, "")
    while at < len(lines) and length < _LONGEST_COMMAND:
        bare = code.rstrip()
        if quote:
            piece = text + "\n"
        elif bare.endswith("\\"):
            piece = bare[:-1] + " "
        elif bare.endswith(("&&", "||", "|")):
            piece = bare + " "
        else:
            break
        parts.append(piece)
        length += len(piece)
        text = lines[at][1]
        at += 1
        quote, code = _scan(text, quote)
    return "".join([*parts, text]), at


def _scan(text: str, quote: str) -> tuple[str, str]:
    """The quotation mark that is open at the end of a line ("" for none), and the line without its comment."""
    escaped = False
    for at, letter in enumerate(text):
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (at == 0 or text[at - 1].isspace()):
            return quote, text[:at]
    return quote, text


def _simple(line: int, text: str, document: tuple[Line, ...], variables: dict[str, str]) -> list[Command]:
    found: list[Command] = []
    for part in _split(text, variables):
        command = _command(line, part, document, variables)
        if command:
            found.append(command)
    return found


class _Part:
    """Words of one command while they are gathered."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.bare: list[str] = []
        self.output = ""


def _command(line: int, part: _Part, document: tuple[Line, ...], variables: dict[str, str]) -> Command | None:
    words = part.words
    while words and words[0] in _KEYWORDS:
        words = words[1:]
    assigned: list[tuple[str, str]] = []
    while words and (found := _ASSIGNMENT.fullmatch(words[0])):
        assigned.append((found[1], found[2]))
        words = words[1:]
    if not words:
        variables.update(assigned)
    elif words[0] in ("export", "declare", "setenv", "ENV", "ARG"):
        variables.update((each[1], each[2]) for word in words[1:] if (each := _ASSIGNMENT.fullmatch(word)))
    if not words and not assigned:
        return None
    return Command(line, tuple(words) or ("export",), tuple(assigned), part.output, document, tuple(part.bare))


def expanded(text: str, variables: dict[str, str]) -> str:
    """`torch==${TORCH}` with what is known of the variables; what is not stays as it is written."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        return variables.get(name, found[2] if found[2] is not None else found[0])

    return _VARIABLE.sub(value, text)[:_LONGEST_WORD] if "$" in text else text


def _split(text: str, variables: dict[str, str]) -> list[_Part]:
    """Words by command, and the file that its output goes to."""
    parts = [_Part()]
    redirected = ""
    for kind, word in _tokens(text, variables):
        part = parts[-1]
        if kind == "separator":
            parts.append(_Part())
            redirected = ""
        elif kind == "redirect":
            redirected = word
            if part.words and part.words[-1].isdigit():  # 2> FILE
                part.words.pop()
        elif redirected:
            part.output = word if redirected == ">" else part.output
            redirected = ""
        else:
            part.words.append(word)
            part.bare += [word] if kind == "bound" else []
    return parts


def _tokens(text: str, variables: dict[str, str]) -> list[tuple[str, str]]:
    """Words, bounds (words with a bare `>` or `<`), separators and redirections, in order."""
    reader = _Words(text, variables)
    while reader.at < len(text):
        reader.step()
    reader.end_word()
    return reader.found


class _Words:
    """Walks through a command letter by letter."""

    def __init__(self, text: str, variables: dict[str, str]) -> None:
        self.text = text
        self.variables = variables
        self.found: list[tuple[str, str]] = []
        self.at = 0
        self.word = ""
        self.started = self.bound = False

    def step(self) -> None:
        text, at = self.text, self.at
        letter = text[at]
        if letter in "'\"":
            end = _closing(text, at)
            inner = text[at + 1 : end]
            self.add(inner if letter == "'" else expanded(inner.replace("\\\n", ""), self.variables), end + 1)
        elif letter == "\\" and at + 1 < len(text):
            self.add(text[at + 1].strip("\n"), at + 2)
        elif text.startswith("$(", at):
            end = _parenthesis(text, at + 1)
            self.add(text[at:end], end)
        elif letter == "#" and not self.started:
            line_end = text.find("\n", at)
            self.at = line_end if line_end >= 0 else len(text)
        else:
            self.plain(letter)

    def add(self, part: str, end: int) -> None:
        self.word, self.at, self.started = self.word + part, end, True

    def plain(self, letter: str) -> None:
        ends = _separator(self.text, self.at, self.word)
        if not ends and not letter.isspace():
            self.bound = self.bound or letter in "<>"
            self.add(letter, self.at + 1)
            return
        self.end_word()
        self.found += [ends] if ends else [("separator", "\n")] if letter == "\n" else []
        self.at += len(ends[1]) if ends else 1
        if ends and ends[0] == "redirect":
            self.at += _extra(self.text, self.at)

    def end_word(self) -> None:
        if self.started:
            self.found.append(("bound" if self.bound else "word", expanded(self.word, self.variables)))
        self.word, self.started, self.bound = "", False, False


def _separator(text: str, at: int, word: str) -> tuple[str, str] | None:
    if text[at] in "<>" and not (word and word[-1] in "=~!<>") and not _is_bound(text, at, word):
        return "redirect", ">" if text[at] == ">" else "<"
    for mark in _SEPARATORS:
        if text.startswith(mark, at) and not (mark == "&" and word.endswith(">")):
            return "separator", mark
    return None


def _extra(text: str, at: int) -> int:
    """Letters of `>>`, `>&` behind the first one."""
    return 1 if text[at : at + 1] in (">", "&") else 0


def _is_bound(text: str, at: int, word: str) -> bool:
    """Whether `>` stands in an unquoted requirement, `trl>=0.23`; a shell redirects there, and writers mean the
    bound.
    """
    return bool(word) and not word.isdigit() and text[at + 1 : at + 2] in ("=", *"0123456789")


def _closing(text: str, at: int) -> int:
    quote = text[at]
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote == '"' else 1
    return min(end, len(text))


def _parenthesis(text: str, at: int) -> int:
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return end + 1
    return len(text)
