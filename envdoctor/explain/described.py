"""Finds causes that a sentence describes in words: `So the script took the CPU variant of PyTorch`.

A description is a set of concepts, each with its synonyms, that all occur in one sentence. Only for a text without a
known message: the result is a suggestion with a percentage below that of a text that decides its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.explain.searches import Hit
from envdoctor.knowledge.symptoms import Symptom
from envdoctor.knowledge.tables import load_table

WEIGHT = 50  # of a similar message that has all words of the text
LONGEST_TEXT, LONGEST_SENTENCE, FEWEST_WORDS = 16_384, 400, 5
SENTENCE = lazy_pattern(r"(?<=[.!?])\s+|[\u3002\uff1b]|\n")
WORD = lazy_pattern(r"[A-Za-z][A-Za-z0-9_'-]*|[\u3040-\u9fff]{2}")  # Chinese and Japanese have no spaces
# Between a Chinese or Japanese character and a Latin one: `\b` does not match there.
SCRIPT_CHANGE = lazy_pattern(r"(?<=[\u3040-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u3040-\u9fff])")
# What is only considered, is denied, is a rule, or is no longer so.
HYPOTHETICAL = lazy_pattern(
    r"(?i)^\W*(?:is|are|does|do|did|can|could|should|would|will|how|what|which|why|when|if|note|todo|add|fix|use|see"
    r"|ensure|make sure|check|warn|raise|support|allow)\b|\b(?:if|unless|in case|would|might|may|fixed|solved"
    r"|works (?:now|again|fine)|used to|for example|e\.g\.|no longer an issue|not (?:seem|appear|look) to be an?)\b"
)
# With an exception of the first kind a library refuses an argument: `gated weights must have even row counts`.
PROGRAM_LINE = lazy_pattern(
    r"^\s*(?:\w*(?:Value|Type|Key|Assertion|NotImplemented|Misconfiguration)(?:Error|Exception): "
    r'|File "|Traceback|[$#>]\s|\w+ ?=|import |from \w+ import |def |class |\[?\d{4}-\d\d'
    r"|(?:INFO|DEBUG|WARNING|ERROR)\b"
    # of the build of an image
    r"|(?:#\d{1,3} \[[^\]\n]{1,40}\] |Step \d{1,3}/\d{1,3} : )?(?:RUN|COPY|ENV|ARG|FROM|CMD|ENTRYPOINT) )"
)
# Messages that list what can be the reason: of Ray about a worker that died, of NCCL's watchdog.
POSSIBLE_REASONS = lazy_pattern(r"potential root causes|asynchronous nature of CUDA kernels")


class Description(Record, frozen=True):
    """The concepts of a sentence that describes a cause."""

    cause: str
    concepts: tuple[str, ...]


class Descriptions(Record, frozen=True):
    """knowledge/descriptions.toml."""

    concepts: dict[str, str]
    description: tuple[Description, ...]


@cache
def descriptions() -> tuple[dict[str, re.Pattern[str]], tuple[Description, ...]]:
    """The compiled concepts, and the descriptions, those with the most concepts first."""
    table = load_table("descriptions.toml", Descriptions)
    concepts = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in table.concepts.items()}
    return concepts, tuple(sorted(table.description, key=lambda each: -len(each.concepts)))


def described_symptom(text: str) -> dict[Symptom, Hit]:
    """The cause that a sentence of the text describes, with that sentence; of several the one with most concepts."""
    concepts, rows = descriptions()
    best: tuple[int, Description, int, str] | None = None
    for number, sentence in sentences(text[:LONGEST_TEXT]):
        spaced = SCRIPT_CHANGE.sub(" ", sentence)
        present: dict[str, bool] = {}
        for row in rows:
            if best and len(row.concepts) <= best[0]:
                break
            for name in row.concepts:
                if name not in present:
                    present[name] = concepts[name].search(spaced) is not None
                if not present[name]:
                    break
            else:
                best = len(row.concepts), row, number, sentence
    if best is None:
        return {}
    _, row, number, sentence = best
    symptom = Symptom(
        id=f"described-{row.cause}", cause=row.cause, pattern="", weight=WEIGHT, sample="", undecided=True
    )
    return {symptom: Hit(symptom.id, number, sentence, {})}


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a text that state something, with the numbers of their lines."""
    for number, line in enumerate(text.split("\n"), 1):
        if PROGRAM_LINE.search(line) or POSSIBLE_REASONS.search(line):
            continue
        for sentence in SENTENCE.split(line):
            stated = sentence.strip()
            is_short = len(stated) <= LONGEST_SENTENCE and len(WORD.findall(stated)) >= FEWEST_WORDS
            if is_short and not stated.endswith("?") and not HYPOTHETICAL.search(stated):
                yield number, stated
