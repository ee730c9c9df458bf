"""Checks on packages whose newest release needs a newer Python than the guide has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.knowledge.versions import newest_patch, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, python_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.index_facts import IndexedRelease, IndexFacts
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.rules.registry import Problem, rule

REQUIRES_PYTHON = "https://packaging.python.org/en/latest/specifications/core-metadata/#requires-python"
_TAG = lazy_pattern(r"@v?(\d+(?:\.\d+)+)(?:#|$)")
_UNTAGGED = lazy_pattern(r"(?:\.git)?(?:@(?:main|master|HEAD))?(?:#.*)?$")
_PROSE_PYTHON = lazy_pattern(
    r"\bPython(?: version)?[ :`*]*(?:>=|≥)? ?(3\.\d{1,2})(?:\.\d+)?(?: or (?:newer|later|higher)|\+)?"
)
_AT_LEAST = lazy_pattern(r">=|≥|\+|or (?:newer|later|higher)")
_MAX_OPEN = 8  # requirements of which the newest release is requested


class _GitRelease(NamedTuple):
    """The release that stands for a package from a repository."""

    release: IndexedRelease
    is_tag: bool


@rule("RUN016", kind="guide", severity=("warning", "info"), cause="python-unsupported", url=REQUIRES_PYTHON)
def package_needs_a_newer_python(context: GuideContext) -> Iterator[Problem]:
    """A package from a repository, or the newest release of one, needs a newer Python than the guide has.

    For the main branch, the newest release on the index stands. With the lowest Python that a text permits, an
    installer takes an older release without a message, which can be the intended one: a note.
    """
    if context.index_facts is None:
        return
    for install in context.trace.installs:
        python = install.before.python
        for requirement in install.action.requirements if python else ():
            found = _git_release(context.index_facts, requirement)
            if found and _excludes(found.release, python):
                yield _too_old(context, install, requirement, found)
    yield from _python_of_the_text(context, context.index_facts)


def _git_release(index: IndexFacts, requirement: InstallRequirement) -> _GitRelease | None:
    """The release of a tag, or for the main branch the newest release; None for commits and unknown repositories."""
    if not requirement.url.startswith("git+") or not requirement.name or "subdirectory=" in requirement.url:
        return None
    tag, tail = _TAG.search(requirement.url), _UNTAGGED.sub("", requirement.url.rpartition("/")[2])
    if (tag is None and "@" in tail) or not index.is_published_from(requirement.name, requirement.url):
        return None
    if tag:
        release = index.release(requirement.name, tag[1])
        return _GitRelease(release, is_tag=True) if release else None
    newest = index.newest_release(requirement.name)
    return _GitRelease(newest, is_tag=False) if newest else None


def _excludes(release: IndexedRelease, python: str) -> bool:
    return bool(release.requires_python) and satisfies(newest_patch(python), release.requires_python) is False


def _too_old(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement, found: _GitRelease
) -> Problem:
    release, python = found.release, install.before.python
    line = line_of(context, requirement.line, requirement.text)
    which = f"{requirement.name} {release.version}" if found.is_tag else f"its newest release {release.version}"
    return Problem(
        "warning",
        f"`{requirement.text}` needs a newer Python than {python}: {which} requires Python {release.requires_python}",
        (
            guide_evidence(context, requirement.name, requirement.text, line),
            python_evidence(context, install.before),
            _index_evidence(release, f"Requires-Python: {release.requires_python}"),
        ),
        f"Use a Python in {release.requires_python}, or install a release for Python {python}.",
        install_step(requirement.name),
        line=line,
    )


def _index_evidence(release: IndexedRelease, value: str) -> Evidence:
    return table_evidence(f"{release.name} {release.version}", value, "the package index", release.day)


def _python_of_the_text(context: GuideContext, index: IndexFacts) -> Iterator[Problem]:
    """The package that a guide is about, if its newest release excludes the lowest Python that the text permits.

    Other packages may fall back to an older release without harm.
    """
    stated = _lowest_python(context)
    if not stated:
        return
    python, line = stated
    seen: set[str] = set()
    for install in context.trace.installs:
        requirements = install.action.requirements
        if install.before.python or install.action.tool == "conda" or len(requirements) != 1:
            continue
        (requirement,) = requirements
        is_open = not requirement.url and not requirement.specifier and requirement.name not in seen
        if not is_open or not _is_subject(context, requirement.name):
            continue
        seen.add(requirement.name)
        newest = index.newest_release(requirement.name) if len(seen) <= _MAX_OPEN else None
        if newest and newest.has_wheel and _excludes(newest, python):
            yield _silently_older(context, requirement, newest, python, line)


def _is_subject(context: GuideContext, name: str) -> bool:
    """Whether the text of this path through the guide is about a package, as in "Install Megatron Core".

    It names what the first step installs. Another package is the subject if a heading names it.
    """
    spelling = re.compile(r"\b" + r"[-_ ]?".join(map(re.escape, name.split("-"))) + r"\b", re.IGNORECASE)
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    lines = (text for number, text in enumerate(context.guide.lines, 1) if number not in code)
    is_first = any(each.name == name for each in context.trace.installs[0].action.requirements)
    return any(spelling.search(text) for text in lines if is_first or text.startswith("#"))


def _lowest_python(context: GuideContext) -> tuple[str, int] | None:
    """The lowest Python that the text permits, such as `Python >= 3.10`, with its line."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, text in enumerate(context.guide.lines, 1):
        found = _PROSE_PYTHON.search(text) if number not in code else None
        if found and _AT_LEAST.search(found[0]):
            return found[1], number
    return None


def _silently_older(
    context: GuideContext, requirement: InstallRequirement, newest: IndexedRelease, python: str, stated: int
) -> Problem:
    return Problem(
        "info",
        f"the text permits Python {python}, but {newest.name} {newest.version} requires Python "
        f"{newest.requires_python}: on Python {python} installers take an older release without a message",
        (
            guide_evidence(context, "Python", python, stated),
            guide_evidence(context, requirement.name, requirement.text, requirement.line),
            _index_evidence(newest, f"Requires-Python: {newest.requires_python}"),
        ),
        f"State Python {newest.requires_python}, or name the release for Python {python}.",
        line=stated,
    )
