"""Exact versions for the remedies of findings.

A rule names the packages to change and their ranges. The search selects the releases nearest to the installed ones
for which the finding is gone and no rule reports a new problem, and changes other packages with them if necessary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.core.remedies import Install, Remedy, Uninstall, remedy_of
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import is_withdrawn, releases_of, required_specifier
from envdoctor.knowledge.versions import is_prerelease, minor_of, public_part, satisfies, version_key
from envdoctor.remedies.affected import VERSION_RULES
from envdoctor.remedies.simulate import (
    backend_for,
    in_tables,
    relevant_part,
    resolve,
    stack_after,
    target_of,
    without,
)
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.torch_sources import cuda_name
from envdoctor.rules import RULES
from envdoctor.rules.registry import Rule, run_rule
from envdoctor.rules.requirements import is_below, specifiers_for, versions_of
from envdoctor.rules.torch_install import COMPANIONS, other_cuda

IGNORED = frozenset({"PKG007"})  # the dependencies of other releases are not all in the tables
TORCH_PACKAGES = frozenset({"torch", *COMPANIONS})  # those with builds for each backend
MAX_TRIALS = 32  # evaluations for one remedy
MAX_TRIALS_OF_ALL = 300  # evaluations for all findings of an environment
MAX_VERSIONS = 12  # of the packages that a remedy names
MAX_COMBINATIONS = 8  # of them for which the versions of others are searched
MAX_CANDIDATES = 4
MAX_ADDITIONAL = 8  # packages that an alternative with changes of others changes more than the smallest one
# What a cure changes: the packages that a remedy names, others too, or some of them with another problem left.
ALONE, WITH_OTHERS, PARTIAL = range(3)
UNKNOWN = 99  # size of a remedy that the tables cannot judge

Key = tuple[str, frozenset[str]]  # rule, packages of its evidence


class Pins(NamedTuple):
    """Versions that cure a finding."""

    versions: dict[str, str]
    backend: str
    errors: int  # that remain in the environment
    warnings: int  # new ones
    changes: int  # ALONE, WITH_OTHERS or PARTIAL


class Trial(NamedTuple):
    """An installation: the versions that change, and the environment after it."""

    changed: dict[str, str]
    backend: str
    after: Stack
    found: list[Finding]


class Cure(NamedTuple):
    """A remedy, and the number of errors that remain and of packages that change."""

    size: int
    remedy: Remedy
    changes: int = 0  # ALONE, WITH_OTHERS or PARTIAL


def pin(machine: Machine, stack: Stack, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, with exact versions in their remedies where the tables contain the packages."""
    search = _Search(machine, stack)
    return [msgspec.structs.replace(finding, remedies=search.remedies(finding)) for finding in findings]


