"""Checks with the contents of the wheels of a set: builds for NumPy 1, metadata that pip refuses, shared files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.records import Status
from envdoctor.core.remedies import Remedy
from envdoctor.knowledge.releases import numpy2_releases
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.certain_packages import certain_packages
from envdoctor.manifests.checks.certainty import step_of
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.index_facts import installed_set
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.index_facts import IndexFacts, InstalledSet, Numpy1Build, RefusedRelease, SharedFile
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

NUMPY_2 = "https://numpy.org/doc/stable/dev/depending_on_numpy.html#numpy-2-0-specific-advice"
LEGACY_METADATA = "https://github.com/pypa/pip/issues/12063"
RECORD = "https://packaging.python.org/en/latest/specifications/recording-installed-packages/"
_LAST_OLD_PYTHON = "3.7"  # whose last pip is 24.0


class _Set(NamedTuple):
    """An environment whose packages from the index are known."""

    state: EnvironmentState
    installed: InstalledSet
    certain: frozenset[str]
    facts: IndexFacts


def _sets(context: GuideContext) -> Iterator[_Set]:
    index = context.index_facts
    for environment in context.environments if index else ():
        state = environment.state
        certain = certain_packages(context.trace, state)
        if state.resolution == "conflict":  # nothing is known of the dependencies, and the pins are as stated
            state = state._replace(packages={name: each for name, each in state.packages.items() if each.pinned})
            certain = frozenset(state.packages)
        if index and certain and state.resolution != "unresolved" and not state.is_superseded:
            yield _Set(state, installed_set(context, state, ()), certain, index)


@rule(
    "RUN120",
    kind="guide",
    severity=("error", "warning"),
    cause="numpy2-abi",
    url=NUMPY_2,
    needs=("release", "python"),
)
def compiled_module_was_built_for_numpy_1(context: GuideContext) -> Iterator[Problem]:
    """A package has a compiled module that is built for NumPy 1, and the set has NumPy 2.

    Its metadata has no upper bound of numpy, so installers take the newest one. NumPy 2 rejects such a module when it
    is imported. The module in the wheel proves it: it imports numpy.core._multiarray_umath. Packages of the built-in
    tables are reported by RUN003 and RUN004.

    Fix: numpy below 2, or a release of the package that is built for NumPy 2.
    """
    listed = {row.package for row in numpy2_releases()}
    for each in _sets(context):
        numpy = each.state.packages.get("numpy")
        if numpy is None or "numpy" not in each.certain or not satisfies(public_part(numpy.version), ">=2"):
            continue
        for build in each.facts.numpy_1_builds(each.installed):
            name = build.release.name
            if name in each.certain and name not in listed:
                yield _numpy_1_build(context, build, each.state.packages[name], numpy)


def _numpy_1_build(
    context: GuideContext, build: Numpy1Build, user: ResolvedPackage, numpy: ResolvedPackage
) -> Problem:
    when = "at its import" if build.is_loaded else "when that module is imported"
    status: Status = "error" if build.is_loaded and not user.is_dependency else "warning"
    return Problem(
        status,
        f"{build.release} is built for NumPy 1 and fails {when} with numpy {numpy.version}",
        (
            guide_evidence(context, user.name, user.reason, user.line),
            table_evidence(build.module, "imports numpy.core._multiarray_umath", build.wheel),
            guide_evidence(context, "numpy", numpy.reason, numpy.line),
        ),
        f"Use numpy below 2, or a release of {user.name} that is built for NumPy 2.",
        install_step(f"{user.name}=={user.version}", "numpy<2"),
        line=line_of(context, user.line, user.reason),
    )


@rule(
    "RUN121",
    kind="guide",
    severity=("error", "warning", "unknown"),
    cause="dependency-pin-violated",
    url=LEGACY_METADATA,
    needs=("release",),
)
def pip_refuses_the_metadata(context: GuideContext) -> Iterator[Problem]:
    """The metadata of a release have a requirement outside of PEP 440, which pip 24.1 and newer refuse.

    pip skips the release. It finds no other one for a pin, or where another package permits only such releases:
    fairseq 0.12.2 requires omegaconf below 2.1. uv accepts some of these requirements: a warning for a requirements
    file, which both can read.
    """
    found: set[str] = set()
    for each in _sets(context):
        for refused in each.facts.refused_releases(each.installed):
            package = each.state.packages[refused.release.name]
            step = step_of(context, package.line)
            status = _status_with_pip(context, each.state, step) if step and package.pinned else None
            if status:
                found.add(package.name)
                yield _refused(context, refused, package, status)
    for install in context.trace.installs:
        for name, requirement in install.resolution.refused.items():
            status = _status_with_pip(context, install.before, install)
            if status and name not in found:
                found.add(name)
                yield _all_refused(context, install.resolution.packages[name], requirement, status)


def _status_with_pip(context: GuideContext, state: EnvironmentState, step: InstallStep) -> Status | None:
    """Unknown in an image, whose pip is as old as the image; None where another or an older installer is used."""
    is_file = not context.guide.commands and step.action.command.startswith("uv pip install -r ")
    if step.action.tool != "pip" and not is_file:
        return None
    installed = step.before.packages.get("pip")
    pip = installed.version if installed else state.pip
    is_old_python = bool(state.python) and satisfies(state.python, f"<={_LAST_OLD_PYTHON}.99")
    if is_old_python or (pip and satisfies(pip, "<24.1")):
        return None
    if state.image and not pip:
        return "unknown"
    return "warning" if is_file else "error"


def _refused(context: GuideContext, refused: RefusedRelease, package: ResolvedPackage, status: Status) -> Problem:
    image = " (not certain: the release of pip in the image is not known)" if status == "unknown" else ""
    return Problem(
        status,
        f"pip 24.1 and newer refuse {refused.release}, whose metadata have the invalid requirement "
        f"`{refused.requirement}`{image}",
        (
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence("METADATA", f"Requires-Dist: {refused.requirement}", refused.wheel),
        ),
        f"Install it with uv or with pip below 24.1, or use a newer release of {package.name}.",
        line=line_of(context, package.line, package.reason),
    )


def _all_refused(context: GuideContext, package: ResolvedPackage, requirement: str, status: Status) -> Problem:
    image = " (not certain: the release of pip in the image is not known)" if status == "unknown" else ""
    of = f" ({package.reason})" if package.is_dependency else ""
    return Problem(
        status,
        f"pip 24.1 and newer find no release of {package.name}{of}: {package.version} and the others in its range "
        f"have invalid metadata, such as `{requirement}`{image}",
        (
            guide_evidence(context, package.name, package.reason, package.line),
            table_evidence(f"{package.name} {package.version}", f"Requires-Dist: {requirement}", "the package index"),
        ),
        "Install it with uv or with pip below 24.1.",
        line=line_of(context, package.line, package.reason),
    )


@rule("RUN122", kind="guide", severity=("warning", "info"), cause="dependency-pin-violated", url=RECORD,
      needs=("release",))  # fmt: skip
def two_packages_install_the_same_module(context: GuideContext) -> Iterator[Problem]:
    """Two packages install the same files: those of the last one remain, or a mixture of two versions.

    A note if both have the same version, or if one is the nightly build of the other: a guide has them as
    alternatives. Removing one of them removes files of the other.
    """
    for each in _sets(context):
        for shared in each.facts.shared_files(each.installed):
            if {shared.first.name, shared.second.name} <= each.certain:
                yield _shared(context, shared, each.state.packages)


def _same_version(first: ResolvedPackage, second: ResolvedPackage) -> tuple[Remedy, ...]:
    """Builds of one source: where a dependency brings the second one, those of one version have the same modules."""
    if not (first.name.startswith("opencv-") and second.name.startswith("opencv-")):
        return ()
    older = first if satisfies(first.version, f"<{second.version}") else second
    wanted = next((each for each in (first, second) if each.pinned), older)
    return install_step(*(f"{each.name}=={public_part(wanted.version)}" for each in (first, second)))


def _shared(context: GuideContext, shared: SharedFile, packages: dict[str, ResolvedPackage]) -> Problem:
    first, second = (packages[each.name] for each in (shared.first, shared.second))
    later = max(first, second, key=lambda each: (not each.is_dependency, each.line))
    is_same = public_part(first.version) == public_part(second.version)
    same = _same_version(first, second)
    nightly = f"{min(first.name, second.name, key=len)}-nightly"
    return Problem(
        "info" if is_same or nightly in (first.name, second.name) else "warning",
        f"{first.name} {first.version} and {second.name} {second.version} both install {shared.path}: one overwrites "
        "the other",
        (
            guide_evidence(context, first.name, first.reason, first.line),
            guide_evidence(context, second.name, second.reason, second.line),
        ),
        f"Install only one of {first.name} and {second.name}"
        + (", or both in the same release, which has the same modules." if same else "."),
        same,
        line=line_of(context, later.line, later.reason),
    )
