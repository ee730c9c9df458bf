"""One bisection: checks both ends, halves the releases in between, and confirms the result."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from envdoctor.bisect.changes import Space, changes_of, key_of
from envdoctor.bisect.records import Culprit, Outcome, PackageSet, Trial, has_version
from envdoctor.bisect.search import companions, halve
from envdoctor.bisect.solver import Solver
from envdoctor.bisect.trials import Laboratory
from envdoctor.core.record import Record


class Found(Record, frozen=True, kw_only=True):
    """What one search found, before the evidence is read."""

    culprits: tuple[Culprit, ...]  # none: the trials contradict each other
    trial: Trial | None  # of the good state with only the culprits changed
    is_range: bool = False  # releases in between could not be tried
    is_cured: bool = False  # whether the bad state works with the constraint
    constraint: str = ""  # on a culprit; empty if none has a solution
    packages: PackageSet = {}  # the bad state with the constraint


class _Cut(NamedTuple):
    """Where the state changes from good to bad."""

    state: int  # the first bad one
    before: PackageSet
    after: PackageSet
    names: tuple[str, ...]  # packages that break it
    permits: tuple[str, ...]  # packages whose release permits that


class Bisection:
    """The states between two sets, and the trials of them. State 0 is the good set, the last one the bad set."""

    def __init__(
        self, space: Space, solver: Solver, laboratory: Laboratory, *, until: str, constraints: Sequence[str] = ()
    ) -> None:
        self.space = space
        self.solver = solver
        self.laboratory = laboratory
        self.until = until  # releases after this time do not count
        self.constraints = constraints  # on the culprits of earlier searches
        self.last = len(space.events)

    def search(self) -> Found:
        """Halve the releases, then find the packages, their first bad releases and a cure. Both ends are judged."""
        low, high = halve(0, self.last, self._judge)
        before, after = self._state(low) or self.space.good, self._state(high) or self.space.bad
        changed = self._changed(before, after)
        triggers = list(dict.fromkeys(event.name for event in self.space.events[low:high] if event.name in changed))
        names, permits = self._responsible(high, after, triggers or changed, changed)
        cut = _Cut(high, before, after, tuple(names), tuple(permits))
        culprits = tuple(self._culprit(name, cut) for name in names)
        alone = self._with(high, {name: after.get(name, "") for name in names})
        trial = (alone and self.laboratory.find(alone)) or self.laboratory.find(after)
        is_range = high - low > 1 and any(culprit.skipped for culprit in culprits)
        return self._with_cure(Found(culprits=culprits, trial=trial or None, is_range=is_range))

    def _changed(self, before: PackageSet, after: PackageSet) -> list[str]:
        """The packages with another version, and those that were removed though no other one required them."""
        changes = changes_of(before, after)
        return [change.name for change in changes if change.after or change.name in self.space.kept(0)]

    def _judge(self, state: int, left: int) -> Outcome:
        packages = self._state(state)
        if packages is None:
            return "skipped"
        event = self.space.events[state - 1]
        day = self.space.day_of(event.name, event.version)
        label = f"releases up to {event.name} {event.version}" + (f" of {day}" if day else "")
        label = label if event.version else f"all releases, without {event.name}"
        left = math.ceil(math.log2(left + 1)) - 1
        return self.laboratory.trial(packages, label, "confirm" if self.constraints else "search", left).outcome

    def _state(self, state: int) -> PackageSet | None:
        """The packages of a state; None if they have no solution."""
        if state in (0, self.last):
            return self.space.bad if state else self.space.good
        extra = sorted(self.space.arrived(state) | self.space.kept(state))
        return self._solve(state, extra=extra, without=self.space.missing(state))

    def _solve(
        self, state: int, *, extra: Sequence[str], free: Collection[str] = (), constraints: Sequence[str] = (),
        preferred: PackageSet | None = None, without: Collection[str] = (),
    ) -> PackageSet | None:  # fmt: skip
        """Solve with the newest versions of a state. They limit all packages except the `free` ones.

        The date of the state limits the packages that neither end has. Files of one release have several dates.
        """
        limits = {name: limit for name, limit in self.space.limits(state).items() if name not in free}
        every = [*(f"{name}<={limit}" for name, limit in limits.items()), *self.constraints, *constraints]
        return self.solver.solve(
            extra=extra, constraints=every,
            until=self.space.time_of(state), undated=[*limits, *free], preferred=preferred, without=sorted(without),
        )  # fmt: skip

    def _with(self, state: int, versions: PackageSet) -> PackageSet | None:
        """The good state with other versions of some packages, and what these require; None without a solution."""
        pins = [f"{name}=={version}" for name, version in sorted(versions.items()) if has_version(version)]
        return self._solve(
            state, extra=[*pins, *sorted(self.space.kept(0) - versions.keys())], free=versions.keys(),
            preferred=self.space.good | {name: version for name, version in versions.items() if version},
            without=self.space.bad.keys() - self.space.good.keys() - versions.keys(),
        )  # fmt: skip

    def _is_bad(self, state: int, versions: PackageSet, *, known: bool = False) -> bool:
        """Whether the good state fails with these versions. `known`: only if a trial has already shown it."""
        packages = self._with(state, versions)
        if packages is None:
            return False
        label = "the good state with " + ", ".join(
            f"{name} {version}" if version else f"{name} removed" for name, version in sorted(versions.items())
        )
        trial = self.laboratory.find(packages) if known else self.laboratory.trial(packages, label, "confirm")
        return trial is not None and trial.outcome == "bad"

    def _responsible(
        self, state: int, after: PackageSet, triggers: Sequence[str], changed: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """The packages that break the good state together, and those that only permit them; none if it works."""

        def is_bad(names: frozenset[str]) -> bool:
            return self._is_bad(state, {name: after.get(name, "") for name in names})

        if is_bad(frozenset(triggers)):
            return (companions(frozenset(), triggers, is_bad) if len(triggers) > 1 else list(triggers)), []
        others = [name for name in (*changed, *self._changed(self.space.good, after)) if name not in triggers]
        found = companions(frozenset(triggers), list(dict.fromkeys(others)), is_bad)
        names = [*triggers, *found]
        if not is_bad(frozenset(names)):  # a command that fails sometimes
            return [], []
        permits = []
        for name in triggers if found else ():
            rest = {other: after.get(other, "") for other in names if other != name}
            if rest and self._is_bad(state, rest, known=True):  # the others require this release themselves
                names.remove(name)
                permits.append(name)
        return names, permits

    def _culprit(self, name: str, cut: _Cut) -> Culprit:
        """The first bad release of a package that breaks the state together with the other names."""
        versions = self.space.versions_before(cut.state, name)
        good, bad = cut.before.get(name, ""), cut.after.get(name, "")
        if not bad:
            return Culprit(package=name, good=self.space.good[name], bad="")
        # A companion may have changed before the release with which it breaks.
        start = self.space.good.get(name, "") if good == bad else good
        chain = [start, *(each for each in versions if key_of(start or "0") < key_of(each) < key_of(bad)), bad]
        if len(chain) > 2:
            others = {other: cut.after.get(other, "") for other in cut.names if other != name}
            low, high = halve(0, len(chain) - 1, lambda n, _: self._judge_release(cut.state, name, chain[n], others))
            good, bad, between = chain[low], chain[high], chain[low + 1 : high]
        else:
            good, between = start, []
        return Culprit(
            package=name, good=good, bad=bad, skipped=tuple(between),
            good_uploaded=self.space.day_of(name, good), bad_uploaded=self.space.day_of(name, bad),
            permitted_by=tuple(f"{other} {cut.after[other]}" for other in cut.permits),
        )  # fmt: skip

    def _judge_release(self, state: int, name: str, version: str, others: PackageSet) -> Outcome:
        packages = self._with(state, {**others, name: version})
        if packages is None:
            return "skipped"
        label = ", ".join(f"{each} {packages[each]}" for each in sorted([name, *others]) if each in packages)
        return self.laboratory.trial(packages, f"the good state with {label}", "confirm").outcome

    def _with_cure(self, found: Found) -> Found:
        """Add the first constraint on one of the packages with which the bad state works, or still fails."""
        for culprit in found.culprits:
            for text, packages in self._cures(culprit):
                label = f"the bad state with {' '.join([*self.constraints, text])}"
                outcome = self.laboratory.trial(packages, label, "confirm").outcome
                if outcome == "good":
                    return msgspec.structs.replace(found, is_cured=True, constraint=text, packages=packages)
                if outcome == "bad" and not found.constraint and culprit.good and culprit.bad:
                    found = msgspec.structs.replace(found, constraint=text, packages=packages)
        return found

    def _cures(self, culprit: Culprit) -> Iterator[tuple[str, PackageSet]]:
        """Constraints on a culprit, each with the bad state as the user would solve it with the constraint."""
        name = culprit.package
        if not culprit.bad:
            pin = f"{name}=={culprit.good}"
            yield from self._cured(pin, name, extra=[pin])
            return
        is_upgrade = not culprit.good or key_of(culprit.good) < key_of(culprit.bad)
        yield from self._cured(f"{name}{'<' if is_upgrade else '>'}{culprit.bad}", name)
        if not culprit.good and not self.solver.requirements.file:
            for text, packages in self._cured(f"without {name}", name, without=[name]):
                if name not in packages:
                    yield text, packages

    def _cured(
        self, text: str, name: str, *, extra: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Iterator[tuple[str, PackageSet]]:
        """The bad state with a constraint, unless it has no solution. Other versions of a lock stay."""
        constraints = [] if extra or without else [text]
        if self.solver.requirements.file:
            packages = self.solver.solve(extra=extra, constraints=[*self.constraints, *constraints], until=self.until)
        else:
            kept = {other: version for other, version in self.space.bad.items() if other != name}
            arrived = sorted(self.space.arrived(self.last) - {name, *without})
            packages = self._solve(
                self.last, extra=[*arrived, *extra], free=[name], constraints=constraints, preferred=kept,
                without=without,
            )  # fmt: skip
        if packages is not None:
            yield text, packages
