"""Exact versions for the remedies of findings.

A rule names the packages to change and their ranges. The search selects the releases nearest to the installed ones
for which the finding is gone and no rule reports a new problem, and changes other packages with them if necessary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from envdoctor.core.records import Finding, Machine, Stack, known
from envdoctor.core.remedies import Install, Remedy, Uninstall, remedy_of
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import releases_of
from envdoctor.knowledge.versions import is_prerelease, minor_of, public_part, satisfies, version_key
from envdoctor.remedies.affected import VERSION_RULES
from envdoctor.remedies.simulate import backend_for, in_tables, relevant_part, resolve, stack_after, target_of
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.torch_sources import cuda_name
from envdoctor.rules import RULES
from envdoctor.rules.registry import Rule, run_rule
from envdoctor.rules.requirements import specifiers_for, versions_of
from envdoctor.rules.torch_install import other_cuda

IGNORED = frozenset({"PKG007"})  # the dependencies of other releases are not all in the tables
TORCH_PACKAGES = frozenset({"torch", "torchvision", "torchaudio"})  # those with builds for each backend
MAX_TRIALS = 24  # evaluations for one remedy
MAX_TRIALS_OF_ALL = 100  # evaluations for all findings of an environment
MAX_COMBINATIONS = 8
MAX_CANDIDATES = 4
UNKNOWN = 99  # size of a remedy that the tables cannot judge

Key = tuple[str, frozenset[str]]  # rule, packages of its evidence


class Pins(NamedTuple):
    """Versions that cure a finding."""

    versions: dict[str, str]
    backend: str
    errors: int  # that remain in the environment
    warnings: int  # new ones


class Cure(NamedTuple):
    """A remedy, and the number of errors that remain and of packages that change."""

    size: int
    remedy: Remedy


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
        self.trials, self.all_trials = 0, 0
        self.only_warnings: Pins | None = None

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
            if not kept and finding.status in ("error", "warning"):
                names = dict.fromkeys(item.fact for item in finding.evidence if in_tables(item.fact))
                others = (remedy_of([Install(packages=(name,))]) for name in names)
                kept = [cure for remedy in others if (cure := self.cure(finding, remedy))]
            kept.sort(key=lambda cure: cure.size)
        return tuple({cure.remedy.commands: cure.remedy for cure in kept}.values())

    def cure(self, finding: Finding, remedy: Remedy) -> Cure | None:
        """A remedy with exact versions; None if it is no cure."""
        installs = [step for step in remedy.steps if isinstance(step, Install)]
        removed = {name for each in remedy.steps if isinstance(each, Uninstall) for name in each.packages}
        self.stack = _without(self.whole, removed)
        if removed and not installs:
            errors = [each for each in self.problems(self.stack) if each.status == "error"]
            return Cure(len(errors) + len(removed), remedy)
        ranges = _ranges(installs[0]) if len(installs) == 1 else None
        if ranges is None or installs[0].from_source or not _is_searched(finding, installs[0], ranges):
            return Cure(UNKNOWN, remedy)
        if pins := self.pins(finding, _with_open_backend(finding, installs[0]), ranges):
            left = other_cuda(self.installed, cuda_name(pins.backend)) if "torch" in pins.versions else []
            left = [name for name in left if name not in removed]
            return Cure(pins.errors + len(pins.versions), _with_pins(remedy, installs[0], pins, left))
        return None if finding.id.startswith(VERSION_RULES) else Cure(UNKNOWN, remedy)

    def pins(self, finding: Finding, step: Install, ranges: dict[str, str]) -> Pins | None:
        """The first versions in these ranges for which the finding is gone and no rule reports a new problem."""
        self.trials, self.only_warnings = 0, None
        lists = [list(self.candidates(name, specifier))[: 12 // len(ranges)] for name, specifier in ranges.items()]
        combinations = sorted(product(*map(range, map(len, lists))), key=sum)[:MAX_COMBINATIONS]
        for indexes in combinations:
            chosen = {name: lists[i][index] for i, (name, index) in enumerate(zip(ranges, indexes, strict=True))}
            if pins := self.repair(_key(finding), step, chosen):
                return pins
        return self.only_warnings

    def repair(self, target: Key, step: Install, chosen: dict[str, str]) -> Pins | None:
        """The versions with those of other packages that avoid new problems."""
        if self.trials >= MAX_TRIALS or self.all_trials >= MAX_TRIALS_OF_ALL:
            return None
        self.trials, self.all_trials = self.trials + 1, self.all_trials + 1
        changed = resolve(self.machine, self.stack, step, chosen)
        if changed is None:
            return None
        backend = step.backend
        if backend == "auto" or not TORCH_PACKAGES.isdisjoint(changed):
            backend = backend_for(self.machine, self.stack, step, changed)
        after = stack_after(self.machine, self.stack, changed, backend)
        found = self.problems(after)
        if target in map(_key, found):
            return None
        new = [each for each in found if self.is_new(each)]
        errors = [each for each in found if each.status == "error"]
        present = versions_of(self.stack)
        versions = chosen | {name: version for name, version in changed.items() if name in present}
        pins = Pins(versions, backend, len(errors), len(new))
        if not new:
            return self.nearer(target, step, chosen, changed, after) or pins
        if new[0].status == "warning" and (not self.only_warnings or len(new) < self.only_warnings.warnings):
            self.only_warnings = pins
        for name, version in self.companions(new[0], after, chosen):
            if repaired := self.repair(target, step, chosen | {name: version}):
                return repaired
        return None

    def is_new(self, finding: Finding) -> bool:
        """Whether an error or a warning is new, or was less severe before."""
        before = self.before.get(_key(finding), "info")
        return finding.status != "info" and before not in ("error", finding.status)

    def nearer(
        self, target: Key, step: Install, chosen: dict[str, str], changed: dict[str, str], after: Stack
    ) -> Pins | None:
        """The same cure with dependencies that are nearer to the installed ones than the newest release."""
        for name in sorted(changed.keys() & versions_of(self.stack).keys() - chosen.keys()):
            wanted = ",".join(specifiers_for(after, name).values())
            nearest = next(self.candidates(name, wanted), changed[name])
            if nearest != changed[name]:
                return self.repair(target, step, chosen | {name: nearest})
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
        newest: dict[str, str] = {}
        for version in rows:
            newest.setdefault(minor_of(version) if minor_of(version) != "0.0" else version, version)
        if installed in rows:
            newest[minor_of(installed)] = installed
        if not rows and (exact := re.fullmatch(r"==([^*,]+)", specifier)):
            yield exact[1]
        order = list(newest.values())
        position = next((i for i, each in enumerate(order) if _is_at_most(each, installed)), len(order))
        yield from sorted(order, key=lambda each: abs(order.index(each) - position)) if installed else order


def _is_at_most(version: str, limit: str) -> bool:
    left, right = version_key(version), version_key(limit)
    return bool(left and right and left <= right)


def _key(finding: Finding) -> Key:
    return finding.id, frozenset(item.fact for item in finding.evidence)


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


def _without(stack: Stack, removed: set[str]) -> Stack:
    """The stack without packages that a step removes."""
    if not removed:
        return stack
    distributions = {name: each for name, each in (stack.distributions.value or {}).items() if name not in removed}
    return msgspec.structs.replace(stack, distributions=known(distributions, stack.distributions.source))


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
