"""One release of a package for all names and calls of the programs of a checkout."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import date, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, remedy_of
from envdoctor.knowledge.published import PublishedRelease, find_release
from envdoctor.knowledge.versions import dotted_numbers, public_part, satisfies
from envdoctor.manifests.checks.program_imports import names_of_module
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import launches_of
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.pinned_steps import resolve_with_pin
from envdoctor.resolution.resolver import Resolution

_OF_PROGRAMS = frozenset({"RUN078", "RUN222"})  # names that programs use, and calls
_MAX_OLDER = timedelta(days=365)  # by which a release that a solver goes back to is older than the pin that needs it


class _Effect(NamedTuple):
    """What a pin changes in the step that brings its package."""

    obstacle: str = ""  # the reason for which the step cannot install it
    depends_on_python: bool = False
    further: tuple[str, ...] = ()  # releases that only fit the pin, and packages that the step then lacks


def with_one_release(context: GuideContext, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those on programs with the oldest release that one of them names for the package.

    A newer release cures one finding and leaves another. A release that the step cannot install gets no command.
    """
    pins = {number: pin for number, each in enumerate(findings) if (pin := _pin(each))}
    oldest: dict[str, str] = {}
    for name, version in pins.values():
        oldest[name] = min(version, oldest.get(name, version), key=dotted_numbers)
    effects = {name: _effect(context, name, version) for name, version in oldest.items()}
    found = list(findings)
    for number, (name, version) in pins.items():
        effect = effects[name]
        remedy = remedy_of([Install(packages=(f"{name}=={oldest[name]}", *effect.further))])
        fix = found[number].fix.replace(version, oldest[name])
        # Where the guide names no Python, a set can have an older one.
        is_open = effect.depends_on_python and not any(install.before.python for install in context.trace.installs)
        remedies = (remedy,) if is_open or not effect.obstacle else ()
        found[number] = replace(found[number], fix=f"{fix} {effect.obstacle}".rstrip(), remedies=remedies)
    return found


def _pin(finding: Finding) -> tuple[str, str] | None:
    """The package and the release that the command of a finding on programs installs."""
    if finding.id not in _OF_PROGRAMS or len(finding.remedies) != 1:
        return None
    match finding.remedies[0].steps:
        case (Install(packages=(package,)),):
            name, _, version = package.partition("==")
            return (name, version) if version else None
    return None


def _effect(context: GuideContext, name: str, version: str) -> _Effect:
    for install in context.trace.installs:
        for each in install.action.requirements:
            if each.name == name and not each.pin and satisfies(version, each.specifier) is False:
                return _Effect(f"Line {each.line or install.action.line} excludes it: {name}{each.specifier}.")
    brings = [install for install in context.trace.installs if name in install.resolution.packages]
    if not brings or not (resolution := resolve_with_pin(brings[-1], f"{name}=={version}", context.solver)):
        return _Effect()
    if resolution.state == "conflict":
        return _Effect(f"The other requirements of line {brings[-1].action.line} exclude it.")
    python = brings[-1].before.python or context.trace.python
    for built in sorted(resolution.built - brings[-1].resolution.built):
        release = _release(context, built, resolution.packages[built].version)
        if release and release.kind == "wheels":  # a project without any wheel is built for each Python
            text = f"It needs another Python: {built} {release.version} has no wheel for {python}."
            return _Effect(text, depends_on_python=True)
    return _with_others(context, brings[-1], resolution, (name, version))


def _with_others(
    context: GuideContext, install: InstallStep, resolution: Resolution, pin: tuple[str, str]
) -> _Effect:
    """The releases of named packages that get older with a pin, and what programs import and it does not bring."""
    release, further = _release(context, *pin), list[str]()
    for requirement in install.action.requirements:
        before, after = (
            public_part(found.packages[requirement.name].version) if requirement.name in found.packages else ""
            for found in (install.resolution, resolution)
        )
        if requirement.name == pin[0] or not after or dotted_numbers(after) >= dotted_numbers(before):
            continue
        other = _release(context, requirement.name, after)
        if release and other and date.fromisoformat(other.date) + _MAX_OLDER < date.fromisoformat(release.date):
            return _Effect(f"With it, the step gets {requirement.name} {after} of {other.date}.")
        further.append(f"{requirement.name}=={after}")
    lost = install.resolution.packages.keys() - resolution.packages.keys()
    return _Effect(further=(*further, *sorted(_imported(context, lost, resolution))))


def _imported(context: GuideContext, lost: AbstractSet[str], resolution: Resolution) -> set[str]:
    """The packages, of those that a resolution lost, whose modules programs import."""
    checkout, found = context.guide.checkout, set[str]()
    for each in checkout.reached(launches_of(context)) if checkout and lost else ():
        names = names_of_module(each.statement.top)
        found |= names & lost if names.isdisjoint(resolution.packages) else set()
    return found


def _release(context: GuideContext, name: str, version: str) -> PublishedRelease | None:
    index = context.index_facts
    return find_release(name, version) or (index.published(name, version) if index else None)