class _Search:
    def __init__(self, machine: Machine, stack: Stack) -> None:
        self.machine, self.installed = machine, stack
        self.whole = self.stack = stack = relevant_part(stack)
        self.rules = [rule for rule in RULES.values() if rule.needs_environment and rule.id not in IGNORED]
        self.before = {_key(finding): finding.status for finding in self.problems(stack)}
        self.removed: frozenset[str] = frozenset()  # packages that a remedy removes first
        self.known: dict[Hashable, Trial | None] = {}
        self.trials = 0
        self.second_best: Pins | None = None

    def problems(self, stack: Stack, rules: Sequence[Rule] = ()) -> list[Finding]:
        found = [finding for rule in rules or self.rules for finding in run_rule(rule, self.machine, stack)]
        return sorted(
            (each for each in found if each.status in ("error", "warning", "info")),
            key=lambda finding: ("error", "warning", "info").index(finding.status),
        )

    def remedies(self, finding: Finding) -> tuple[Remedy, ...]:
        """The alternatives with exact versions. One that cures nothing, or causes an error, is left out."""
        if not RULES[finding.id].needs_environment:
            return finding.remedies
        kept = [cure for remedy in finding.remedies if (cure := self.cure(finding, remedy))]
        if finding.id.startswith(VERSION_RULES):
            alone = any(cure.changes == ALONE for cure in kept)
            if not alone and (kept or finding.status in ("error", "warning")):
                named = {name: text for remedy in finding.remedies for name, text in _packages_of(remedy)}
                curing = any(cure.changes < PARTIAL for cure in kept)
                names = named if curing else dict.fromkeys(item.fact for item in finding.evidence)
                others = [
                    cure
                    for name in filter(in_tables, names)
                    if (cure := self.other_cure(finding, name, named.get(name, "")))
                ]
                kept += [cure for cure in others if cure.changes == ALONE or (cure.changes < PARTIAL and not kept)]
            kept = [cure for cure in kept if cure.changes < PARTIAL] or kept
            least = min((cure.size for cure in kept), default=0)
            kept = [cure for cure in kept if cure.size <= least + MAX_ADDITIONAL or cure.changes != WITH_OTHERS]
            kept = _without_additions(sorted(kept, key=lambda cure: cure.size))
        return tuple({cure.remedy.commands: cure.remedy for cure in kept}.values())

    def other_cure(self, finding: Finding, name: str, specifier: str) -> Cure | None:
        """Another release of one package: in the range of all packages that require it, else any.

        A rule that names newer releases is not cured by an older one, which may lack what the rule checks.
        """
        wanted = ",".join(dict.fromkeys(specifiers_for(self.whole, name).values()))
        installed = public_part(versions_of(self.whole).get(name, ""))
        direction = ""
        if satisfies(installed, specifier) is False:
            direction = f">{installed}" if is_below(installed, specifier) else f"<{installed}"
        best = None
        for text in dict.fromkeys((wanted, "")):
            requirement = name + ",".join(filter(None, (text, direction)))
            cure = self.cure(finding, remedy_of([Install(packages=(requirement,))]))
            best = min(filter(None, (best, cure)), key=lambda each: each.changes, default=None)
            if best and best.changes == ALONE:
                break
        return best

    def drops_requirement(self, finding: Finding, name: str, version: str) -> bool:
        """Whether an older release cures only because it does not declare a requirement of the installed one."""
        installed = public_part(versions_of(self.whole).get(name, ""))
        return not _is_at_most(installed, version) and any(
            required_specifier(name, installed, item.fact) and not required_specifier(name, version, item.fact)
            for item in finding.evidence
        )

    def cure(self, finding: Finding, remedy: Remedy) -> Cure | None:
        """A remedy with exact versions; None if it is no cure."""
        installs = _installs(remedy)
        removed = {name for each in remedy.steps if isinstance(each, Uninstall) for name in each.packages}
        self.removed, self.stack = frozenset(removed), without(self.whole, removed) if removed else self.whole
        if removed and not installs:
            errors = [each for each in self.problems(self.stack) if each.status == "error"]
            return Cure(len(errors) + len(removed), remedy)
        ranges = _ranges(installs[0]) if len(installs) == 1 else None
        if ranges is None or installs[0].from_source or not _is_searched(finding, installs[0], ranges):
            return Cure(UNKNOWN, remedy)
        if pins := self.pins(finding, _with_open_backend(finding, installs[0]), ranges):
            left = other_cuda(self.installed, cuda_name(pins.backend)) if "torch" in pins.versions else []
            left = [name for name in left if name not in removed]
            return Cure(pins.errors + len(pins.versions), _with_pins(remedy, installs[0], pins, left), pins.changes)
        return None if finding.id.startswith(VERSION_RULES) else Cure(UNKNOWN, remedy)

    def pins(self, finding: Finding, step: Install, ranges: dict[str, str]) -> Pins | None:
        """The first versions in these ranges for which the finding is gone and no rule reports another problem."""
        self.trials, self.second_best = 0, None
        lists = [
            _sample(
                [
                    each
                    for each in self.candidates(name, specifier)
                    if not self.drops_requirement(finding, name, each)
                ],
                MAX_VERSIONS // len(ranges),
            )
            for name, specifier in ranges.items()
        ]
        combinations = sorted(product(*map(range, map(len, lists))), key=sum)[:MAX_VERSIONS]
        for with_others in (False, True):
            for indexes in combinations[: MAX_COMBINATIONS if with_others else None]:
                chosen = {name: lists[i][index] for i, (name, index) in enumerate(zip(ranges, indexes, strict=True))}
                if pins := self.repair(_key(finding), step, chosen, with_others=with_others):
                    return pins
        return self.second_best

    def repair(self, target: Key, step: Install, chosen: dict[str, str], *, with_others: bool = True) -> Pins | None:
        """The versions, with those of other packages that avoid other problems."""
        trial = self.apply(step, chosen)
        if trial is None or target in map(_key, trial.found):
            return None
        changed, backend, after, found = trial
        new = [each for each in found if self.is_new(each)]
        installed = changed.keys() | set(step.reinstall)
        left = [each for each in found if each.status == "error" and each not in new and _is_on(each, installed)]
        errors = [each for each in found if each.status == "error"]
        present = versions_of(self.stack)
        versions = chosen | {name: version for name, version in changed.items() if name in present}
        changes = PARTIAL if left or new else WITH_OTHERS if with_others else ALONE
        pins = Pins(versions, backend, len(errors), len(new), changes)
        if not new and not left:
            return self.nearer(target, step, chosen, trial, with_others=with_others) or pins
        if not any(each.status == "error" for each in new):
            self.second_best = min(
                filter(None, (self.second_best, pins)), key=lambda each: (each.errors, each.warnings)
            )
        for name, version in self.companions([*new, *left][0], after, chosen) if with_others else ():
            if repaired := self.repair(target, step, chosen | {name: version}):
                return repaired
        return None

    def apply(self, step: Install, chosen: dict[str, str]) -> Trial | None:
        """The environment after an installation; None if uv rejects it or after too many trials."""
        key = (step.backend, step.reinstall, step.no_deps, self.removed, frozenset(chosen.items()))
        if key not in self.known:
            if self.trials >= MAX_TRIALS or len(self.known) >= MAX_TRIALS_OF_ALL:
                return None
            self.trials += 1
            self.known[key] = self.evaluate(step, chosen)
        return self.known[key]

    def evaluate(self, step: Install, chosen: dict[str, str]) -> Trial | None:
        """The versions that change, and the problems that all rules report afterwards."""
        changed = resolve(self.machine, self.stack, step, {name: f"=={version}" for name, version in chosen.items()})
        if changed is None or not self.fits_torch(changed):
            return None
        backend = step.backend
        if backend == "auto" or not TORCH_PACKAGES.isdisjoint(changed):
            backend = backend_for(self.machine, self.stack, step, changed)
        after = stack_after(self.machine, self.stack, changed, backend)
        return Trial(changed, backend, after, self.problems(after))

    def fits_torch(self, changed: dict[str, str]) -> bool:
        """Whether torchvision and torchaudio are for the torch; releases of torchaudio from 2.11 on require none."""
        torch = changed.get("torch") or public_part(versions_of(self.stack).get("torch", ""))
        return all(
            satisfies(torch, required_specifier(name, changed[name], "torch") or f">={changed[name]}") is not False
            for name in COMPANIONS
            if torch and name in changed
        )

    def is_new(self, finding: Finding) -> bool:
        """Whether an error or a warning is new, or was less severe before."""
        before = self.before.get(_key(finding), "info")
        return finding.status != "info" and before not in ("error", finding.status)

    def nearer(
        self, target: Key, step: Install, chosen: dict[str, str], trial: Trial, *, with_others: bool
    ) -> Pins | None:
        """The same cure with dependencies that are nearer to the installed ones than the newest release."""
        for name in sorted(trial.changed.keys() & versions_of(self.stack).keys() - chosen.keys()):
            wanted = ",".join(specifiers_for(trial.after, name).values())
            nearest = next(self.candidates(name, wanted), trial.changed[name])
            if nearest != trial.changed[name]:
                return self.repair(target, step, chosen | {name: nearest}, with_others=with_others)
        return None

    def companions(self, finding: Finding, stack: Stack, chosen: dict[str, str]) -> Iterator[tuple[str, str]]:
        """Versions of the other packages of a new problem that avoid it, nearest to the installed ones first."""
        rule = RULES[finding.id]
        present = versions_of(stack)
        names = dict.fromkeys(item.fact for item in finding.evidence)
        for name in sorted(names, key=versions_of(self.stack).__contains__):  # packages that are not installed first
            if name in chosen or name not in present:
                continue
            count = 0
            wanted = ",".join(specifiers_for(stack, name).values())
            for version in [*self.candidates(name, wanted), *self.candidates(name, "")]:
                trial = stack_after(self.machine, stack, {name: version}, "")
                if _key(finding) in map(_key, self.problems(trial, [rule])):
                    continue
                yield name, version
                count += 1
                if count == MAX_CANDIDATES:
                    break

    def candidates(self, name: str, specifier: str) -> Iterator[str]:
        """The newest release of each minor version in a range, nearest to the installed version first."""
        target = target_of(self.machine, self.stack, "")
        installed = public_part(versions_of(self.stack).get(name, ""))
        published = releases_in_range(name, specifier)
        rows = [row.version for row in published if row.has_wheel(target.platform, target.python)]
        rows = (
            rows
            or [row.version for row in published]
            or [
                version
                for version in releases_of(name)
                if satisfies(version, specifier) is not False and not is_prerelease(version)
            ]
        )
        if requirements := releases_of(name):  # a release that is not in the table may require anything
            rows = [version for version in rows if version in requirements or version == installed]
        newest: dict[str, str] = {}
        for version in rows:
            newest.setdefault(minor_of(version) if minor_of(version) != "0.0" else version, version)
        if installed in rows:
            newest[minor_of(installed)] = installed
        exact = re.fullmatch(r"==([^*,]+)", specifier)
        if not rows and exact and not is_withdrawn(name, exact[1]):
            yield exact[1]
        order = list(newest.values())
        position = next((i for i, each in enumerate(order) if _is_at_most(each, installed)), len(order))
        yield from sorted(order, key=lambda each: abs(order.index(each) - position)) if installed else order


