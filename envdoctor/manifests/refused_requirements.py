"""A guide without the requirements that make a step fail: what else is wrong with it."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Install
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.interpreter import GuideTrace, InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY

MAX_ROUNDS = 3  # a later step can have a conflict of its own
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ABSENT = lazy_pattern(
    rf"no version of ({_NAME})|({_NAME}) was not found in the package registry|({_NAME})==\S+ has no "
)
_EXACT = lazy_pattern(rf"({_NAME})(?:[=<>!~]\S+)? depends? on ({_NAME})(?:\[[^\]]*\])?==")
_FOR_OTHERS = lazy_pattern(r"torch[-_](?:npu|xla|directml|mlu|musa)|intel[-_]extension")
_WORD = lazy_pattern(_NAME)


class ReducedGuide(NamedTuple):
    """A guide and the requirements that it was left without."""

    guide: Guide
    refused: tuple[str, ...]


def without_refused(guide: Guide, trace: GuideTrace) -> ReducedGuide | None:
    """The guide without the requirements of which no release can be installed; None if there are none.

    The requirements that remain must not get other releases than those that a corrected step would have: a package of
    the tables is only left out if another requirement fixes its release.
    """
    refused = {
        (install.action.line, each.text): each
        for install in trace.installs
        for conflict in (install.resolution.conflict, *install.resolution.further_conflicts)
        for each in _refused(install, conflict)
    }
    if not refused or any(_FOR_OTHERS.match(text) for _, text in refused):
        return None  # nothing, or an environment for the accelerators of another vendor
    actions = tuple(
        action._replace(requirements=tuple(
            each for each in action.requirements if (action.line, each.text) not in refused
        ))
        if isinstance(action, Install) else action
        for action in guide.actions
    )  # fmt: skip
    reduced = guide._replace(actions=actions, left_out=(*guide.left_out, *refused.values()))
    return ReducedGuide(reduced, tuple(sorted({text for _, text in refused})))


def lines_of_conflicts(trace: GuideTrace) -> set[int]:
    """The lines of the steps without a solution, and of their requirements."""
    failing = [each.action for each in trace.installs if each.resolution.conflict]
    return {line for action in failing for line in (action.line, *(each.line for each in action.requirements))}


def _refused(install: InstallStep, conflict: str) -> list[InstallRequirement]:
    """The requirements without which a conflict does not occur."""
    absent = {normalize_name(next(filter(None, each))) for each in _ABSENT.findall(conflict)}
    words = {normalize_name(word) for word in _WORD.findall(conflict)}
    named = [each for each in install.action.requirements if each.name in words]
    pinned = {each.name for each in install.action.requirements if each.pin}
    fixed = {
        normalize_name(name) for requiring, name in _EXACT.findall(conflict)
        if normalize_name(requiring) in pinned or not _is_judged(normalize_name(name))
    }  # fmt: skip
    for group in ({name for name in absent if not _is_judged(name)}, fixed - absent):
        if found := [each for each in named if each.name in group]:
            return found
    return [each for each in named if not _is_judged(each.name)]


def _is_judged(name: str) -> bool:
    """Whether the tables have the package, so that its release decides about others."""
    return name in TORCH_FAMILY or bool(published_releases(name))
