"""Checks on pins that exclude a Python which a guide or a project leaves open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.published import date_read, find_release, releases_in_range
from envdoctor.knowledge.versions import dotted_numbers, newest_patch, public_part, satisfies
from envdoctor.manifests.actions import Install
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.unlisted_releases import PYPI
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.stated_python import permits
from envdoctor.resolution.index_facts import IndexedRelease, IndexFacts
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

REQUIRES_PYTHON = "https://packaging.python.org/en/latest/specifications/pyproject-toml/#requires-python"
TAGS = "https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/"
# The Python of a new environment is newer: Ubuntu 24.04 has 3.12, uv and conda take the newest.
_NEWEST_OF_OLD_PINS = "3.11"
# Their old source archives need numpy.distutils, which Python 3.12 and later do not have:
# https://numpy.org/doc/stable/reference/distutils_status_migration.html, 2026-11-28
_BUILT_WITH_DISTUTILS = frozenset({"numpy", "scipy", "scikit-learn"})
_HAS_UPPER_BOUND = lazy_pattern(r"<|==[\d.]+\*|~=")
_FIRST_PATCH = lazy_pattern(r"(<=|==)\s*(3\.\d{1,2})(?:\.0)?(?![\d.*])")
# For newer ones, nearly each package has a release: the lists are not read.
_OLDEST_IN_QUESTION = "3.9"
_LOWEST = tuple(f"3.{minor}" for minor in range(6, 15))


@rule("RUN195", kind="guide", severity="warning", cause="python-unsupported", url=TAGS)
def no_python_is_named_for_old_pins(context: GuideContext) -> Iterator[Problem]:
    """No step names the Python, and a pin has wheels only for Pythons that a new environment does not have.

    torch 2.0.1 has wheels up to Python 3.11: with the Python of Ubuntu 24.04, pip finds no release. So are numpy,
    scipy and scikit-learn, whose old source archives do not build with Python 3.12. Other packages are reported if
    none of the usual Pythons has a wheel of the pinned release: a step with one of these stops.
    """
    guide = context.guide
    if guide.python or guide.stated_machine.python:
        return
    found = [
        (newest, action, requirement)
        for action, requirement in _without_python(context)
        if requirement.name in TORCH_FAMILY | _BUILT_WITH_DISTUTILS or _is_limiting(context, requirement)
        if (newest := _newest_python(context, requirement))
    ]
    of_torch = sorted(found, key=lambda each: each[2].name not in TORCH_FAMILY)  # of several, torch is the known one
    oldest = min(of_torch, key=lambda each: dotted_numbers(each[0]), default=None)
    if oldest and satisfies(oldest[0], f"<={_NEWEST_OF_OLD_PINS}") and permits(guide.permitted_python, "3.12"):
        yield _unnamed(context, *oldest)


def _without_python(context: GuideContext) -> Iterator[tuple[Install, InstallRequirement]]:
    """The requirements of steps in environments whose Python no step names."""
    for install in context.trace.installs:
        if not install.before.python and not install.before.image and install.action.tool != "conda":
            yield from ((install.action, requirement) for requirement in install.action.requirements)


def _is_limiting(context: GuideContext, requirement: InstallRequirement) -> bool:
    """Whether a pin has no wheel for any of the usual Pythons, so that an older one was assumed."""
    return (requirement.name, requirement.pin) in context.trace.limiting_pins


def _newest_python(context: GuideContext, requirement: InstallRequirement) -> str:
    """The newest Python with a wheel of a pinned release; empty if it is not known."""
    return max(_exact_pythons(context, requirement), key=dotted_numbers, default="")


def _exact_pythons(context: GuideContext, requirement: InstallRequirement) -> tuple[str, ...]:
    """The Pythons with a wheel of a pinned release; none if they are not known."""
    version = _newest_version(requirement)
    release = find_release(requirement.name, version) if version else None
    is_unlisted = release is None and bool(requirement.pin) and requirement.name in _BUILT_WITH_DISTUTILS
    if (is_unlisted or _is_limiting(context, requirement)) and context.index_facts:
        release = context.index_facts.published(requirement.name, requirement.pin)
    # `3` is that of wheels for every Python 3, `3.9+` that of wheels for the stable ABI.
    pythons = release.pythons if release and release.kind == "wheels" else ()
    return pythons if all("." in each and not each.endswith("+") for each in pythons) else ()


def _newest_version(requirement: InstallRequirement) -> str:
    """The pinned version, or the newest that the range of a torch package permits: 2.1.2 of `torch==2.1.*`."""
    if requirement.pin or requirement.name not in TORCH_FAMILY or not _HAS_UPPER_BOUND.search(requirement.specifier):
        return public_part(requirement.pin)
    permitted = (each.version for each in releases_in_range(requirement.name, requirement.specifier))
    return max(map(public_part, permitted), key=dotted_numbers, default="")


def _common_python(context: GuideContext, newest: str) -> str:
    """The newest Python up to `newest` for which all pinned releases have wheels; empty if there is none."""
    listed = (_exact_pythons(context, requirement) for _, requirement in _without_python(context))
    known = [pythons for pythons in listed if pythons]
    common = set(known[0]).intersection(*known[1:]) if known else set()
    older = (each for each in common if dotted_numbers(each) <= dotted_numbers(newest))
    return max(older, key=dotted_numbers, default="")


def _unnamed(context: GuideContext, newest: str, action: Install, requirement: InstallRequirement) -> Problem:
    line = line_of(context, requirement.line or action.line, requirement.text)
    is_limiting = _is_limiting(context, requirement)
    version = _newest_version(requirement)
    pinned = f"{requirement.name} {version}"
    has_wheels = "has wheels" if requirement.pin else "with wheels"
    permits_only = "" if requirement.pin else f"{requirement.text} permits no newer release than "
    python = _common_python(context, newest) or newest
    reason = ", for which all pins have wheels" if python != newest else ""
    is_from_index = is_limiting or find_release(requirement.name, version) is None
    builds = requirement.name in _BUILT_WITH_DISTUTILS and not is_limiting
    result = "an installer of a newer one finds no release"
    if builds:
        result = "with Python 3.12 and newer, its source archive does not build"
    return Problem(
        "warning",
        f"no step names the Python, and {permits_only}{pinned} {has_wheels} up to Python {newest} only: {result}",
        (
            guide_evidence(context, requirement.name, requirement.text, line),
            table_evidence(
                pinned,
                f"wheels up to Python {newest}",
                "the package index" if is_from_index else PYPI,
                "" if is_from_index else date_read(requirement.name),
            ),
        ),
        f"Create the environment with Python {python}{reason}.",
        steps(shell_command("uv venv --python {}", python)),
        line=line,
    )


class _Excluding(NamedTuple):
    """A requirement of which each permitted release excludes the lowest Python of its project."""

    requirement: InstallRequirement
    release: IndexedRelease  # the one that accepts the lowest Python
    lowest: str  # that it accepts


@rule("RUN196", kind="guide", severity="warning", cause="python-unsupported", url=REQUIRES_PYTHON)
def project_permits_a_python_that_a_pin_excludes(context: GuideContext) -> Iterator[Problem]:
    """A project permits a Python that a requirement excludes: `>=3.8` with numpy 1.26.4, which requires 3.9.

    An open requirement excludes it if none of its releases accepts it. uv and Poetry solve a project for each Python
    that it permits: they find no solution. pip installs the project with a newer Python.
    """
    guide, index = context.guide, context.index_facts
    lowest = next((each for each in _LOWEST if permits(guide.permitted_python, each)), "")
    is_project = guide.name.endswith("pyproject.toml") and ">" in guide.permitted_python
    if index is None or not lowest or not is_project or any("environments" in text for text in guide.lines):
        return
    possible = [each for each in _LOWEST if permits(guide.permitted_python, each)]
    found: list[_Excluding] = []
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if not requirement.name or requirement.marker or requirement.url:
                continue
            pythons = [
                (first, release) for release in _permitted_releases(index, requirement, lowest)
                if (first := next((each for each in possible if _accepts(release, each)), ""))
            ]  # fmt: skip
            first, release = min(pythons, key=lambda each: dotted_numbers(each[0]), default=(lowest, None))
            found += [_Excluding(requirement, release, first)] if release and first != lowest else []
    if found:
        yield _excluded(context, lowest, max(found, key=lambda each: dotted_numbers(each.lowest)))


@rule("RUN269", kind="guide", severity=("warning", "info"), cause="python-unsupported", url=REQUIRES_PYTHON)
def project_excludes_the_patch_releases_of_a_python(context: GuideContext) -> Iterator[Problem]:
    """A project permits the first release of a Python and no later one: `<=3.12` excludes 3.12.1, `==3.10` 3.10.1.

    pip refuses to install the project with it, and uv downloads an old patch release. A note if it permits an older
    Python as well.
    """
    bound = _FIRST_PATCH.search(context.guide.permitted_python)
    if not bound:
        return
    operator, version = bound.groups()
    written = re.compile(rf"python.*{operator}\s*{re.escape(version)}(?![\d.])", re.IGNORECASE)
    line = next((number for number, text in enumerate(context.guide.lines, 1) if written.search(text)), 0)
    has_older = any(permits(context.guide.permitted_python, each) for each in _LOWEST if each != version)
    major, _, minor = version.partition(".")
    if line:
        yield Problem(
            "info" if has_older else "warning",
            f"`{operator}{version}` excludes Python {version}.1 and newer: only {version}.0 satisfies it",
            (guide_evidence(context, "Python", context.guide.permitted_python, line),),
            f"Write <{major}.{int(minor) + 1}." if operator == "<=" else f"Write =={version}.*.",
            line=line,
        )


def _permitted_releases(index: IndexFacts, requirement: InstallRequirement, lowest: str) -> Sequence[IndexedRelease]:
    """The pinned release, or the releases of an open requirement; none where it is not known, or not in question."""
    if requirement.pin:
        release = index.release(requirement.name, public_part(requirement.pin))
        return [release] if release and release.requires_python else []
    if satisfies(lowest, f"<={_OLDEST_IN_QUESTION}") is not True:
        return []
    releases = index.usable_releases(requirement.name)
    return [each for each in releases if satisfies(each.version, requirement.specifier) is not False]


def _accepts(release: IndexedRelease, python: str) -> bool:
    return satisfies(newest_patch(python), release.requires_python) is not False


def _first_accepted(requires: str, python: str) -> str:
    """The first patch release of a Python that a specifier accepts: "3.8.1", or the Python itself."""
    found = re.search(rf">=\s*({re.escape(python)}\.[1-9]\d*)(?![\d.])", requires)
    return found[1] if found else python


def _excluded(context: GuideContext, lowest: str, found: _Excluding) -> Problem:
    stated = context.guide.permitted_python
    named = (number for number, text in enumerate(context.guide.lines, 1) if stated in text and "python" in text)
    line = next(named, found.requirement.line)
    requires = found.release.requires_python
    what = f"{found.release.name} {found.release.version} requires Python {requires}"
    if not found.requirement.pin:
        what = f"no release that `{found.requirement.text}` permits accepts it"
    return Problem(
        "warning",
        f"requires-python permits Python {lowest}, and {what}: uv and Poetry, which solve for each Python, find no "
        "solution",
        (
            guide_evidence(context, "requires-python", stated, line),
            guide_evidence(context, found.requirement.name, found.requirement.text, found.requirement.line),
            table_evidence(str(found.release), f"Requires-Python: {requires}", "the package index"),
        ),
        f"Raise the lower bound of requires-python to {_first_accepted(requires, found.lowest)}.",
        line=line,
    )
