"""The literals of many patterns, so that a text is searched once for the words of all of them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from envdoctor.knowledge.symptoms import required_literals


class _Literal(NamedTuple):
    """A literal of a pattern, with its place among all literals and its words."""

    place: int
    pattern: str
    text: str
    words: tuple[str, ...]


class LiteralIndex:
    """The patterns by the words of their literals."""

    def __init__(self, patterns: tuple[str, ...], word: re.Pattern[str]) -> None:
        self._by_word: dict[str, list[_Literal]] = {}  # by the longest word of each literal
        self._without_words: list[_Literal] = []
        self.places: dict[str, list[int]] = {}  # of each pattern among all
        for place, pattern in enumerate(patterns):
            self.places.setdefault(pattern, []).append(place)
        literals = [(pattern, text) for pattern in dict.fromkeys(patterns) for text in required_literals(pattern)]
        for place, (pattern, text) in enumerate(literals):
            literal = _Literal(place, pattern, text, tuple(word.findall(text)))
            rarest = max(literal.words, key=len, default="")
            (self._by_word.setdefault(rarest, []) if rarest else self._without_words).append(literal)

    def find(self, words: str) -> dict[str, list[str]]:
        """The literals of each pattern whose words are all in the vocabulary of a text."""
        present = [each for word, literals in self._by_word.items() if word in words for each in literals]
        found: dict[str, list[str]] = {}
        for each in sorted([*present, *self._without_words]):
            if all(map(words.__contains__, each.words)):
                found.setdefault(each.pattern, []).append(each.text)
        return found


@lru_cache(maxsize=8)
def literal_index(patterns: tuple[str, ...], word: re.Pattern[str]) -> LiteralIndex:
    """The index of some patterns; `word` finds the words of a literal."""
    return LiteralIndex(patterns, word)
