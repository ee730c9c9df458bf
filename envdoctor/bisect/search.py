"""The search itself: halves an ordered list of states, and finds which changes break a state only together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from envdoctor.bisect.records import Outcome

MAX_UNKNOWN = 16  # states that cannot be judged, one after the other, until the search stops with a range


def trial_limit(releases: int) -> int:
    """The largest number of trials of a search with one culprit: both ends, and log2 of the number of releases."""
    return 2 + math.ceil(math.log2(max(1, releases)))


def halve(low: int, high: int, judge: Callable[[int, int], Outcome]) -> tuple[int, int]:
    """The last good and the first bad number between a good one and a bad one.

    `judge` gets a number and the count of those left. They are neighbours unless all between them were skipped, in
    which case the nearest to the middle that were not skipped are judged, as `git bisect` does.
    """
    skipped: set[int] = set()
    while high - low > 1 and len(skipped) < MAX_UNKNOWN:
        middle = (low + high) // 2
        number = min((n for n in range(low + 1, high) if n not in skipped), key=lambda n: abs(n - middle), default=0)
        if not number:
            break
        outcome = judge(number, high - low - 1)
        if outcome == "good":
            low = number
        elif outcome == "bad":
            high = number
        else:
            skipped.add(number)
    return low, high


def companions(fixed: frozenset[str], others: Sequence[str], is_bad: Callable[[frozenset[str]], bool]) -> list[str]:
    """The smallest part of `others` that is bad together with `fixed`, by delta debugging.

    `fixed` alone is good, and `fixed` with all others is bad. A set without a result counts as not bad.
    """
    if len(others) <= 1:
        return list(others)
    middle = len(others) // 2
    first, second = others[:middle], others[middle:]
    if is_bad(fixed | set(first)):
        return companions(fixed, first, is_bad)
    if is_bad(fixed | set(second)):
        return companions(fixed, second, is_bad)
    needed = companions(fixed | set(second), first, is_bad)  # a part of each half is needed
    return needed + companions(fixed | set(needed), second, is_bad)
