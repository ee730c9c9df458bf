"""Whether the packages that a guide names accept the release of another one that a remedy would install."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from envdoctor.core.remedies import Install, Remedy
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import parse_requirement, required_specifier
from envdoctor.knowledge.versions import are_disjoint, dotted_numbers, public_part, satisfies
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage

_MAX_READ = 15  # packages whose requirements are requested


def excluding_package(
    index: IndexFacts, packages: Mapping[str, ResolvedPackage], name: str, version: str, *, python: str
) -> str:
    """A named package that requires another release than this one, `gradio 4.11.0`; empty if none does."""
    if not version:
        return ""
    named = (each for each in packages.values() if not each.is_dependency and each.version and each.name != name)
    for package in islice(named, _MAX_READ):
        for text in index.requires(package.name, package.version):
            bound = parse_requirement(text)
            is_open = bound is None or bound.name != name or not bound.applies_to(python)
            if bound and not is_open and satisfies(version, bound.specifier) is False:
                return f"{package.name} {public_part(package.version)}"
    return ""


def requirer_that_excludes(
    context: GuideContext, environment: CorrectedEnvironment, package: ResolvedPackage, version: str
) -> str:
    """The package that requires a dependency and excludes this release of it, `lmdeploy 0.18.0`, else empty."""
    requirer = environment.state.packages.get(package.reason.removeprefix("required by ").partition(" ")[0])
    if not (version and package.is_dependency and requirer and context.index_facts):
        return ""
    changed = environment.packages.get(requirer.name)
    if changed and public_part(changed.version) != public_part(requirer.version):
        return ""  # the correction has another release of it
    only = {requirer.name: requirer._replace(reason=requirer.name)}
    python = environment.state.python or context.trace.python
    return excluding_package(context.index_facts, only, package.name, version, python=python)


def excluding_range(context: GuideContext, requirer: ResolvedPackage, name: str, version: str, python: str) -> str:
    """The requirement of the guide of whose releases each excludes this release of another package; empty if not."""
    index = context.index_facts
    if index is None or not requirer.specifier or requirer.is_dependency:
        return ""
    listed = index.usable_releases(requirer.name)
    permitted = [each.version for each in listed if satisfies(each.version, requirer.specifier)]
    others = ({requirer.name: requirer._replace(version=each)} for each in permitted)
    is_unfit = 0 < len(permitted) <= _MAX_READ and all(
        excluding_package(index, only, name, version, python=python) for only in others
    )
    return requirer.reason if is_unfit else ""


def contradicted_pin(context: GuideContext, environment: CorrectedEnvironment, name: str, version: str) -> str:
    """Why a release cannot be installed with the pins of the guide, as their own requirements exclude each other.

    `torch 2.3.1 requires typing-extensions>=4.8.0, and tensorflow 2.4.0 requires typing-extensions~=3.7.4`.
    """
    index, state = context.index_facts, environment.state
    python = state.python or context.trace.python
    own = _bounds(index, name, version, python) if index and version else {}
    pinned = (
        each for each in state.packages.values() if each.pinned and not each.is_dependency and each.name != name
    )
    for package in islice(pinned, _MAX_READ if own else 0):
        bounds = _bounds(index, package.name, public_part(package.version), python) if index else {}
        for other in own.keys() & bounds.keys():
            if are_disjoint(own[other], bounds[other]):
                requirer = f"{package.name} {public_part(package.version)}"
                return (
                    f"{name} {version} requires {other}{own[other]}, and {requirer} requires {other}{bounds[other]}"
                )
    return ""


def _bounds(index: IndexFacts, name: str, version: str, python: str) -> dict[str, str]:
    """The ranges that a release requires, by package."""
    found = (parse_requirement(text) for text in index.requires(name, version))
    return {each.name: each.specifier for each in found if each and each.specifier and each.applies_to(python)}


def pinned_requirer(requirements: Sequence[InstallRequirement], name: str, version: str) -> tuple[str, str] | None:
    """The pin of a step that excludes a release, and its specifier: `("vllm 0.8.2", "==0.1.16")`, by the tables."""
    for requirement in requirements:
        pin = public_part(requirement.pin)
        specifier = required_specifier(requirement.name, pin, name) if pin and requirement.name != name else ""
        if specifier and satisfies(version, specifier) is False:
            return f"{requirement.name} {pin}", specifier
    return None


def changed_requirers(environment: CorrectedEnvironment, package: ResolvedPackage) -> list[str]:
    """The pins of the packages that require a dependency, of which the corrected environment has other releases."""
    pins: list[str] = []
    while package.is_dependency:
        name = package.reason.removeprefix("required by ").partition(" ")[0]
        requirer, corrected = environment.state.packages.get(name), environment.packages.get(name)
        if requirer is None or corrected is None or any(pin.startswith(f"{name}==") for pin in pins):
            break
        if public_part(corrected.version) != public_part(requirer.version):
            pins.append(f"{name}=={public_part(corrected.version)}")
        package = requirer
    return pins


def keeping_pins(remedies: tuple[Remedy, ...], environment: CorrectedEnvironment) -> tuple[Remedy, ...]:
    """The alternatives that leave the pins of the guide; all of them if none does."""
    pinned = {name for name, package in environment.state.packages.items() if package.pinned}
    kept = [
        each
        for each in remedies
        if pinned.isdisjoint(
            named.name
            for step in each.steps
            if isinstance(step, Install)
            for text in step.packages
            if (named := parse_requirement(text))
        )
    ]
    return tuple(kept) or remedies


def other_python(context: GuideContext, environment: CorrectedEnvironment, name: str, version: str) -> str:
    """The Python that a release needs if it has no wheel for the one that the audit assumes."""
    python = environment.state.python or context.trace.python
    release = find_release(name, version)
    if release is None or release.kind != "wheels" or not python or release.has_wheel("", python):
        return ""
    older = [each for each in release.pythons if satisfies(each, f"<{python}") is True]
    newest = max(older, key=dotted_numbers, default="")
    return f"with Python {newest}, as it has no wheel for {python}" if newest else f"it has no wheel for {python}"
