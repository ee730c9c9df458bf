"""The percentage that `explain` prints: the measured share of texts in which a cause with this score was right.

The score of a cause ranks it. knowledge/calibration.toml has a bin for each range of scores, with the number of
labelled texts and of right causes. tests/campaigns/calibration.py measures it.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import load_table

# `first`: the cause with the highest score. `undecided`: the first cause, if its lines occur with other causes too.
# `similar`: the first cause of a short text in which no pattern matches. `further`: every other cause, a first
# cause with a score below the lowest bin of the first causes, and one that only a finding on the environment shows.
Rank = Literal["first", "undecided", "similar", "further"]
UNDECIDED = 0.5  # below it the text does not decide the cause


class Bin(Record, frozen=True, kw_only=True):
    """The causes of one rank with a score from `minimum` to that of the next bin."""

    rank: Rank
    minimum: float
    causes: int
    right: int
    confidence: float  # share that was right by the rule of succession, not below that of lower scores


class Calibration(Record, frozen=True, kw_only=True):
    """The bins and what they were measured on."""

    measured: str  # a date
    texts: int  # labelled texts that nobody had used for the tables
    undecidable: int  # texts whose label states that they do not decide the cause; no cause counts as right
    without_cause: int  # texts in which no cause was found
    without_cause_right: int  # those of them that have no cause
    bin: tuple[Bin, ...]


@cache
def calibration() -> Calibration:
    """The measured calibration."""
    return load_table("calibration.toml", Calibration)


def confidence_of(score: float, rank: Rank) -> float:
    """The share of causes of this rank and score that were right, 0 to 1."""
    bins = [each for each in calibration().bin if each.rank == rank and each.minimum <= score]
    if not bins:
        return confidence_of(score, "further")
    return max(bins, key=lambda each: each.minimum).confidence
