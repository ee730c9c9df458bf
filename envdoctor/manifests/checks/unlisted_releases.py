"""Problems with pins that are older or newer than all releases of the built-in tables."""

from __future__ import annotations

import re

from envdoctor.core.command_line import command_line
from envdoctor.knowledge.age import can_update
from envdoctor.knowledge.published import PublishedRelease, date_read, earliest_release, published_releases
from envdoctor.knowledge.versions import is_prerelease, public_part
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, install_step, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.rules.registry import Problem

PYPI = "release list of PyPI"


def is_on_index(context: GuideContext, requirement: InstallRequirement) -> bool:
    """Whether the package index has the pinned release."""
    index = context.index_facts
    return index is not None and index.published(requirement.name, public_part(requirement.pin)) is not None


def index_lacks(install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether uv read the index and found no such release, also if the index has newer ones than the tables."""
    conflicts = (install.resolution.conflict, *install.resolution.further_conflicts)
    name, pin = re.escape(requirement.name), re.escape(requirement.pin)
    missing = re.compile(rf"no version of {name}(?:\[[^\]]*\])?=={pin}(?![\w.+])")
    return bool(pin) and any(map(missing.search, conflicts))


def unlisted_release(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement, line: int
) -> Problem:
    """A version that is newer than the releases of the index."""
    name, python = requirement.name, install.before.python or context.trace.python
    found = context.index_facts.newest_release(name) if context.index_facts else None
    final = [each for each in published_releases(name) if not (each.yanked or is_prerelease(each.version))]
    usable = next((each for each in final if each.has_wheel(context.platform, python)), final[0])
    newest = found.version if found else final[0].version
    pin = f"{name}=={usable.version}"
    return Problem(
        "error",
        f"{requirement.text}: the package index has no such release; the newest is {newest}",
        (
            guide_evidence(context, name, requirement.text, line),
            table_evidence(name, f"no release {requirement.pin}, newest {newest}", "the package index"),
        ),
        f"Use {pin}.",
        install_step(pin),
        line=line,
    )


def older_releases(context: GuideContext, older: list[tuple[InstallRequirement, int]]) -> Problem:
    """The pins that are older than the first releases of the tables, as one problem."""
    requirements = [requirement for requirement, _ in older]
    oldest = {each.name: earliest_release(each.name) for each in requirements}
    tables = {name: f"oldest {release.version} of {release.date}" for name, release in oldest.items() if release}
    (first, line), *others = older
    if others:
        more = f" and {len(others)} more are" if len(others) > 1 else f" and {others[0][0].text} are"
        message = f"{first.text}{more} older than the built-in tables: their wheels were not checked"
    else:
        table = tables[first.name]
        message = f"{first.text} is older than the built-in tables ({table}): its wheels were not checked"
    return Problem(
        "unknown",
        message,
        tuple(
            item
            for requirement, place in older
            for item in (
                guide_evidence(context, requirement.name, requirement.text, place),
                table_evidence(requirement.name, tables[requirement.name], PYPI, date_read(requirement.name)),
            )
        ),
        "",
        line=line,
    )


def newer_release(
    context: GuideContext, requirement: InstallRequirement, line: int, newest: PublishedRelease
) -> Problem:
    """A version that is newer than the table."""
    name, has_command = requirement.name, can_update()
    table = f"newest {newest.version} of {newest.date}"
    return Problem(
        "unknown",
        f"{requirement.text} is newer than the built-in tables ({table}): its wheels were not checked",
        (guide_evidence(context, name, requirement.text, line), table_evidence(name, table, PYPI, date_read(name))),
        f"{'Newer tables' if has_command else 'A newer envdoctor'} may know it.",
        guide_command(command_line("envdoctor", "update")) if has_command else (),
        line=line,
    )
