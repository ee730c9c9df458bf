"""Checks on versions that were never released or were yanked, and on ranges without a release."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from envdoctor.knowledge.published import (
    PublishedRelease,
    date_read,
    is_older_than_table,
    nearest_release,
    published_releases,
    usable_release,
)
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.actions import Install, has_unlisted_torch
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS, build_of_step
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import pinned_requirer
from envdoctor.manifests.checks.unlisted_releases import (
    PYPI,
    index_lacks,
    is_on_index,
    newer_release,
    older_releases,
    unlisted_release,
)
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import COMPANIONS

CHECKED_BY_NAME = frozenset({"flash-attn", "flash-attn-3", "triton-kernels", "pynvml"})  # see names.py


def iter_requirements(context: GuideContext) -> Iterator[tuple[InstallStep, InstallRequirement, int]]:
    """All requirements that are installed from an index, with their lines."""
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if not requirement.url:
                yield install, requirement, line_of(context, requirement.line, requirement.text)


@rule(
    "RUN001", kind="guide", severity=("error", "warning", "unknown"), cause="dependency-pin-violated", url=SPECIFIERS
)
def release_does_not_exist(context: GuideContext) -> Iterator[Problem]:
    """A step requires a version that was never released or was yanked, or a range without a release."""
    older: dict[str, tuple[InstallRequirement, int]] = {}
    for install, requirement, line in iter_requirements(context):
        releases = published_releases(requirement.name)
        if not releases or not requirement.specifier or requirement.name in CHECKED_BY_NAME:
            continue
        is_torch_unlisted = requirement.name in TORCH_FAMILY and has_unlisted_torch(install.action)
        if install.action.tool == "conda" or is_torch_unlisted:
            continue
        specifier = requirement.specifier.partition("+")[0]
        matching = [release for release in releases if satisfies(release.version, specifier) is not False]
        is_older = not matching and is_older_than_table(requirement.name, public_part(requirement.pin))
        if is_older and not index_lacks(install, requirement):
            if not is_on_index(context, requirement):
                older.setdefault(requirement.name, (requirement, line))
        elif not matching and not _is_unlisted_prerelease(context, install, requirement):
            problem = _missing_release(context, install, requirement, line, releases)
            yield _without_contradiction(install.action, requirement, problem)
        elif matching and all(release.yanked for release in matching):
            problem = _yanked_release(context, install, requirement, line, matching[0])
            yield _without_contradiction(install.action, requirement, problem)
    if older:
        yield older_releases(context, list(older.values()))


def _is_unlisted_prerelease(context: GuideContext, install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether the index has a prerelease, of which the tables list few: those for developers are absent."""
    pin = requirement.pin
    if not pin or not is_prerelease(pin):
        return False
    is_unknown = "dev" in pin and requirement.name not in TORCH_FAMILY and not index_lacks(install, requirement)
    return is_unknown or is_on_index(context, requirement)


def _without_contradiction(action: Install, requirement: InstallRequirement, problem: Problem) -> Problem:
    """The problem without a remedy that another pin of the same step excludes."""
    name = requirement.name
    proposed = re.search(rf"{re.escape(name)}==([\w.!+]+\w)", problem.fix)
    excluding = pinned_requirer(action.requirements, name, proposed[1]) if proposed else None
    if not excluding:
        return problem
    requirer, specifier = excluding
    package = requirer.partition(" ")[0]
    fitting = (each for each in published_releases(name) if not each.yanked and satisfies(each.version, specifier))
    if fits := next(fitting, None):
        pin = f"{name}=={fits.version}"
        return replace(problem, fix=f"Use {pin}: {requirer} requires {name}{specifier}.", remedies=install_step(pin))
    is_absent = problem.status == "error"
    result = "the requirements cannot be installed" if is_absent else "no other release fits"
    fix = f"{requirer} requires {name}{specifier}, so that {result}: use another release of {package}."
    return replace(problem, fix=fix, remedies=())


def _yanked_release(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement, line: int, release: PublishedRelease
) -> Problem:
    name = requirement.name
    pin = f"{name}=={(usable_release(name, release.version) or release).version}"
    return Problem(
        "warning",
        f"{requirement.text}: this release was yanked by its authors",
        (
            guide_evidence(context, name, requirement.text, line),
            table_evidence(name, f"{release.version} yanked", PYPI, date_read(name)),
        ),
        f"Use {pin}.",
        install_step(pin, backend=build_of_step(install, name, requirement.specifier)),
        line=line,
    )


def _missing_release(
    context: GuideContext,
    install: InstallStep,
    requirement: InstallRequirement,
    line: int,
    releases: tuple[PublishedRelease, ...],
) -> Problem:
    name, version = requirement.name, public_part(requirement.pin)
    newest = next((release for release in releases if not is_prerelease(release.version)), releases[0])
    is_newer = bool(version and satisfies(version, f">{newest.version}"))
    nearest = (nearest_release(name, version) if version else None) or newest
    if is_newer and index_lacks(install, requirement):
        return unlisted_release(context, install, requirement, line)
    if is_newer and context.trace.today >= date_read(name):  # it can also be uploaded later on the day of the table
        return newer_release(context, requirement, line, newest)
    table = f"{len(releases)} releases, newest {newest.version} of {newest.date}"
    return Problem(
        "error",
        f"{requirement.text}: {name} has {'no such release' if version else 'no release in this range'}; "
        f"the newest is {newest.version}, the nearest {nearest.version}",
        (guide_evidence(context, name, requirement.text, line), table_evidence(name, table, PYPI, date_read(name))),
        f"Use {name}=={nearest.version}.",
        install_step(f"{name}=={nearest.version}", backend=build_of_step(install, name, requirement.specifier)),
        line=line,
        cause="torch-companion-mismatch" if name in COMPANIONS else "",
    )
