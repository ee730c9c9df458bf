"""Finding symptoms and signals in a log of any size, in bounded memory.

Each pattern has literal texts of which one must be in whatever it matches. The words of a block are collected once,
and only literals whose words are all among them are searched for; the pattern itself is tried on the few lines around
one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import BinaryIO

from envdoctor.core.records import Record
from envdoctor.knowledge.symptoms import Signal, Symptom, SymptomTable, required_literals

BLOCK = 1 << 20  # bytes read at a time
PASTE = 128 << 10  # bytes up to which a text may have been pasted from a narrow terminal
WINDOW = 4096  # characters around a literal that a pattern may see
LINE = 400  # characters of a line that is kept
HITS_KEPT = 3  # a symptom seen so often is known; it is not looked for any longer
TRIES_PER_BLOCK = 200  # windows tried for one literal in one block
EXCERPT = 32 << 10  # bytes kept of the start and of the end, for the facts that the log tells

WORD = re.compile(r"[A-Za-z_]{3,}")
# What loggers, launchers and containers put before a line. Wrapped messages are joined without it.
PREFIX = re.compile(
    r"(?:\x1b\[[0-9;]*m|[\w.-]{1,40}\s{0,8}\|\s|\[rank\d+\]:\s?|\[\w{1,20} [\d:T.+-]{8,40}\] "
    r"|\([\w ]{1,30} pid=\d+(?:, ip=[\d.]+)?\)\s?|\d{4}-\d\d-\d\d[T ][\d:.,Z]{8,32}\s"
    r"|(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d [\d:.]{8,15} (?:\[[\w.]+:\d+\]|[\w.]+:\d+\])\s?|E\s{3}|[>│]\s)*"
)

# What the trainer itself says of a run that goes on ("note: flash-attn is not installed, SDPA stands in for it"), and
# pip and compilers beside the error.
NOTE = re.compile(r"^note: [^\n]*", re.MULTILINE)


class Hit(Record, frozen=True):
    """A pattern that was found: the line with its literal, and the named groups."""

    name: str
    line: int  # from 1
    text: str
    groups: dict[str, str]


class Scan(Record, frozen=True):
    """All that was found in a text."""

    symptoms: dict[str, tuple[Hit, ...]]  # by id
    signals: dict[str, Hit]
    lines: int
    size: int  # bytes
    excerpt: str  # start and end of the text


class _Search:
    """One pattern, its literals, each with its words, and what was found so far."""

    def __init__(self, name: str, pattern: str, wanted: int) -> None:
        self.name = name
        self.pattern = pattern
        self.literals = [(literal, WORD.findall(literal)) for literal in required_literals(pattern)]
        self.wanted = wanted
        self.hits: list[Hit] = []

    @property
    def done(self) -> bool:
        return len(self.hits) >= self.wanted


def scan(stream: BinaryIO, table: SymptomTable) -> Scan:
    """Read a text to its end and say what is in it."""
    searches = _searches(table)
    open_searches = [*searches[0].values(), *searches[1].values()]
    excerpt = _Excerpt()
    first_line, size = 1, 0
    for block in _blocks(stream):
        size += len(block)
        excerpt.add(block)
        text = block.decode("utf-8", "replace")
        if "note: " in text:
            text = NOTE.sub("", text)
        words = vocabulary(text)
        for search in open_searches:
            _search_block(search, text, words, first_line)
        if size <= PASTE:
            _search_unwrapped([search for search in open_searches if not search.hits], text, words)
        open_searches = [search for search in open_searches if not search.done]
        first_line += text.count("\n")
    return Scan(
        {name: tuple(s.hits) for name, s in searches[0].items() if s.hits},
        {name: s.hits[0] for name, s in searches[1].items() if s.hits},
        first_line - 1,
        size,
        excerpt.text(),
    )


def _searches(table: SymptomTable) -> tuple[dict[str, _Search], dict[str, _Search]]:
    def of(rows: Iterable[tuple[str, Symptom | Signal]], wanted: int) -> dict[str, _Search]:
        return {name: _Search(name, row.pattern, wanted) for name, row in rows}

    return of(((s.id, s) for s in table.symptoms), HITS_KEPT), of(table.signals.items(), 1)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks that end at a line's end, so that no line is cut; only a line longer than a block is."""
    rest = b""
    while data := stream.read(BLOCK):
        data = rest + data
        cut = data.rfind(b"\n") + 1 or (len(data) if len(data) >= 2 * BLOCK else 0)
        rest = data[cut:]
        if cut:
            yield data[:cut]
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def vocabulary(text: str) -> str:
    """The different words of a text, one a line: some KiB, whatever the text's size, and fast to search.

    At its ends a literal may hold a part of a word of the text: words are looked up as parts of the vocabulary.
    """
    return "\n".join(set(WORD.findall(text)))


