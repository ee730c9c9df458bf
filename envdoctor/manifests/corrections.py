"""Evaluates the version rules on the environments of a guide, and searches releases that satisfy the rules."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from datetime import date, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple

from msgspec.msgpack import decode, encode
from msgspec.structs import replace

from envdoctor.core.records import Machine, Stack
from envdoctor.knowledge.published import find_release, published_releases, releases_in_range
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.candidate_releases import at_version, candidate_versions
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.local_wheels import LOCAL_FOLDER
from envdoctor.manifests.numpy_limits import can_limit_numpy
from envdoctor.manifests.records import build_stack, with_toolkit
from envdoctor.manifests.target_build import BuildTarget
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage, ResolverTarget, resolve_with_fixed
from envdoctor.rules.registry import RULES, NotReadableError, Problem, Rule

# Rule families on package versions. Other checks cover files, GPUs and the driver.
_FAMILIES = (
    "PKG",
    "HF",
    "TRL",
    "VLLM001",
    "VLLM003",
    "FA",
    "BNB",
    "VERL",
    "DS",
    "RAY",
    "CUDNN",
    "KERN",
    "NPY",
    "EXT008",
)
# Wheels have a check of their own that reads the file name, and the package list of a guide is never complete.
# CUDNN003 is about libraries of a replaced torch, which RUN010 reports.
_EXCLUDED_RULES = frozenset({"PKG007", "FA001", "FA003", "PKG014", "CUDNN003"})
_MAX_TRIALS = 6
_MAX_RESOLUTIONS = 60
_MAX_SUBSTITUTIONS = 12
_MAX_DROP_ROUNDS = 6
_PERIOD_DAYS = 30  # the guide is assumed to be written at most this long after its newest pin

Packages = dict[str, ResolvedPackage]


class Violation(NamedTuple):
    """A rule and one problem that it reported."""

    rule: Rule
    problem: Problem


class Substitution(NamedTuple):
    """A version to pin in place of the resolved one, and the violation that it avoids."""

    package: ResolvedPackage
    version: str  # empty if no release avoids the violation
    violation: Violation
    pinned: bool  # the guide itself names the version of the package


class CorrectedEnvironment(NamedTuple):
    """A final environment of a guide, packages that satisfy the rules, and the substitutions for them.

    `substitutions` correct the environment as it resolves today. `all_pins` also contains those for `packages`, which
    are releases contemporary with the guide.
    """

    state: EnvironmentState
    packages: Packages
    substitutions: list[Substitution]
    all_pins: list[Substitution]


def _is_of_cpu_build(violation: Violation, packages: Packages) -> bool:
    """Whether a range of torch is judged for the triton of another torch: a CPU build does not require triton."""
    facts = {item.fact for item in violation.problem.evidence} & packages.keys()
    return {"torch", "triton"} <= facts and packages["torch"].cuda == "cpu" and packages["triton"].is_dependency


def _is_of_unpublished_wheel(violation: Violation, packages: Packages) -> bool:
    """Whether declared ranges are judged for a wheel from a local folder, which may declare others."""
    facts = {item.fact for item in violation.problem.evidence}
    if violation.rule.id in ("VLLM001", "VLLM003"):
        facts.add("vllm")
    is_declared = violation.rule.id.startswith(("PKG", "VLLM"))
    return is_declared and any(fact in packages and packages[fact].origin == LOCAL_FOLDER for fact in facts)


def _is_of_other_python(violation: Violation, state: EnvironmentState) -> bool:
    """Whether a declared range is judged for a Python that the tables do not cover: 3.9 has exact pins of its own."""
    return violation.rule.id == "PKG001" and bool(state.python) and satisfies(state.python, "<3.10") is True


@cache
def version_rules() -> tuple[Rule, ...]:
    """The rules about the releases of packages."""
    return tuple(
        rule
        for rule in RULES.values()
        if rule.id.startswith(_FAMILIES) and rule.id not in _EXCLUDED_RULES and rule.needs_environment
    )


def evaluate_version_rules(machine: Machine, stack: Stack, rules: Sequence[Rule]) -> list[Violation]:
    """The errors and warnings of these rules, errors first."""
    violations: list[Violation] = []
    for rule in rules:
        try:
            violations += [Violation(rule, worded_for_a_guide(problem)) for problem in rule.check(machine, stack)]
        except NotReadableError:
            continue
    serious = [violation for violation in violations if violation.problem.status in ("error", "warning")]
    return sorted(serious, key=lambda violation: violation.problem.status != "error")


def worded_for_a_guide(problem: Problem) -> Problem:
    """The problem of an environment that does not exist yet."""
    message, fix = (
        re.sub(r"\b(?:is|are) installed\b", "would be installed", t) for t in (problem.message, problem.fix)
    )
    return replace(problem, message=message, fix=fix)


def correct_environment(
    machine: Machine, state: EnvironmentState, target: ResolverTarget, build: BuildTarget
) -> CorrectedEnvironment:
    """Substitute releases until the rules report no problem, or no substitution helps.

    A torch whose release has no build for the driver and the GPUs is replaced by an older one, unless it is pinned.
    """
    frozen = tuple(tuple(each.items()) if isinstance(each, dict) else each for each in state)
    return _correct(encode(machine), frozen, target, build)


# An audit follows a guide again for each command that it tries and that the text mentions: most change no package.
@lru_cache(maxsize=64)
def _correct(
    machine: bytes, frozen: tuple[Any, ...], target: ResolverTarget, build: BuildTarget
) -> CorrectedEnvironment:
    state = EnvironmentState._make(frozen)
    state = state._replace(packages=dict(state.packages), requested=dict(state.requested))
    target = target._replace(period_end=estimate_period_end(state))
    search = _ReleaseSearch(with_toolkit(decode(machine, type=Machine), state), state, target)
    packages, substitutions = search.substitute_all(dict(state.packages))
    substitutions += search.solved_as_well(packages, substitutions)
    packages, contemporary = search.substitute_contemporary(packages)
    packages = search.with_fitting_torch(packages, build)
    today = {violation.problem.message for violation in search.violations(state.packages)}
    # A correction can have problems that the environment of today does not have.
    found = [s for s in substitutions if s.violation.problem.message in today]
    return CorrectedEnvironment(state, packages, found, [*substitutions, *contemporary])


class _ReleaseSearch:
    """Resolves the requirements of the guide again as one command, with one more pin for each trial."""

    def __init__(self, machine: Machine, state: EnvironmentState, target: ResolverTarget) -> None:
        self.machine = machine
        self.state = state
        self.target = target
        self.pins: dict[str, str] = {}
        self.judged: dict[Hashable, list[Violation]] = {}  # the violations of each set of packages
        self.resolutions = 0
        self.dropped: set[str] = set()  # pins of the guide that contradict its other pins
        self.known: dict[str, str] = {}  # versions from the tables, where a solver resolved the environment
        resolved = self.resolve(state.packages, {})
        # In an environment of conda, the dependencies that the tables lack are those of solved steps of pip.
        by_solver = any(each.is_dependency and not published_releases(each.name) for each in state.packages.values())
        if state.resolution in ("solved", "partial") or by_solver:
            self.known = {name: package.version for name, package in resolved.items()}

    def violations(self, packages: Packages, rules: Sequence[Rule] = ()) -> list[Violation]:
        key = tuple(packages.items()), tuple(rule.id for rule in rules)
        if key not in self.judged:
            found = evaluate_version_rules(self.machine, build_stack(self.state, packages), rules or version_rules())
            self.judged[key] = [
                violation
                for violation in found
                if not _is_of_unpublished_wheel(violation, packages)
                and not _is_of_cpu_build(violation, packages)
                and not _is_of_other_python(violation, self.state)
                and not (violation.rule.id == "NPY001" and can_limit_numpy(self.state))
            ]
        return self.judged[key]

    def resolve(self, packages: Packages, pins: dict[str, str]) -> Packages:
        """Resolve all packages that the guide names, with `pins`; empty if that is impossible.

        If ranges contradict each other, the range of the guide is dropped and the one of the dependency is kept.
        """
        self.resolutions += 1
        requested = {
            name: package
            for name, package in self.state.requested.items()
            if name not in self.dropped and "nightly" not in package.origin and not is_prerelease(package.version)
        }
        for _ in range(_MAX_DROP_ROUNDS):
            fixed = {
                name: package for name, package in requested.items() if package.origin != "PyPI" and name not in pins
            }
            specifiers = {
                name: f"=={package.version}" if name in fixed else package.specifier
                for name, package in requested.items()
            }
            specifiers |= {name: f"=={version}" for name, version in pins.items()}
            requirements = (InstallRequirement(name, specifier) for name, specifier in specifiers.items())
            resolution = resolve_with_fixed(self.target, tuple(requirements), tuple(fixed.values()))
            conflicting = {conflict.name for conflict in resolution.conflicts}
            dropped = {name for name in conflicting if name in requested and name not in pins}
            if pins and any(requested[name].pinned for name in dropped):
                return {}
            self.dropped |= {name for name in dropped if requested[name].pinned}
            if not dropped:
                break
            requested = {name: package for name, package in requested.items() if name not in dropped}
        if resolution.conflicts:
            return {}
        current = packages | self.state.packages | self.state.requested
        versions = {name: package.version for name, package in resolution.packages.items()}
        resolved = {n: current.get(n, p)._replace(version=versions[n]) for n, p in resolution.packages.items()}
        if "torch" in pins and "torch" in resolved:  # another release has another CUDA version
            resolved["torch"] = at_version(
                current.get("torch", resolved["torch"]), versions["torch"], self.target.platform
            )
        # What a pin changes in the tables, it changes in the solution.
        unchanged = {name for name, version in self.known.items() if versions.get(name) == version}
        return (
            self.state.packages | {n: p for n, p in resolved.items() if n not in unchanged}
            if self.known
            else resolved
        )

    def substitute_contemporary(self, packages: Packages) -> tuple[Packages, list[Substitution]]:
        """Resolve the guide with releases of its own time only. Used for the pins that the audit recommends."""
        self.target = self.target._replace(exclude_newer=min(self.target.exclude_newer, self.target.period_end))
        contemporary = self.resolve(packages, self.pins)
        if not contemporary:
            return packages, []
        contemporary, substitutions = self.substitute_all(contemporary)
        errors = [violation for violation in self.violations(contemporary) if violation.problem.status == "error"]
        if not errors or len(errors) <= len(self.violations(packages)):
            return contemporary, substitutions
        return packages, []

    def with_fitting_torch(self, packages: Packages, build: BuildTarget) -> Packages:
        """The packages with the newest torch that has a build for the driver and the GPUs, if it solves as well."""
        torch = packages.get("torch")
        is_nightly = torch is not None and "nightly" in torch.origin
        is_of_index = torch is not None and (torch.origin == "PyPI" or is_nightly)
        if torch is None or torch.pinned or not is_of_index or build.fitting_cuda(torch.version, "cpu"):
            return packages
        if is_nightly:
            version = next(iter(build.older_releases(torch.version)), "")
            return packages | {"torch": torch._replace(version=version, origin="PyPI")} if version else packages
        count = len(self.violations(packages))
        requested = self.state.requested.get("torch")
        pinned = [public_part(requested.version)] if requested and requested.pinned else []
        fitting = [version for version in pinned if build.fitting_cuda(version, "cpu")]
        for version in [*fitting, *build.older_releases(torch.version)]:
            if satisfies(version, torch.specifier) is False:
                continue
            trial = self.resolve(packages, self.pins | {"torch": version})
            if trial and len(self.violations(trial)) <= count:
                return trial
        return packages

    def substitute_all(self, packages: Packages) -> tuple[Packages, list[Substitution]]:
        """Substitute releases until the rules report no problem, or no substitution helps.

        A range of the guide is left only if no release in it helps, also not in the second pass, after the
        substitutions of other packages.
        """
        substitutions: list[Substitution] = []
        for in_range in (True, True, False):
            handled: set[str] = set()
            for _ in range(_MAX_SUBSTITUTIONS):
                violation = next((v for v in self.violations(packages) if v.problem.message not in handled), None)
                if violation is None:
                    break
                handled.add(violation.problem.message)
                substitution, packages = self.substitute(packages, violation, in_range=in_range)
                substitutions += [substitution] if substitution else []
        return packages, substitutions

    def solved_as_well(self, packages: Packages, substitutions: list[Substitution]) -> list[Substitution]:
        """The violations of packages that substitutions for others changed; without a version if they remain."""
        remaining = {_subject(violation) for violation in self.violations(packages)}
        handled = {substitution.violation.problem.message for substitution in substitutions}
        found: list[Substitution] = []
        for violation in self.violations(self.state.packages):
            names = [item.fact for item in violation.problem.evidence if item.fact in self.state.packages]
            changed = [
                name
                for name in names
                if name in packages and packages[name].version != self.state.packages[name].version
            ]
            if violation.problem.message not in handled and changed:
                package = self.state.packages[changed[0]]
                version = "" if _subject(violation) in remaining else packages[package.name].version
                found.append(Substitution(package, version, violation, package.pinned))
        return found

    def substitute(
        self, packages: Packages, violation: Violation, *, in_range: bool
    ) -> tuple[Substitution | None, Packages]:
        """Substitute one of the packages that the rule names. Packages that the guide does not pin come first.

        `in_range`: only by releases in the ranges of the guide; without one of them there is no substitution.
        """
        names = [item.fact for item in violation.problem.evidence if item.fact in packages]
        if violation.rule.id.startswith("BNB") and "torch" in packages and "torch" not in names:
            names.append("torch")  # its evidence is the CUDA version of torch
        unpinned_first = sorted(names, key=lambda name: (packages[name].pinned, packages[name].is_dependency))
        count = len(self.violations(packages))
        # A pin of the guide stays where another package is open, even one of which the tables have no releases.
        is_open = any(not packages[name].pinned and not published_releases(name) for name in names)
        tried = [name for name in unpinned_first if not (is_open and packages[name].pinned)]
        for name in tried:
            for version in self._versions_without(violation, packages, name, in_range=in_range):
                if is_open and self.known and satisfies(version, f">{public_part(packages[name].version)}"):
                    continue  # other packages exclude it: the solver selects the newest one
                trial = self.resolve(packages, self.pins | {name: version})
                if trial and len(self.violations(trial)) < count:
                    self.pins[name] = version
                    return Substitution(packages[name], version, violation, packages[name].pinned), trial
        if in_range or not unpinned_first:
            return None, packages
        for name in _requiring(names, packages):
            package = packages[name]
            current = public_part(package.version)
            for version in candidate_versions(name, package.specifier, current, self.target)[:_MAX_TRIALS]:
                trial = self.resolve(packages, self.pins | {name: version})
                if trial and len(self.violations(trial)) < count:
                    self.pins[name] = version
                    return Substitution(package, version, violation, pinned=False), trial
        pinned = all(packages[name].pinned for name in names)
        return Substitution(packages[unpinned_first[0]], "", violation, pinned), packages

    def _versions_without(self, violation: Violation, packages: Packages, name: str, *, in_range: bool) -> list[str]:
        """Versions of a package for which the rule reports fewer problems, newest first."""
        package = packages[name]
        if not in_range and (package.pinned or not package.specifier):
            return []  # all its versions were tried
        specifier = package.specifier if in_range and not package.pinned else ""
        versions: list[str] = []
        count = self._count(violation.rule, packages)
        for version in candidate_versions(name, specifier, public_part(package.version), self.target):
            trial = packages | {name: at_version(package, version, self.target.platform)}
            if self._count(violation.rule, trial) < count:
                versions.append(version)
            if len(versions) >= _MAX_TRIALS or self.resolutions > _MAX_RESOLUTIONS:
                break
        return versions

    def _count(self, rule: Rule, packages: Packages) -> int:
        return len(self.violations(packages, [rule]))


def _subject(violation: Violation) -> tuple[str, frozenset[str]]:
    return violation.rule.id, frozenset(item.fact for item in violation.problem.evidence)


def _requiring(names: Sequence[str], packages: Packages) -> list[str]:
    """The open packages because of which the dependencies among these are installed."""
    reasons = (packages[name].reason for name in names if packages[name].is_dependency)
    found = dict.fromkeys(reason.removeprefix("required by ").partition(" ")[0] for reason in reasons)
    return [name for name in found if name in packages and not packages[name].pinned and name not in names]


def estimate_period_end(state: EnvironmentState) -> str:
    """The last day of releases contemporary with the exact pins of the guide; "9" if it has fewer than two.

    Each lower bound of the guide has a release until then.
    """
    days = [
        row.date
        for package in state.packages.values()
        if package.pinned and (row := find_release(package.name, public_part(package.version)))
    ]
    if len(days) < 2:
        return "9"
    end = (date.fromisoformat(max(days)) + timedelta(days=_PERIOD_DAYS)).isoformat()
    bounded = (each for each in state.requested.values() if ">" in each.specifier)
    ranges = (releases_in_range(each.name, each.specifier) for each in bounded)
    return max([end, *(min(row.date for row in releases) for releases in ranges if releases)])
