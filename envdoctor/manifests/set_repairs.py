"""What the rules report about a solved set, and limits of its open packages that prevent it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date, timedelta

from packaging.requirements import Requirement

from envdoctor.core.remedies import Install
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import find_release, published_releases, releases_in_range
from envdoctor.knowledge.releases import is_before_requirements
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.corrected_pins import CorrectedSet
from envdoctor.manifests.corrections import Violation, evaluate_version_rules, version_rules
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.records import build_machine, build_stack
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.known_breaks import known_breaks
from envdoctor.rules.registry import Rule
from envdoctor.rules.wheel_cuda import WHEEL_CUDA

_MAX_CANDIDATES = 60
_DAYS_BEFORE_PINS = 365  # by which a release that the solver chooses may be older than the oldest pin
_DAYS_BEFORE_TODAY = 730  # the same without pins


def broken_rules(versions: Mapping[str, str], corrected: CorrectedSet) -> list[Violation]:
    """The errors of the version rules on solved packages, and wheels for another CUDA where a release fits."""
    violations = _violations(versions, corrected)
    return [each for each in violations if each.problem.status == "error" or _fitting_releases(each)
            or each.rule.id == "BNB001"]  # fmt: skip


def _fitting_releases(violation: Violation) -> dict[str, str]:
    """The releases for the CUDA of torch, by package, in place of a wheel for another one: `ctranslate2>=4.5,<5`."""
    if violation.rule.id != WHEEL_CUDA:
        return {}
    steps = (step for remedy in violation.problem.remedies for step in remedy.steps if isinstance(step, Install))
    return {Requirement(text).name: text for step in steps for text in step.packages}


def _violations(
    versions: Mapping[str, str], corrected: CorrectedSet, rules: Collection[Rule] = ()
) -> list[Violation]:
    packages = {name: ResolvedPackage(name, version, 0, "solved") for name, version in versions.items()}
    if torch := packages.get("torch"):
        packages["torch"] = torch._replace(cuda=corrected.cuda or cuda_on_pypi(torch.version, corrected.architecture))
    stack = build_stack(EnvironmentState(python=corrected.python), packages)
    machine = build_machine(GuideTrace(corrected.architecture, "", "", (), ()))
    return evaluate_version_rules(machine, stack, tuple(rules) or version_rules())


def limits_without(
    violations: Collection[Violation], versions: Mapping[str, str], corrected: CorrectedSet, fixed: Collection[str]
) -> list[str]:
    """A bound for an open package of each violation, with which its rule reports nothing: `numpy<=1.26.4`.

    `fixed` are the packages whose version the guide states. A dependency comes before a package that the text names,
    and an older release before a newer one, which needs newer releases of others.
    """
    limits: dict[str, str] = {}
    in_text = {place.name for place in corrected.places}
    for violation in violations:
        facts = [item.fact for item in violation.problem.evidence]
        if violation.rule.id.startswith("BNB"):
            facts.append("torch")  # the evidence is the CUDA version of torch
        names = [name for name in facts if name in versions and name not in fixed]
        breaks = {name: _limit_of_break(violation.rule.id, name) for name in names}
        for name in sorted(names, key=lambda each: (">=" in breaks[each], each in in_text)):
            limit = breaks[name] or _fitting_releases(violation).get(name, "")
            if not limit and (version := _older_version(name, violation.rule, versions, corrected)):
                limit = f"{name}<={version}"
            if limit:
                limits.setdefault(name, limit)
                break
    return list(limits.values())


def outdated_limits(
    versions: Mapping[str, str], corrected: CorrectedSet, fixed: Collection[str], limits: Collection[str] = ()
) -> list[str]:
    """A lower bound for each open package of which a solution has a release from long before the guide.

    A solver goes back to such releases, which declare fewer limits, where newer ones contradict the pins. A lower
    bound must not contradict the `limits` of the search.
    """
    bounds = {each.name: each.specifier for each in map(Requirement, limits)}
    day = oldest_permitted_day(corrected)
    named = {Requirement(text).name for text in corrected.requirements} - set(fixed)
    if corrected.cuda == corrected.stated_cuda.version:
        named -= TORCH_FAMILY  # new releases are not built for an old CUDA
    found = []
    for name in sorted(named & versions.keys()):
        version, releases = public_part(versions[name]), published_releases(name)
        release = find_release(name, version)
        is_older = bool(releases) and satisfies(version, f"<{releases[-1].version}") is True  # than the tables
        if is_older or (release and release.date < day):
            later = [row for row in releases_in_range(name, "") if row.date >= day]
            first = later[-1].version if later else ""
            is_possible = first and (name not in bounds or bounds[name].contains(first, prereleases=True))
            found += [f"{name}>={first}"] if is_possible else []
    return found


def oldest_permitted_day(corrected: CorrectedSet) -> str:
    """The day before which a release that a solver chooses is too old for a set."""
    last = date.fromisoformat(corrected.oldest_day) if corrected.oldest_day else date.today()
    days = _DAYS_BEFORE_PINS if corrected.oldest_day else _DAYS_BEFORE_TODAY
    return (last - timedelta(days=days)).isoformat()


def _limit_of_break(rule: str, name: str) -> str:
    """The releases of a package before those that a known break is about, or after them if newer ones are free of it.

    Empty for other rules.
    """
    conditions = (condition.partition(" ") for row in known_breaks() if row.id == rule for condition in row.when)
    for bounds in (bounds for package, _, bounds in conditions if package == name):
        first, end = re.search(r">=\s*([\w.]+)", bounds), re.search(r"<\s*([\w.]+)", bounds)
        if first or end:
            return f"{name}>={end[1]}" if end else f"{name}<{first[1] if first else ''}"
    return ""


def _older_version(name: str, rule: Rule, versions: Mapping[str, str], corrected: CorrectedSet) -> str:
    """The newest release before the solved one with which the rule reports less; empty if there is none."""
    count = len(_violations(versions, corrected, [rule]))
    older = releases_in_range(name, f"<{public_part(versions[name])}")[:_MAX_CANDIDATES]
    for row in older:
        if is_before_requirements(name, row.version):
            break
        if len(_violations({**versions, name: row.version}, corrected, [rule])) < count:
            return row.version
    return ""