def _search_block(search: _Search, text: str, words: str, first_line: int) -> None:
    for literal, parts in search.literals:
        if not all(part in words for part in parts):
            continue
        position, tries = text.find(literal), 0
        while position >= 0 and not search.done and tries < TRIES_PER_BLOCK:
            tries += 1
            start, end = _line_bounds(text, position)
            found = re.search(search.pattern, _window(text, position, start, end))
            if found:
                number = first_line + text.count("\n", 0, position)
                groups = {name: value for name, value in found.groupdict().items() if value}
                search.hits.append(Hit(search.name, number, _shown(text[start:end], position - start), groups))
            position = text.find(literal, end)


def _search_unwrapped(searches: list[_Search], text: str, words: str) -> None:
    """Find messages that a narrow terminal or a box broke inside a literal; only in short texts, as pastes are."""
    lines = [PREFIX.sub("", line, count=1).strip() for line in text.split("\n")]
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    joined = " ".join(lines)
    for search in searches:
        for literal, parts in search.literals:
            position = joined.find(literal) if all(part in words for part in parts) else -1
            if position < 0 or search.hits:
                continue
            found = re.search(search.pattern, joined[max(position - WINDOW // 2, 0) : position + WINDOW // 2])
            if found:
                number = bisect_right(starts, position)
                groups = {name: value for name, value in found.groupdict().items() if value}
                search.hits.append(Hit(search.name, number, _shown(lines[number - 1], 0), groups))


def _line_bounds(text: str, position: int) -> tuple[int, int]:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return start, end if end >= 0 else len(text)


def _window(text: str, position: int, start: int, end: int) -> str:
    """The line with the literal, the one before and the two after, joined, without what loggers put before them."""
    start = text.rfind("\n", 0, max(start - 1, 0)) + 1
    for _ in range(2):
        following = text.find("\n", end + 1)
        end = following if following >= 0 else len(text)
    start, end = max(start, position - WINDOW // 2), min(end, position + WINDOW // 2)
    return " ".join(PREFIX.sub("", line, count=1).strip() for line in text[start:end].split("\n"))


def _shown(line: str, position: int) -> str:
    """The line for people; of a very long one the part around the literal."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line) if "\x1b" in line else line
    if len(line) > LINE and position < LINE:
        line = line[:LINE] + "…"
    elif len(line) > LINE:  # its begin says what it is, the part around the literal why
        line = f"{line[: LINE // 3]} … {line[position - LINE // 6 : position + LINE // 2]}…"
    return line.strip()


class _Excerpt:
    """The first and the last part of a stream."""

    def __init__(self) -> None:
        self.head = b""
        self.tail = b""

    def add(self, block: bytes) -> None:
        room = EXCERPT - len(self.head)
        self.head += block[:room]
        self.tail = (self.tail + block[max(room, 0) :])[-EXCERPT:]

    def text(self) -> str:
        return (self.head + self.tail).decode("utf-8", "replace")
