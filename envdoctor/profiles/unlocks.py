"""What one change of a machine would make possible: a newer driver, more disk space, or a newer system. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from packaging.version import Version

from envdoctor.profiles.choice import Candidate, Condition, Unlock

DISK, GLIBC, DRIVER, DRIVER_OF_STACK = "disk", "glibc", "driver", "driver for this stack"
Change = Literal["driver", "disk", "glibc"]
# The conditions that the owner of a machine can change. GPUs and the architecture cannot be changed.
CHANGES: dict[str, Change] = {DISK: "disk", GLIBC: "glibc", DRIVER: "driver", DRIVER_OF_STACK: "driver"}


def find_unlocks(candidates: Sequence[Candidate], chosen: Candidate | None) -> tuple[Unlock, ...]:
    """The changes with which a profile fits that is preferred over the chosen one.

    Of the profiles that the same change makes possible, only the preferred one is returned; a larger change only if
    the profile that it makes possible is preferred over the one of a smaller change.
    """
    preference = chosen.preference if chosen else -1
    possible = [
        (unlock, candidate.preference)
        for candidate in candidates
        if candidate.preference > preference and (unlock := _single_change(candidate))
    ]
    found: list[Unlock] = []
    for change in ("driver", "disk", "glibc"):
        best = preference
        of_change = [(unlock, preferred) for unlock, preferred in possible if unlock.change == change]
        for unlock, preferred in sorted(of_change, key=lambda each: (Version(each[0].minimum), -each[1])):
            if preferred > best:
                found.append(unlock)
                best = preferred
    return tuple(found)


def _single_change(candidate: Candidate) -> Unlock | None:
    """The change that meets all conditions of a rejected profile; None if it needs several or an impossible one."""
    unmet = [
        condition for condition in candidate.conditions if condition.holds is False and not condition.recommended
    ]
    changes = {CHANGES.get(condition.name) for condition in unmet}
    if candidate.accepted or len(changes) != 1 or not (change := changes.pop()):
        return None
    largest: Condition = max(unmet, key=lambda condition: Version(condition.minimum))
    return Unlock(change, largest.observed, largest.minimum, candidate.profile)
