"""The rules on stacks, asked about what a guide ends up with; and releases under which they have nothing to say."""

from __future__ import annotations

from datetime import date, timedelta
from typing import NamedTuple

from envdoctor.core.records import Machine, Stack
from envdoctor.knowledge.published import find_release, releases_in_range
from envdoctor.knowledge.versions import is_prerelease, minor_of, public_part, satisfies
from envdoctor.manifests.choose import Chosen, Place, Solver
from envdoctor.manifests.journey import State
from envdoctor.manifests.requirement import Wanted
from envdoctor.manifests.stack import stack_of
from envdoctor.rules.registry import RULES, NotReadableError, Problem, Rule

# Families that judge versions; what concerns files, GPUs and the driver is looked at elsewhere.
_FAMILIES = ("PKG", "HF", "TRL", "VLLM001", "VLLM003", "FA", "BNB", "VERL", "DS", "RAY", "CUDNN", "KERN")
# A wheel's fit has its own check with the file's name; a list of a guide is never the whole list.
_ELSEWHERE = frozenset({"PKG007", "FA001", "FA003", "PKG014"})
_CANDIDATES = 60
_TRIALS = 6
_SOLUTIONS = 60
_SUBSTITUTIONS = 12
_DROPPED = 6
_PERIOD_DAYS = 30  # after the newest pin: about when the guide was written


class Verdict(NamedTuple):
    """What one rule says."""

    rule: Rule
    problem: Problem


class Repair(NamedTuple):
    """What an environment should hold; the replacements of what it would hold today, and all that the pins need."""

    packages: dict[str, Chosen]
    substitutions: list[Substitution]
    all_pins: list[Substitution]


class Substitution(NamedTuple):
    """A release that is to be pinned instead of the one that would be chosen, and what it avoids."""

    culprit: Chosen
    version: str  # empty: no release of it helps
    verdict: Verdict
    pinned: bool  # the guide itself names this version


def verdicts(machine: Machine, stack: Stack) -> list[Verdict]:
    """What the rules on versions say of a stack, errors and warnings first."""
    found: list[Verdict] = []
    for rule in RULES.values():
        if not rule.id.startswith(_FAMILIES) or rule.id in _ELSEWHERE or not rule.needs_environment:
            continue
        try:
            found += [Verdict(rule, problem) for problem in rule.check(machine, stack)]
        except NotReadableError:
            continue
    return sorted(found, key=lambda each: {"error": 0, "warning": 1}.get(each.problem.status, 2))


def serious(found: list[Verdict]) -> list[Verdict]:
    """Errors and warnings."""
    return [each for each in found if each.problem.status in ("error", "warning")]


def repair(machine: Machine, state: State, place: Place) -> Repair:
    """The environment with releases that no rule objects to, and each replacement that this took."""
    place = place._replace(period=period_of(state))
    bench = _Bench(machine, state, place)
    packages, done = bench.improve_all(dict(state.packages))
    packages, further = bench.of_the_time(packages)
    return Repair(packages, done, [*done, *further])


