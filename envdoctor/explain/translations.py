"""Replaces messages of the C library and the shell in other languages by the English ones, which patterns contain."""

from __future__ import annotations

from functools import cache

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import load_table


class Translations(Record, frozen=True):
    """knowledge/translations.toml: the translations of each English message."""

    source: str
    date: str
    messages: dict[str, tuple[str, ...]]


@cache
def _english_by_translation() -> tuple[tuple[str, str], ...]:
    """Translations with their English messages, the longest first: one can contain another."""
    table = load_table("translations.toml", Translations).messages
    pairs = [(translation, english) for english, translations in table.items() for translation in translations]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def in_english(text: str) -> str:
    """The text with English messages of the system."""
    for translation, english in _english_by_translation():
        if translation in text:
            text = text.replace(translation, english)
    return text
