"""Finds symptoms and signals in a text, in bounded time and memory: of a very large one, at its start and its end.

Every match of a pattern contains one of its literals. The scan collects the words of each block once and searches
only for literals whose words are all present. It then applies the pattern to the few lines around a literal.
"""

from __future__ import annotations

import html
import os
from bisect import bisect_right
from collections.abc import Container, Iterator
from functools import cache, lru_cache
from itertools import accumulate
from typing import BinaryIO

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import without_invisible
from envdoctor.core.record import Record
from envdoctor.core.side_lines import without_notes
from envdoctor.explain.searches import WINDOW_LENGTH, WORD, Hit, Search, Searches
from envdoctor.explain.translations import in_english
from envdoctor.knowledge.symptoms import SymptomTable, alternatives, required_literals
from envdoctor.redact.output import without_secrets

BLOCK_BYTES = 1 << 20
# Of a larger text the middle is not read. A log takes about a second for 8 MiB.
START_BYTES, END_BYTES = 64 << 20, 64 << 20
PASTE_BYTES = 128 << 10  # larger texts are not pasted from a narrow terminal
LONG_WORD, LONGEST_PART = 256, 64  # characters; no word of a literal is longer than LONGEST_PART
CONTEXT_LENGTH = 400  # characters before a line that decide whether it has a secret
LINE_LENGTH = 400  # characters of a line in the result
TRIES_PER_BLOCK = 200  # windows per literal and block
EXCERPT_BYTES = 32 << 10  # of the start and of the end, for the facts in the text
WATCHDOG_LINES = 1000  # reports of the NCCL watchdog, of all ranks together
# Prefixes of loggers, launchers and containers, removed before wrapped messages are joined.
PREFIX = lazy_pattern(
    r"(?:[\w.-]{1,40}\s{0,8}\|\s|\[rank\d+\]:\s?|\[\w{1,20} [\d:T.+-]{8,40}\] "
    r"|\([\w ]{1,30} pid=\d+(?:, ip=[\d.]+)?\)\s?|\d{4}-\d\d-\d\d[T ][\d:.,Z]{8,32}\s"
    r"|(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d [\d:.]{8,15} (?:\[[\w.]+:\d+\]|[\w.]+:\d+\])\s?|E\s{3}|[>│]\s)*"
)
# What web pages and typists do to a message.
ANSI = lazy_pattern(r"\x1b(?:\[[0-9;:?]{0,32}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\))")
ENTITY = lazy_pattern(r"&(?:#\d{1,6}|#x[0-9a-fA-F]{1,5}|[a-z]{2,8});")
SPACES = lazy_pattern(r"[ \t]{2,}")
MARKDOWN_ESCAPE = lazy_pattern(r"\\([_*`<>#\[\]])")
GLUED_SYMBOL = lazy_pattern(r"(?<=undefined symbol:)(?=_)")  # the loader prints a space
TYPOGRAPHY: dict[int, str] = {
    **dict.fromkeys((0x2018, 0x2019, 0x201A, 0x2032), "'"),  # single quotation marks, prime
    **dict.fromkeys((0x201C, 0x201D, 0x201E, 0x2033), '"'),
    **dict.fromkeys((0x00A0, 0x202F), " "),
}
ASCII_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
LENIENT_LITERAL, LENIENT_IDENTIFIER = 10, 16  # characters of several words, of one word
QUOTE_IN_PATTERN = lazy_pattern(  # a quotation mark, or a class of them only, that is not optional already
    r"""(?:\\?['"`](?![^\[\]]*\])|\[(?:\\?['"`])+\])(?![?*{])"""
)
WATCHDOG_LINE = lazy_pattern(r"[^\n]{0,400}(?:WorkNCCL\(|[Ll]ast enqueued|but didn't join collective)[^\n]{0,400}")


class Scan(Record, frozen=True):
    """The symptoms and signals of a text."""

    symptoms: dict[str, tuple[Hit, ...]]  # by id
    signals: dict[str, Hit]
    lines: int
    size: int  # bytes
    excerpt: str  # start and end of the text
    watchdog: tuple[str, ...] = ()  # lines of the NCCL watchdog
    unknown_members: tuple[Hit, ...] = ()  # lines about a name, argument or attribute that a library lacks
    unread: str = ""  # the part of a large text that was not read


