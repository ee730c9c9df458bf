"""The result of a forecast."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record
from envdoctor.core.records import Evidence

Kind = Literal[
    "python",
    "wheel",
    "requirement",
    "module",
    "name",
    "argument",
    "attribute",
    "result",
    "script",
    "gpu-code",
    "rule",
]
YOUR_CODE = "your code"


class Break(Record, frozen=True, kw_only=True):
    """What one upgrade would break.

    `release` is the first release with the break and `day` its upload. `user` is the package or code that would fail,
    which can be the upgraded package itself.
    """

    kind: Kind
    package: str
    locked: str
    release: str
    day: str
    user: str
    message: str
    evidence: tuple[Evidence, ...] = ()
    is_deferred: bool = False  # fails in a call, not at import

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same break in another release."""
        return self.kind, self.package, self.user, self.message


class Upgrade(Record, frozen=True, kw_only=True):
    """The newest release of a package, or the newest one of the same minor version, upgraded alone."""

    package: str
    locked: str
    release: str
    day: str
    is_patch: bool = False
    newer: int = 0  # number of releases since the locked one
    breaks: tuple[Break, ...] = ()


class SafeUpgrade(Record, frozen=True):
    """A package of the set that upgrades together without a known break."""

    package: str
    locked: str
    release: str
    day: str


class Held(Record, frozen=True):
    """A package that does not get its newest release in the set, and the reasons."""

    package: str
    release: str  # in the set
    newest: str
    reasons: tuple[str, ...]


class SafeSet(Record, frozen=True, kw_only=True):
    """The upgrades that are safe together, solved by uv."""

    upgrades: tuple[SafeUpgrade, ...] = ()
    held: tuple[Held, ...] = ()
    constraints: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    problem: str = ""  # why there is no set
    remaining: tuple[Break, ...] = ()  # which the set still has


class Unread(Record, frozen=True):
    """A part that was not judged. `is_failed`: it should have been read."""

    name: str
    reason: str
    is_failed: bool = False


class ForecastResult(Record, frozen=True, kw_only=True):
    """What the releases since a lock would break."""

    source: str
    kind: str
    packages: int
    python: str
    platform: str
    until: str  # releases up to this day
    gpu: str = ""
    upgrades: tuple[Upgrade, ...] = ()
    safe: SafeSet | None = None
    unread: tuple[Unread, ...] = ()
    written: str = ""

    @property
    def breaks(self) -> tuple[Break, ...]:
        """Every break once."""
        found = {each.key: each for upgrade in self.upgrades for each in upgrade.breaks}
        return tuple(found.values())

    @property
    def is_incomplete(self) -> bool:
        """Whether a part could not be read."""
        return any(each.is_failed for each in self.unread)
