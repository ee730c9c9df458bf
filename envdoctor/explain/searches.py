"""The searches for the patterns of symptoms and signals, and what they have found so far."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.explain.literal_index import literal_index
from envdoctor.knowledge.symptoms import SymptomTable

WINDOW_LENGTH = 4096  # characters around a literal that a pattern is applied to
# A text that was made for it lets a pattern backtrack in each window: after SLOW_SECONDS the windows of that pattern
# are small, and after MAX_SECONDS its search ends. The other patterns are not limited.
SLOW_SECONDS, SLOW_WINDOW_LENGTH, MAX_SECONDS = 0.2, 512, 1.0
HITS_PER_SYMPTOM = 3  # the search for a symptom ends after them
WORD = lazy_pattern(r"[A-Za-z_]{3,}")
UNKNOWN_MEMBER = (
    r"(?:(?P<caller>\w+)\((?:[^()\n]{0,120}\)+)? TypeError: (?:__init__\(\) )?)?"
    r"(?:got an unexpected|Unexpected) keyword argument '\w+'|' object has no attribute '\w+'"
    r"|\.__init__\(\) missing \d+ required positional arguments?: '|: error: unrecognized arguments: --"
    r"|annot import name '\w+' from|No module named '\w+\.[\w.]+'|Can't get attribute '\w+' on <module '"
    r"|type object '\w+' has no attribute '\w+'|module '[\w.]+' has no attribute '\w+'"
)
# The names of an import are no messages: `from huggingface_hub.errors import LocalEntryNotFoundError`.
IMPORT = lazy_pattern(r"\s*(?:from [\w.]+ import |import [\w.]+(?: as \w+)?\s*$)|.{0,80}annot import name '")
# A line of source code that is a string literal: a part of a message that a program may print.
LITERAL_LINE = lazy_pattern(r"""\s*(?:\d{1,5}\s+)?(?P<prefix>[fFrR]{0,2})(?P<quote>["']).*(?P=quote)\s*[,)]*\s*""")
ADVICE = lazy_pattern(r"\s*If you (?:get|see) .{0,120}\bmight be the cause\b")  # of a warning of bitsandbytes


class Hit(Record, frozen=True):
    """A match of a pattern: the line with its literal, and the named groups."""

    name: str
    line: int  # from 1
    text: str
    groups: dict[str, str]


class Search:
    """The search for one pattern and its hits so far."""

    __slots__ = ("hits", "max_hits", "name", "pattern", "reads_imports", "seconds")

    def __init__(self, name: str, pattern: str, max_hits: int, *, reads_imports: bool = False) -> None:
        self.name = name
        self.pattern = pattern
        self.max_hits = max_hits
        self.reads_imports = reads_imports
        self.hits: list[Hit] = []
        self.seconds = 0.0  # of this process, in its pattern

    @property
    def done(self) -> bool:
        """Whether it has all hits, or took too long."""
        return len(self.hits) >= self.max_hits or self.seconds > MAX_SECONDS

    @property
    def window_length(self) -> int:
        """The characters to apply the pattern to; fewer for a text in which the pattern backtracks."""
        return WINDOW_LENGTH if self.seconds < SLOW_SECONDS else SLOW_WINDOW_LENGTH

    def ignores(self, line: str, previous: str) -> bool:
        """Whether the line is advice or code: a string literal, or an import and the pattern is not about those."""
        reads_imports = self.reads_imports or "import" in self.pattern
        return bool(_is_literal(line, previous) or ADVICE.match(line) or (not reads_imports and IMPORT.match(line)))

    def match(self, text: str, pattern: str = "") -> dict[str, str] | None:
        """The named groups of a match of the pattern, or of a part of it, in the text; None without a match."""
        started = time.process_time()
        found = _compiled(pattern or self.pattern).search(text)
        self.seconds += time.process_time() - started
        return {name: value for name, value in found.groupdict().items() if value} if found else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Searches:
    """The searches for the patterns of a table and for unknown members.

    One is made when a literal of its pattern is in the text: a table has a thousand patterns, a text literals of 30.
    """

    def __init__(self, table: SymptomTable) -> None:
        self._symptoms, self._signals = table.symptoms, list(table.signals.items())
        patterns = [*[each.pattern for each in self._symptoms], *[signal.pattern for _, signal in self._signals]]
        self.patterns = (*patterns, UNKNOWN_MEMBER)
        self.index = literal_index(self.patterns, WORD)
        self._made: dict[int, Search] = {}  # by place in `patterns`

    def of(self, patterns: Iterable[str]) -> list[Search]:
        """The searches for some patterns; several rows can have the same one."""
        return [self._at(place) for pattern in patterns for place in self.index.places[pattern]]

    def of_symptoms(self) -> list[Search]:
        """Those for symptoms, in the order of the table."""
        return [search for place, search in sorted(self._made.items()) if place < len(self._symptoms)]

    def of_signals(self) -> list[Search]:
        """Those for signals, in the order of the table."""
        return [search for place, search in sorted(self._made.items()) if self._is_signal(place)]

    def members(self) -> Search:
        """The search for names, arguments and attributes that a library lacks."""
        return self._at(len(self.patterns) - 1)

    def _is_signal(self, place: int) -> bool:
        return len(self._symptoms) <= place < len(self.patterns) - 1

    def _at(self, place: int) -> Search:
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

    def _make(self, place: int) -> Search:
        if place < len(self._symptoms):
            symptom = self._symptoms[place]
            return Search(symptom.id, symptom.pattern, HITS_PER_SYMPTOM)
        if self._is_signal(place):
            name, signal = self._signals[place - len(self._symptoms)]
            return Search(name, signal.pattern, 1, reads_imports=True)
        return Search("unknown-members", UNKNOWN_MEMBER, HITS_PER_SYMPTOM, reads_imports=True)


def _is_literal(line: str, previous: str) -> bool:
    """Whether a line is a string literal of source code: an f-string, an argument or a part of a longer string."""
    literal = LITERAL_LINE.fullmatch(line)
    if literal is None:
        return False
    is_continued = previous.rstrip().endswith("(") or LITERAL_LINE.fullmatch(previous.rstrip()) is not None
    return "f" in literal["prefix"].lower() or is_continued
