"""The records of a choice between profiles."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record


class Condition(Record, frozen=True):
    """One condition of a profile and the observed value. `holds` is None if the fact is unknown.

    A `recommended` condition does not reject the profile; it is only reported.
    """

    name: str
    expected: str
    observed: str
    holds: bool | None
    source: str = ""
    recommended: bool = False
    minimum: str = ""  # the least value that holds, of a condition on a version or a size in GiB


class Candidate(Record, frozen=True):
    """One profile, accepted or rejected, with all its conditions."""

    profile: str
    accepted: bool
    preference: int
    conditions: tuple[Condition, ...]


class Unlock(Record, frozen=True):
    """One change of the machine with which a better profile fits."""

    change: Literal["driver", "disk", "glibc"]
    observed: str
    minimum: str  # the version of the driver or of glibc, or the free space of the disk in GiB
    profile: str


class Choice(Record, frozen=True):
    """The chosen profile, what one change would make possible, and all candidates with their conditions."""

    profile: str | None
    reason: str
    candidates: tuple[Candidate, ...]
    unlocks: tuple[Unlock, ...] = ()  # the least change first
