"""Records of a bisection: its ends, its trials and its result."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record

PackageSet = dict[str, str]  # name -> exact version


def has_version(version: str) -> bool:
    """Whether a package comes from an index. A local project has no version, and `@ URL` is an address."""
    return version[:1] not in ("", "@")


Outcome = Literal["good", "bad", "skipped"]

Phase = Literal["ends", "search", "confirm"]


class Trial(Record, frozen=True, kw_only=True):
    """One installed set of packages, and how the command ended in it."""

    packages: str  # digest of the set
    label: str  # what distinguishes the set: "urllib3 2.0.2"
    phase: Phase
    outcome: Outcome
    runs: int
    failures: int
    hangs: int = 0
    seconds: float = 0.0
    failure: str = ""  # of the first failed run: its last exception or line, or why it was skipped
    output: str = ""  # the end of the output of that run
    driver: str = ""  # version of the GPU driver

    @property
    def rate(self) -> float:
        """The share of runs that failed."""
        return self.failures / self.runs if self.runs else 0.0


class Change(Record, frozen=True):
    """A package whose version differs between the good and the bad state. An empty version: it is not installed."""

    name: str
    before: str
    after: str
    releases: int = 0  # in between, with the last one


class NamesRemoved(Record, frozen=True):
    """Public names and arguments of the good release that the bad one lacks."""

    count: int
    names: tuple[str, ...] = ()  # those in the output of the failure; without any, the first ones
    in_output: bool = False
    unread: int = 0  # source files of the bad release that could not be read


class Culprit(Record, frozen=True, kw_only=True):
    """A package, the last release that works and the first one that does not."""

    package: str
    good: str  # empty: the package is not installed in the good state
    bad: str
    good_uploaded: str = ""  # day; empty if unknown
    bad_uploaded: str = ""
    skipped: tuple[str, ...] = ()  # releases between the two that could not be tried
    permitted_by: tuple[str, ...] = ()  # releases that first permit the bad one
    link: str = ""  # changelog, releases or home page of the package
    link_label: str = ""
    removed: NamesRemoved | None = None


class Break(Record, frozen=True, kw_only=True):
    """A change that breaks the good state."""

    culprits: tuple[Culprit, ...]  # several: the command fails only with all of them
    failure: str  # of the good state with only this change
    is_range: bool = False  # releases in between could not be tried


class Cure(Record, frozen=True, kw_only=True):
    """Constraints with which the bad state works, as a trial has shown: one for each break."""

    constraints: tuple[str, ...]
    changes: tuple[Change, ...]  # the bad state compared with the state of the trial
    command: str = ""


Verdict = Literal["found", "range", "good-fails", "bad-passes", "no-change", "skipped"]


class BisectResult(Record, frozen=True, kw_only=True):
    """The result of a bisection."""

    verdict: Verdict
    summary: str
    command: str
    good: str  # description
    bad: str
    changes: tuple[Change, ...]
    releases: int  # in between, of all changed packages
    breaks: tuple[Break, ...] = ()  # several: without the first one, the bad state still fails because of the next
    cure: Cure | None = None
    trials: tuple[Trial, ...] = ()
    limit: int = 0  # of the trials of the ends and the search: log2(releases) + 2
    notes: tuple[str, ...] = ()
    log: str = ""
