"""Commands to paste: a template with values, each of which stays one word for a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern

CONTROL = lazy_pattern(r"[\x00-\x1f\x7f-\x9f]")
WORD = lazy_pattern(r"(\s*)((?:'[^']*'|\"[^\"]*\"|[^\s'\"])+)")
ASSIGNMENT = lazy_pattern(r"([A-Za-z_]\w*|\{\})=(?!=)(.*)", re.DOTALL)
NAME = lazy_pattern(r"[A-Za-z_]\w*")
SYNTAX = lazy_pattern(r"[$`*?;|&<>()~#]")  # of a shell, outside of single quotation marks
PLAIN = lazy_pattern(r"[\w.,+:=/@%-]*")
SINGLE_QUOTED = lazy_pattern(r"'[^']*'")
QUOTED = lazy_pattern(r"'[^']*'|\"[^\"]*\"")
PLACEHOLDER = "{}"


def shell_command(template: str, *values: object) -> str:
    """A command with values in place of each `{}`: no value can end its word or add another one.

    shell_command("uv pip install torch=={} --python {}", "2.8.0", "/my venv/bin/python")

    A word with a value is quoted as a whole, in an assignment the value. A sequence in place of a word gives several
    words, or none. Words without a value are kept, with the shell syntax that they have; a value next to such syntax
    may have no special characters. Raises ValueError otherwise.
    """
    left = iter(values)
    filled = WORD.sub(lambda found: _filled_word(found[1], found[2], left), template)
    if next(left, None) is not None:
        raise ValueError(f"more values than places: {template}")
    return filled


def _filled_word(space: str, word: str, values: Iterator[object]) -> str:
    """A word after its space; nothing in place of an empty sequence."""
    if PLACEHOLDER not in word:
        return space + word
    if word == PLACEHOLDER:
        value = next(values)
        words = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return space + " ".join(map(quote, words)) if words else ""
    texts = [_text(next(values), word) for _ in range(word.count(PLACEHOLDER))]
    if SYNTAX.search(SINGLE_QUOTED.sub("", word)):
        has_quotes = QUOTED.search(word)
        return space + _fill(word, [_require(PLAIN, text, word) if has_quotes else quote(text) for text in texts])
    (plain,) = shlex.split(word)
    match = ASSIGNMENT.fullmatch(plain)
    if match is None:
        return space + quote(_fill(plain, texts))
    name = _require(NAME, texts.pop(0), word) if match[1] == PLACEHOLDER else match[1]
    return f"{space}{name}={quote(_fill(match[2], texts))}"


def _text(value: object, word: str) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        raise TypeError(f"a sequence of words inside of the word {word}")
    return str(value)


def _require(pattern: re.Pattern[str], text: str, word: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"a value with special characters in {word}: {text[:200]!a}")
    return text


def _fill(text: str, values: Sequence[str]) -> str:
    parts = text.split(PLACEHOLDER)
    return "".join(part for pair in zip(parts, [*values, ""], strict=True) for part in pair)


def quote(word: object) -> str:
    """One word. Control characters, which no word of ours has, are shown as `?`."""
    return shlex.quote(CONTROL.sub("?", str(word)))