def scan(stream: BinaryIO, table: SymptomTable) -> Scan:
    """Read a text, of a very large one the start and the end, and find the symptoms and signals in it."""
    searches = Searches(table)
    excerpt = _Excerpt()
    watchdog: list[str] = []
    first_line, size = 1, 0
    text_parts = _Parts(stream)
    for block in _blocks(text_parts):
        size += len(block)
        excerpt.add(block)
        text = without_invisible(block.decode("utf-8", "replace"))
        if "\x1b" in text:
            text = ANSI.sub("", text)
        text = without_notes(text)
        if ("WorkNCCL(" in text or "ast enqueued" in text) and len(watchdog) < WATCHDOG_LINES:
            watchdog += WATCHDOG_LINE.findall(text)
        literals = searches.index.find(vocabulary(text))
        for search in searches.of(literals):
            if not search.done:
                _search_block(search, literals[search.pattern], text, first_line)
        if size <= PASTE_BYTES:
            _search_pasted(searches, text)
        first_line += text.count("\n")
    return Scan(
        {search.name: tuple(search.hits) for search in searches.of_symptoms() if search.hits},
        {search.name: search.hits[0] for search in searches.of_signals() if search.hits},
        first_line - 1,
        size,
        excerpt.text(),
        tuple(watchdog[:WATCHDOG_LINES]),
        tuple(searches.members().hits),
        text_parts.unread,
    )


class _Parts:
    """Reads the start and the end of a text. Of one without a known size, as a pipe, it reads the start only."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.unread = ""
        self.left = START_BYTES + END_BYTES  # bytes to read
        position = stream.tell() if stream.seekable() else 0
        self.end = stream.seek(0, os.SEEK_END) if stream.seekable() else 0
        self.has_gap = self.end - position > self.left
        if stream.seekable():
            stream.seek(position)

    def read(self) -> bytes:
        """The next block; empty at the end."""
        if self.has_gap and self.left <= END_BYTES:
            self.has_gap = False
            skipped = self.end - END_BYTES - self.stream.tell()
            self.stream.seek(self.end - END_BYTES)
            self.unread = f"{skipped >> 20:,} MiB after the first {START_BYTES >> 20} MiB"
            self.stream.readline(BLOCK_BYTES)  # the rest of a line
        before_gap = self.left - END_BYTES if self.has_gap else self.left
        data = self.stream.read(min(BLOCK_BYTES, before_gap))
        self.left -= len(data)
        if not data and not self.left and self.stream.read(1):  # of a pipe, or a file that grows
            self.unread = self.unread or f"everything after the first {(START_BYTES + END_BYTES) >> 20} MiB"
        return data


def _blocks(parts: _Parts) -> Iterator[bytes]:
    """Blocks that end at the end of a line. Only a line that is longer than a block is cut."""
    rest = b""
    following = parts.read()
    while following:
        data, following = rest + following, parts.read()
        if not following:  # the last line of a text without a final line break belongs to the lines before it
            yield data if data.endswith(b"\n") else data + b"\n"
            return
        cut = data.rfind(b"\n") + 1 or (len(data) if len(data) >= 2 * BLOCK_BYTES else 0)
        rest = data[cut:]
        if cut:
            yield data[:cut]


def vocabulary(text: str) -> str:
    """The distinct words of a text, one per line: a few KiB for any text, and fast to search.

    A literal can start or end within a word of the text, so its words are searched as substrings of the vocabulary.
    """
    words = set(WORD.findall(text))
    for word in [word for word in words if len(word) > LONG_WORD]:  # a line of 1 MB without a space
        words.remove(word)
        words.update(word[start : start + LONG_WORD] for start in range(0, len(word), LONG_WORD - LONGEST_PART))
    return "\n".join(words)


def _search_block(search: Search, literals: list[str], text: str, first_line: int) -> None:
    for literal in literals:
        position, tries = text.find(literal), 0
        while position >= 0 and not search.done and tries < TRIES_PER_BLOCK:
            tries += 1
            start, end = _line_bounds(text, position)
            groups = search.match(_window(text, position, start, end, search.window_length))
            if groups is not None:
                number = first_line + text.count("\n", 0, position)
                shown = _without_secrets(text, start, end)
                if search.ignores(shown, text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : start]):
                    position = text.find(literal, end)
                    continue
                at = max(shown.find(literal), 0)
                search.hits.append(Hit(search.name, number, _shorten(shown, at), groups))
            position = text.find(literal, end)


def _search_pasted(searches: Searches, text: str) -> None:
    """Find what a strict search misses in a pasted text: wrapped messages, the typography of web pages and typists.

    Patterns are searched for in another case and without quotation marks only if the text has no symptom otherwise.
    """
    joined = _Joined([PREFIX.sub("", line, count=1).strip() for line in in_english(plain_text(text)).split("\n")])
    literals = searches.index.find(vocabulary(joined.text))
    for search in searches.of(literals):
        if not search.hits:
            joined.search(search, literals[search.pattern])
    if any(search.hits for search in searches.of_symptoms()):
        return
    lenient = lenient_literals(searches.patterns)
    present = frozenset(literal for literal in lenient if literal in joined.lower)
    named = searches.of(dict.fromkeys(pattern for literal in present for pattern in lenient[literal]))
    symptoms = searches.of_symptoms()
    messages = frozenset(filter(_is_message, present))
    for search in named:
        if search in symptoms:
            joined.search_leniently(search, messages)
    if any(search.hits for search in symptoms):  # then short phrases are messages too
        for search in named:
            joined.search_leniently(search, present)


class _Joined:
    """The lines of a text as one line, so that a message with a line break in it is found."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
        self.text = " ".join(lines)
        self.lower = self.text.translate(ASCII_LOWER)

    def search(self, search: Search, literals: list[str]) -> None:
        for literal in literals:
            self._search(search, literal, self.text, search.pattern)

    def search_leniently(self, search: Search, literals: Container[str]) -> None:
        for literal, pattern in lenient_patterns(search.pattern):
            if literal in literals:
                self._search(search, literal, self.lower, pattern)

    def _search(self, search: Search, literal: str, text: str, pattern: str) -> None:
        position = text.find(literal)
        if position < 0 or search.hits:
            return
        half = search.window_length // 2
        groups = search.match(self.text[max(position - half, 0) : position + half], pattern)
        if groups is not None:
            number = bisect_right(self.starts, position)
            context = "\n".join(self.lines[max(0, number - 4) : number])
            line = _without_secrets(context, len(context) - len(self.lines[number - 1]), len(context))
            if search.ignores(line, self.lines[number - 2] if number > 1 else ""):
                return
            search.hits.append(Hit(search.name, number, _shorten(line, 0), groups))


