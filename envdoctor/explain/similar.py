"""Finds known errors that are similar to a short text: what people type from memory, or a message that was cut.

Words are weighted by how few of the known messages contain them (tf-idf, cosine). Only for a text in which no pattern
matches: the result is a suggestion with a measured percentage below that of a text that decides its cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from functools import cache

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.symptoms import Symptom, symptom_table
from envdoctor.knowledge.tables import load_table

LONGEST_TEXT = 300  # bytes; in a longer text a few common words are no evidence
FEWEST_WORDS = 2  # "nccl" or "libcuda" alone describes no failure
LEAST_SIMILARITY = 0.5  # of the words of the text and of the known message
LEAST_OF_MESSAGE = 0.65  # for the message of an exception, whose wording is exact and in no pattern
LEAST_SHARE = 0.5  # of the words of the text, by weight, that are in the known message
MOST_CAUSES = 3
EXCEPTION = lazy_pattern(r"\w(?:Error|Exception): |: error: argument ")  # the latter of argparse
QUOTED = lazy_pattern(r"'([\w.]+)'")
DOTTED = lazy_pattern(
    r"\b([a-z]\w+)\.[a-z]\w+\b(?!/)"
)  # numpy.int64: the known message is about a name of this module
# The part that every failed assertion of torch shares: the expression before it is the message.
ASSERTION = lazy_pattern(
    r'INTERNAL ASSERT FAILED(?: at "[^"\n]{1,200}":\d+)?,? ?(?:please report a bug to PyTorch\.?)?'
)
WORD = lazy_pattern(r"[a-z]{2,}|\d{3,}")
WORD_START = lazy_pattern(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=\d)")


def words_of(text: str) -> frozenset[str]:
    """The words of a text; identifiers are split at underscores, capital letters and digits."""
    return frozenset(WORD.findall(WORD_START.sub(" ", ASSERTION.sub(" ", text)).lower()))


class Phrases(Record, frozen=True):
    """knowledge/phrases.toml: what people call the error of a cause."""

    phrases: dict[str, tuple[str, ...]]


@cache
def known_messages() -> tuple[tuple[tuple[frozenset[str], Symptom], ...], dict[str, float]]:
    """The words of each known message with its symptom, and the weight of each word."""
    phrases = [
        Symptom(id=f"phrase-{slug}-{number}", cause=slug, pattern="", weight=0, sample=phrase)
        for slug, each in load_table("phrases.toml", Phrases).phrases.items()
        for number, phrase in enumerate(each)
    ]
    samples = [symptom for symptom in symptom_table().symptoms if not symptom.when]
    messages = [(words_of(symptom.sample), symptom) for symptom in (*samples, *phrases)]
    occurrences = Counter(word for words, _ in messages for word in words)
    weights = {word: math.log(len(messages) / (number + 0.5)) ** 2 for word, number in occurrences.items()}
    return tuple(messages), weights


def similar_symptoms(text: str, excluded: Collection[str] = ()) -> dict[Symptom, Hit]:
    """The most similar symptom of each cause, at most three, as symptoms that do not decide.

    `excluded`: causes whose message is in the text, with a line that excludes them.
    """
    if len(text.split()) < FEWEST_WORDS:
        return {}
    messages, weights = known_messages()
    unknown = math.log(2 * len(messages)) ** 2
    words = words_of(text)
    is_exception = EXCEPTION.search(text) is not None
    least = LEAST_OF_MESSAGE if is_exception else LEAST_SIMILARITY
    exact = QUOTED.findall(text) if is_exception else []  # names that a message is about
    length = sum(weights.get(word, unknown) for word in words)
    found: dict[str, tuple[float, Symptom]] = {}
    for known, symptom in messages:
        if symptom.cause in excluded:
            continue
        shared = words & known
        common = sum(weights[word] for word in shared)
        if not shared or len(shared) < min(2, len(words)) or common < LEAST_SHARE * length:
            continue
        if any(f"'{name}'" not in symptom.sample for name in exact):
            continue
        if is_exception and any(module not in words for module in DOTTED.findall(symptom.sample)):
            continue
        similarity = math.sqrt(common / length * common / sum(weights[word] for word in known))
        if similarity >= max(least, found.get(symptom.cause, (0.0,))[0]):
            found[symptom.cause] = similarity, symptom
    best = sorted(found.values(), key=lambda each: -each[0])[:MOST_CAUSES]
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return {
        msgspec.structs.replace(symptom, weight=round(50 * similarity), undecided=True, outranks=()): Hit(
            symptom.id, 1, line, {}
        )
        for similarity, symptom in best
    }
