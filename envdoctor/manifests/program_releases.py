"""One release of a package for all names and calls of the programs of a checkout."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, remedy_of
from envdoctor.knowledge.published import PublishedRelease, find_release
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.pinned_steps import resolve_with_pin

_OF_PROGRAMS = frozenset({"RUN078", "RUN222"})  # names that programs use, and calls


def with_one_release(context: GuideContext, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those on programs with the oldest release that one of them names for the package.

    A newer release cures one finding and leaves another. A release that the step cannot install gets no command.
    """
    pins = {number: pin for number, each in enumerate(findings) if (pin := _pin(each))}
    oldest: dict[str, str] = {}
    for name, version in pins.values():
        oldest[name] = min(version, oldest.get(name, version), key=dotted_numbers)
    obstacles = {name: _obstacle(context, name, version) for name, version in oldest.items()}
    found = list(findings)
    for number, (name, version) in pins.items():
        remedy = remedy_of([Install(packages=(f"{name}=={oldest[name]}",))])
        fix, obstacle = found[number].fix.replace(version, oldest[name]), obstacles[name]
        # Where the guide names no Python, a set can have an older one.
        has_command = not obstacle or not any(install.before.python for install in context.trace.installs)
        remedies = (remedy,) if has_command else ()
        found[number] = replace(found[number], fix=f"{fix} {obstacle}".rstrip(), remedies=remedies)
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


def _obstacle(context: GuideContext, name: str, version: str) -> str:
    """The reason for which the step that brings a package cannot install a release; empty if it can."""
    brings = [install for install in context.trace.installs if name in install.resolution.packages]
    if not brings or not (resolution := resolve_with_pin(brings[-1], f"{name}=={version}", context.solver)):
        return ""
    if resolution.state == "conflict":
        return f"The other requirements of line {brings[-1].action.line} exclude it."
    python = brings[-1].before.python or context.trace.python
    for each in sorted(resolution.built - brings[-1].resolution.built):
        release = _release(context, each, resolution.packages[each].version)
        if release and release.kind == "wheels":  # a project without any wheel is built for each Python
            return f"It needs another Python: {each} {release.version} has no wheel for {python}."
    return ""


def _release(context: GuideContext, name: str, version: str) -> PublishedRelease | None:
    index = context.index_facts
    return find_release(name, version) or (index.published(name, version) if index else None)