def plain_text(text: str) -> str:
    """The text as a terminal shows it, with the same lines: without entities, escapes and spaces of a web page."""
    if "&" in text:
        text = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    plain = SPACES.sub(" ", MARKDOWN_ESCAPE.sub(r"\1", without_invisible(text).translate(TYPOGRAPHY)))
    return GLUED_SYMBOL.sub(" ", plain)


@cache
def lenient_patterns(pattern: str) -> tuple[tuple[str, str], ...]:
    """Each alternative of a pattern for any case and missing quotation marks, after its literal in lower case.

    Where a mark is missing a word ends: `'type' object` does not match `'NoneType' object`.
    """
    optional_quotes = alternatives(QUOTE_IN_PATTERN.sub(r"(?:\g<0>|(?<!\\w)|(?!\\w))", pattern))
    literals = ("".join(required_literals(alternative)).translate(ASCII_LOWER) for alternative in optional_quotes)
    return tuple(zip(literals, (f"(?i){alternative}" for alternative in optional_quotes), strict=True))


@lru_cache(maxsize=8)
def lenient_literals(patterns: tuple[str, ...]) -> dict[str, list[str]]:
    """The literals of the lenient patterns, each with the patterns that it is for."""
    found: dict[str, list[str]] = {}
    for pattern in dict.fromkeys(patterns):
        for literal, _ in lenient_patterns(pattern):
            found.setdefault(literal, []).append(pattern)
    return found


def _is_message(literal: str) -> bool:
    """Whether it is no phrase of prose such as "killed"."""
    return len(literal) >= (LENIENT_LITERAL if " " in literal.strip() else LENIENT_IDENTIFIER)


def _line_bounds(text: str, position: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return start, end if end >= 0 else len(text)


def _window(text: str, position: int, start: int, end: int, length: int = WINDOW_LENGTH) -> str:
    """The line with the literal, the line before it and the two after it, joined and without prefixes."""
    start = text.rfind("\n", 0, max(start - 1, 0)) + 1
    for _ in range(2):
        following = text.find("\n", end + 1)
        end = following if following >= 0 else len(text)
    start, end = max(start, position - length // 2), min(end, position + length // 2)
    return " ".join(PREFIX.sub("", line, count=1).strip() for line in text[start:end].split("\n"))


def _without_secrets(text: str, start: int, end: int) -> str:
    """A line without secrets, whose names can be on the lines before it: `password: >-`, the start of a key."""
    before = max(0, start - CONTEXT_LENGTH)
    redacted = without_secrets(text[before:end])
    return redacted.rpartition("\n")[2] if redacted != text[before:end] else text[start:end]


def _shorten(line: str, position: int) -> str:
    """The line; of a long one the part around the literal."""
    if len(line) > LINE_LENGTH and position < LINE_LENGTH:
        line = line[:LINE_LENGTH] + "…"
    elif len(line) > LINE_LENGTH:  # the start of the line names its origin
        line = f"{line[: LINE_LENGTH // 3]} … {line[position - LINE_LENGTH // 6 : position + LINE_LENGTH // 2]}…"
    return line.strip()


class _Excerpt:
    """The first and the last part of a stream."""

    def __init__(self) -> None:
        self.head = b""
        self.tail = b""

    def add(self, block: bytes) -> None:
        missing = EXCERPT_BYTES - len(self.head)
        self.head += block[:missing]
        self.tail = (self.tail + block[missing:])[-EXCERPT_BYTES:]

    def text(self) -> str:
        return ANSI.sub("", without_invisible((self.head + self.tail).decode("utf-8", "replace")))