def _is_at_most(version: str, limit: str) -> bool:
    left, right = version_key(version), version_key(limit)
    return bool(left and right and left <= right)


def _key(finding: Finding) -> Key:
    return finding.id, frozenset(item.fact for item in finding.evidence)


def _without_additions(cures: Sequence[Cure]) -> list[Cure]:
    """The cures, smallest first, without those that only add packages to a smaller one."""
    packages = [
        {text for step in _installs(cure.remedy) for text in (*step.packages, step.backend)} for cure in cures
    ]
    return [cure for i, cure in enumerate(cures) if not any(each and each < packages[i] for each in packages[:i])]


def _sample(versions: list[str], count: int) -> list[str]:
    """The nearest versions, and some of the others, with the last; versions are sorted by their distance."""
    nearest, others = versions[: count * 2 // 3], versions[count * 2 // 3 :]
    places = min(count - len(nearest), len(others))
    return [*nearest, *(others[(len(others) - 1) * (i + 1) // places] for i in range(places))]


def _packages_of(remedy: Remedy) -> Iterator[tuple[str, str]]:
    """The packages that a remedy installs, with their specifiers."""
    parsed = (parse_install_requirement(text, 0) for step in _installs(remedy) for text in step.packages)
    yield from ((each.name, each.specifier) for each in parsed if each)


def _installs(remedy: Remedy) -> list[Install]:
    return [step for step in remedy.steps if isinstance(step, Install)]


def _is_on(finding: Finding, packages: Collection[str]) -> bool:
    """Whether the evidence of a finding is the version of one of these packages."""
    return any(item.fact in packages for item in finding.evidence)


def _is_searched(finding: Finding, step: Install, ranges: dict[str, str]) -> bool:
    """Whether the versions are searched: for rules on versions, and for ranges of others."""
    return finding.id.startswith(VERSION_RULES) or (
        not step.reinstall and all(ranges.values()) and not all(each.startswith("==") for each in ranges.values())
    )


def _ranges(step: Install) -> dict[str, str] | None:
    """The ranges of the packages to install; None if the tables lack one of them."""
    parsed = [parse_install_requirement(text, 0) for text in step.packages]
    ranges = {each.name: each.specifier for each in parsed if each and not each.extras and not each.url}
    if len(ranges) < len(step.packages) or not all(map(in_tables, ranges)):
        return None
    return ranges


def _with_open_backend(finding: Finding, step: Install) -> Install:
    """The step with a backend that follows the release of torch; a rule names the one of the installed torch."""
    if step.reinstall or not step.backend or not finding.id.startswith(VERSION_RULES):
        return step
    return msgspec.structs.replace(step, backend="auto")


def _with_pins(remedy: Remedy, step: Install, pins: Pins, left: list[str]) -> Remedy:
    """The remedy with exact versions. Packages of another CUDA version that torch overwrites are removed first."""
    packages = tuple(f"{name}=={version}" for name, version in pins.versions.items())
    pinned = msgspec.structs.replace(step, packages=packages, backend=pins.backend)
    first = [Uninstall(packages=tuple(left))] if left else []
    return remedy_of([*first, *(pinned if each is step else each for each in remedy.steps)])
