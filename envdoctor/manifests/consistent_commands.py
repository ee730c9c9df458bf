"""Commands for the findings of one file that agree: equal releases, and the packages that exclude them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, Remedy, remedy_of
from envdoctor.knowledge.releases import leading_name
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.tried_actions import install_of
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.known_breaks import bounds_of_breaks

PROBLEMS = ("error", "warning")


def without_other_torch(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings, the uncertain ones without commands for another torch than that of a certain one."""
    certain = {pin for each in findings if each.status in PROBLEMS for pin in _torch_pins(each.remedies[:1])}
    for each in findings:
        is_other = each.status == "unknown" and certain and not certain >= _torch_pins(each.remedies)
        yield replace(each, remedies=()) if is_other else each


def _torch_pins(remedies: Sequence[Remedy]) -> set[str]:
    texts = (text for remedy in remedies for step in installs_of(remedy) for text in step.packages)
    return {text for text in texts if text.startswith("torch==")}


def replaced_pins_of(remedies: Sequence[Remedy], own: AbstractSet[str]) -> dict[str, str]:
    """The pins of commands that those of other ones replace: "pysptk==0.1.18" -> "pysptk==1.0.1".

    These are the `own` pins of the guide and, where commands install different releases, all but the oldest one.
    """
    texts = dict.fromkeys(text for remedy in remedies for step in installs_of(remedy) for text in step.packages)
    parsed = [each for text in texts if (each := parse_install_requirement(text, 0)) and each.pin and not each.extras]
    chosen: dict[str, list[str]] = {}
    for each in parsed:
        if each.name not in TORCH_FAMILY and f"{each.name}=={each.pin}" not in own:
            chosen.setdefault(each.name, []).append(each.pin)
    oldest = {name: f"{name}=={min(pins, key=dotted_numbers)}" for name, pins in chosen.items()}
    pins = {*own, *(f"{name}=={pin}" for name, pins in chosen.items() for pin in pins)} - {*oldest.values()}
    return {pin: new for pin in pins if (new := oldest.get(pin.partition("==")[0]))}


def with_torch_of(remedies: Sequence[Remedy], remedy: Remedy) -> Remedy:
    """A remedy of one command with the torch and the companions that others of the file install."""
    step = remedy.steps[0] if len(remedy.steps) == 1 else None
    if not isinstance(step, Install) or any(leading_name(text) in TORCH_FAMILY for text in step.packages):
        return remedy
    texts = (text for each in remedies for other in installs_of(each) for text in other.packages)
    pins = dict.fromkeys(text for text in texts if "==" in text and leading_name(text) in TORCH_FAMILY)
    return remedy_of([replace(step, packages=(*step.packages, *pins))])


def with_pins(finding: Finding, replaced: dict[str, str]) -> Finding:
    """The finding with commands that state the pins which the other commands of the guide install."""
    remedies = [
        remedy_of([
            replace(step, packages=tuple(replaced.get(each, each) for each in step.packages))
            if isinstance(step, Install) else step for step in remedy.steps
        ])
        for remedy in finding.remedies
    ]  # fmt: skip
    if remedies == list(finding.remedies):
        return finding
    fix = finding.fix
    for old, new in replaced.items():
        for text, other in ((old, new), (old.replace("==", " "), new.replace("==", " "))):  # in a command, in words
            fix = re.sub(rf"(?<![\w.-]){re.escape(text)}(?![\w+]|\.\d)", other, fix)
    return replace(finding, fix=fix, remedies=tuple(remedies))


def installs_of(remedy: Remedy) -> list[Install]:
    """The installations of a remedy."""
    return [install for step in remedy.steps if (install := install_of(step))]


def without_release(fix: str, remedy: Remedy) -> str:
    """The words of a fix without the advice to use a release of a remedy that is no cure."""
    for text in (text for step in installs_of(remedy) for text in step.packages if "==" in text):
        name, _, version = text.partition("==")
        stated = rf"Use {re.escape(name)}(?:==| ){re.escape(version)}(?![\w+]|\.\d)"
        if found := re.match(rf"{stated}(?:.*?, or (?P<other>.+)|.*?\.(?: (?P<rest>.+))?$)", fix):
            other = f", or {found['other']}" if found["other"] else f". {found['rest']}" if found["rest"] else "."
            return f"Find out which release of {name} fits{other}"
    return fix


def with_bounds_of_breaks(context: GuideContext, state: EnvironmentState, finding: Finding) -> Finding:
    """The finding with commands that bound what their pins require and break with in its newest release.

    `datasets==2.13.2` requires any pyarrow, and cannot be imported with pyarrow 21 or newer.
    """
    remedies = [
        remedy_of([
            replace(step, packages=(*step.packages, *_bounds(context, state, step)))
            if isinstance(step, Install) and not step.no_deps else step for step in remedy.steps
        ])
        for remedy in finding.remedies
    ]  # fmt: skip
    return replace(finding, remedies=tuple(remedies)) if remedies != list(finding.remedies) else finding


def _bounds(context: GuideContext, state: EnvironmentState, step: Install) -> Iterator[str]:
    if (facts := context.index_facts) is None:
        return
    parsed = [each for text in step.packages if (each := parse_install_requirement(text, 0))]
    stated = {each.name for each in parsed} | {name for name, each in state.packages.items() if each.pinned}
    for each in parsed if facts else ():
        required = (
            (parse_install_requirement(text, 0) for text in facts.requires(each.name, each.pin)) if facts else ()
        )
        for name in {other.name for other in required if other and not other.marker} - stated if each.pin else ():
            bounds = [*bounds_of_breaks({each.name: each.pin}, name)]
            newest = facts.newest_release(name) if bounds and facts else None
            if newest and any(satisfies(newest.version, bound) is False for bound in bounds):
                yield f"{name}{','.join(bounds)}"


def with_excluding(
    context: GuideContext, state: EnvironmentState, finding: Finding, opened: Collection[str]
) -> Finding:
    """The finding with commands that have the `opened` packages which exclude their pins in an environment.

    These are packages that other commands of the file install in another release.
    """
    remedies = [
        remedy_of([
            _with_excluding(context, state, step, opened) if isinstance(step, Install) else step
            for step in remedy.steps
        ])
        for remedy in finding.remedies
    ]  # fmt: skip
    return replace(finding, remedies=tuple(remedies)) if remedies != list(finding.remedies) else finding


def _with_excluding(
    context: GuideContext, state: EnvironmentState, step: Install, opened: Collection[str]
) -> Install:
    """A step with the packages that exclude its pins: uv takes other releases of them."""
    if context.index_facts is None or step.no_deps or state.resolution in ("unresolved", "conflict"):
        return step
    installed = installed_set(context, state, ())
    parsed = [each for text in step.packages if (each := parse_install_requirement(text, 0))]
    left = {*opened} - {each.name for each in parsed}
    added: dict[str, None] = {}
    for each in parsed if left else ():
        current = state.packages.get(each.name)
        bounds = context.index_facts.specifiers_of(installed, each.name) if each.pin and current else {}
        for requirer, specifier in bounds.items():
            name = leading_name(requirer)
            if name in left and not state.packages[name].pinned and satisfies(each.pin, specifier) is False:
                added[name] = None
    return replace(step, packages=(*step.packages, *added)) if added else step