class _Bench:
    """Tries other releases: the guide's requirements are solved again as one command with one more pin."""

    def __init__(self, machine: Machine, state: State, place: Place) -> None:
        self.machine = machine
        self.state = state
        self.place = place
        self.pins: dict[str, str] = {}
        self.solved = 0
        self.dropped: set[str] = set()  # pins of the guide that its other pins exclude
        self.solve(state.packages, {})

    def judged(self, packages: dict[str, Chosen]) -> list[Verdict]:
        return serious(verdicts(self.machine, stack_of(self.state, packages)))

    def solve(self, packages: dict[str, Chosen], pins: dict[str, str]) -> dict[str, Chosen]:
        """All that the guide names, in one command, with these pins; where ranges contradict, the required one
        holds.
        """
        self.solved += 1
        asked = self.state.asked.items()
        named = {name: each for name, each in asked if not _is_nightly(each) and name not in self.dropped}
        for _ in range(_DROPPED):
            fixed = {name: each for name, each in named.items() if each.origin != "PyPI" and name not in pins}
            wanted = {name: f"=={each.version}" if name in fixed else each.specifier for name, each in named.items()}
            wanted |= {name: f"=={version}" for name, version in pins.items()}
            roots = [Wanted(name, specifier) for name, specifier in wanted.items()]
            found = Solver(self.place, fixed, upgrade=False, with_dependencies=True).solve(roots)
            dropped = {each.name for each in found.conflicts if each.name in named and each.name not in pins}
            if pins and any(named[name].pinned for name in dropped):
                return {}
            self.dropped |= {name for name in dropped if named[name].pinned}
            if not dropped:
                break
            named = {name: each for name, each in named.items() if name not in dropped}
        known = packages | self.state.packages | self.state.asked
        return (
            {name: _at(known.get(name, pick), pick) for name, pick in found.picks.items()}
            if not found.conflicts
            else {}
        )

    def of_the_time(self, packages: dict[str, Chosen]) -> tuple[dict[str, Chosen], list[Substitution]]:
        """What the guide names, with all that it leaves open taken from its time: what should have been written."""
        self.place = self.place._replace(until=min(self.place.until, self.place.period))
        found = self.solve(packages, self.pins)
        if not found:
            return packages, []
        found, done = self.improve_all(found)
        left = [each for each in self.judged(found) if each.problem.status == "error"]
        return (found, done) if not left or len(left) <= len(self.judged(packages)) else (packages, [])

    def improve_all(self, packages: dict[str, Chosen]) -> tuple[dict[str, Chosen], list[Substitution]]:
        """Replacements until no rule objects, or nothing helps."""
        done: list[Substitution] = []
        tried: set[str] = set()
        for _ in range(_SUBSTITUTIONS):
            left = [each for each in self.judged(packages) if each.problem.message not in tried]
            if not left:
                break
            tried.add(left[0].problem.message)
            change, packages = self.improve(packages, left[0])
            done += [change] if change else []
        return packages, done

    def improve(self, packages: dict[str, Chosen], verdict: Verdict) -> tuple[Substitution | None, dict[str, Chosen]]:
        """The replacement of the package that the guide leaves open, of those that the rule names."""
        names = [each.fact for each in verdict.problem.evidence if each.fact in packages]
        open_first = sorted(
            names, key=lambda name: (packages[name].pinned, packages[name].reason.startswith("required by"))
        )
        before = len(self.judged(packages))
        for name in open_first:
            for version in self._promising(packages, verdict, name):
                trial = self.solve(packages, self.pins | {name: version})
                if trial and len(self.judged(trial)) < before:
                    self.pins[name] = version
                    return Substitution(packages[name], version, verdict, packages[name].pinned), trial
        if not open_first:
            return None, packages
        pinned = all(packages[name].pinned for name in names)
        return Substitution(packages[open_first[0]], "", verdict, pinned), packages

    def _promising(self, packages: dict[str, Chosen], verdict: Verdict, name: str) -> list[str]:
        """Releases of a package with which this rule is silent, newest first."""
        culprit = packages[name]
        own = "" if culprit.pinned else culprit.specifier
        found: list[str] = []
        before = sum(each.rule.id == verdict.rule.id for each in self.judged(packages))
        for version in _candidates(name, own, public_part(culprit.version), self.place):
            trial = packages | {name: culprit._replace(version=version)}
            now = sum(each.rule.id == verdict.rule.id for each in self.judged(trial))
            if now < before:
                found.append(version)
            if len(found) >= _TRIALS or self.solved > _SOLUTIONS:
                break
        return found


def _is_nightly(each: Chosen) -> bool:
    return "nightly" in each.origin or is_prerelease(each.version)


def _at(known: Chosen, pick: Chosen) -> Chosen:
    """A package at another version; a CUDA build of another place stays one."""
    return known if known.version == pick.version else known._replace(version=pick.version)


def _candidates(name: str, specifier: str, current: str, place: Place) -> list[str]:
    """Other releases; of each minor version only the newest, since the rules speak of minor versions.

    Those of the time of the guide's pins come first: a release of a year later has never met them.
    """
    found: list[tuple[bool, str]] = []
    seen: set[tuple[str, bool]] = set()
    for row in releases_in_range(name, specifier, place.until):
        later = row.date > place.period
        short = minor_of(row.version)
        minor = (row.version if short in ("", "0.0") else short, later)
        if minor not in seen and satisfies(row.version, f"!={current}"):
            found.append((later, row.version))
        seen.add(minor)
    found.sort(key=lambda each: each[0])
    return [version for _, version in found[:_CANDIDATES]]


def period_of(state: State) -> str:
    """The day up to which releases are of the time of the guide's exact pins; "9" where it has none."""
    days = [row.date for each in state.packages.values()
            if each.pinned and (row := find_release(each.name, public_part(each.version)))]  # fmt: skip
    if len(days) < 2:
        return "9"
    return (date.fromisoformat(max(days)) + timedelta(days=_PERIOD_DAYS)).isoformat()
