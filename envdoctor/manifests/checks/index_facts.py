"""Checks with what the package index has: imports between packages, and imports of setup.py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.releases import parse_requirement, required_specifier, requirements_of_release
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.build_needs import packages_of_imports
from envdoctor.manifests.certain_packages import certain_packages
from envdoctor.manifests.checks.builds import BUILT_WITH_TORCH
from envdoctor.manifests.checks.certainty import builds_in_isolation
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.fitting_releases import excluding_package
from envdoctor.manifests.checks.torch_of_builds import install_command, tools_of_build
from envdoctor.manifests.checks.used_dependencies import can_be_newer, of_used_dependency, of_used_requirement
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment
from envdoctor.manifests.environment_state import EnvironmentState, setuptools_for
from envdoctor.manifests.imports_of_guide import MAX_IMPORTS, MAX_OF_PROGRAMS, imports_of_guide, imports_of_programs
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.seeded_packages import if_not_seeded
from envdoctor.manifests.step_packages import has_constraints
from envdoctor.resolution.index_facts import (
    BuildImport,
    InstalledSet,
    MissingName,
    RejectedRelease,
    UseKind,
)
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

PKG_RESOURCES = "https://setuptools.pypa.io/en/latest/history.html#v82-0-0"
# Shared libraries, which no Python code imports by the names of these packages.
_CUDA_LIBRARY = lazy_pattern(r"nvidia-(?:cu(?!tlass)|nccl|nv|npp)")
_LOWEST = lazy_pattern(r"(?:>=|~=)\s*(\d[\w.]*)")
_WHEN = {
    "import": "at its import",
    "code": "in a module that the code imports",
    "module": "in one of its modules",
    "call": "in a function",
}
_WITH_REMOVALS = ("torch", "torchvision", "torchaudio")


@rule(
    "RUN017",
    kind="guide",
    severity=("error", "warning", "info"),
    cause="dependency-pin-violated",
    url="",
    needs=("release", "python"),
)
def release_uses_what_a_newer_dependency_lacks(context: GuideContext) -> Iterator[Problem]:
    """An older release uses a name that a newer release of another package no longer has.

    No metadata limits the dependency, so installers take its newest release. The files of both wheels prove it: the
    use, and the missing name or argument, which a release of the dependency from the same time has.

    A release that another one rejects with an assertion at its import is reported as well.
    """
    if context.index_facts is None:
        return
    for environment in context.environments:
        state = _solved_state(context, environment.state)
        certain = certain_packages(context.trace, state)
        if state.resolution == "unresolved" or state.is_superseded or not certain:
            continue
        packages = {name: each for name, each in state.packages.items() if _is_of_index(each)}
        users = sorted((each for each in packages.values() if _is_user(each, packages)), key=_order)
        installed = installed_set(context, state, [each.name for each in users])
        compared = context.index_facts.missing_names(installed)
        for missing in compared.missing:
            user, dependency = packages[missing.user.name], packages[missing.dependency.name]
            is_new = dependency.name in certain and not can_be_newer(context, state, user)
            if is_new and not _is_reported(environment, user.name, dependency.name):
                excluding = excluding_package(
                    context.index_facts, packages, dependency.name, missing.last, python=installed.python
                )
                problem = _missing_name(context, missing, user, dependency, excluding)
                problem = of_used_requirement(context, packages, user, missing.place, problem)
                yield of_used_dependency(context, installed, user, problem)
        for rejected in context.index_facts.rejected_releases(installed):
            if {rejected.user.name, rejected.dependency.name} <= certain:
                yield _rejected(context, rejected, packages)
        if compared.skipped:
            yield _not_compared(context, compared.skipped)


def _solved_state(context: GuideContext, state: EnvironmentState) -> EnvironmentState:
    """An environment before its first step without a solution: what it has until then is known."""
    failing = (each for each in context.trace.installs if each.resolution.state == "conflict")
    before = next((each.before for each in failing if each.before.name == state.name), None)
    return before if state.resolution == "conflict" and before else state


def installed_set(context: GuideContext, state: EnvironmentState, users: Sequence[str]) -> InstalledSet:
    """The packages of an environment that come from the index."""
    versions = {name: each.version for name, each in state.packages.items() if _is_of_index(each)}
    named = frozenset(name for name, each in state.packages.items() if not each.is_dependency)
    python = state.python or context.trace.python
    of_programs = {(each.module, each.name): each for each in imports_of_programs(context)}
    imports = (*tuple(imports_of_guide(context))[:MAX_IMPORTS], *tuple(of_programs.values())[:MAX_OF_PROGRAMS])
    family = {name: state.packages[name].version for name in _WITH_REMOVALS if name in state.packages}
    bounds = {name: _LOWEST.search(each.specifier) for name, each in state.packages.items()}
    lowest = {name: found[1] for name, found in bounds.items() if found}
    return InstalledSet(versions, users, python, context.platform, state.glibc, named, imports, family, lowest)


def _is_of_index(package: ResolvedPackage) -> bool:
    is_release = (
        package.origin in ("PyPI", CLONE_ORIGIN)
        and not package.wheel
        and package.version
        and "+" not in package.version
    )
    return bool(is_release) and package.name not in TORCH_FAMILY and not _CUDA_LIBRARY.match(package.name)


def _is_user(package: ResolvedPackage, packages: dict[str, ResolvedPackage]) -> bool:
    """Whether the guide names the package, or one that it pins limits it: others are as new as their dependencies."""
    if not package.is_dependency:
        return True
    requiring = packages.get(package.reason.removeprefix("required by ").partition(" ")[0])
    if requiring is None or not requiring.pinned:
        return False
    is_known = bool(requirements_of_release(requiring.name, requiring.version))
    specifier = required_specifier(requiring.name, requiring.version, package.name)
    return not is_known or bool(re.search(r"<|==|~=", specifier))


def _order(package: ResolvedPackage) -> tuple[bool, bool, int]:
    return not package.pinned, package.is_dependency, package.line


def _is_reported(environment: CorrectedEnvironment, *names: str) -> bool:
    """Whether a rule of the tables reports the same two packages."""
    facts = ([item.fact for item in each.violation.problem.evidence] for each in environment.substitutions)
    return any(set(names) <= set(found) for found in facts)


def _missing_name(
    context: GuideContext, missing: MissingName, user: ResolvedPackage, dependency: ResolvedPackage,
    excluding: str,
) -> Problem:  # fmt: skip
    place = max(user.line, dependency.line) if not dependency.is_dependency else user.line
    line = line_of(context, place, dependency.reason if place == dependency.line else user.reason)
    pin = f"{dependency.name}=={missing.last}" if missing.last and not excluding else ""
    reason = (
        f"{excluding} excludes {dependency.name} {missing.last}, which has it"
        if excluding
        else f"No release of {dependency.name} that this Python can install has it"
    )
    newer = _newer_release(context, user)
    verb, lack = ("calls", "accept") if missing.argument else ("uses", "have")
    status = _status_of_use(missing.kind, user)
    problem = Problem(
        status,
        f"{missing.user} {verb} {missing.name} {_WHEN[missing.kind]}, which {missing.dependency} does not {lack}",
        (
            guide_evidence(context, user.name, user.reason, user.line),
            table_evidence(missing.place, missing.name, missing.wheel),
            table_evidence(dependency.name, f"{dependency.version} ({dependency.reason})", "the package index",
                           missing.dependency.day),
        ),
        f"Use {pin}, which has it." if pin else f"{reason}: {newer}.",
        install_step(f"{user.name}=={user.version}", pin) if pin else (),
        line=line,
    )  # fmt: skip
    return if_not_seeded(context, dependency, problem)


def _newer_release(context: GuideContext, user: ResolvedPackage) -> str:
    """The release of the package that uses a name, or of the one that requires it, which can cure the use."""
    usable = context.index_facts.usable_releases(user.name) if context.index_facts else ()
    newer = [each.version for each in usable if satisfies(each.version, f">{user.version}")]
    if not user.is_dependency or context.index_facts is None:
        return f"{user.name} has no newer release" if usable and not newer else f"use a newer release of {user.name}"
    requiring = user.reason.removeprefix("required by ")
    name, _, version = requiring.partition(" ")
    found = map(parse_requirement, context.index_facts.requires(name, version))
    bounds = [each.specifier for each in found if each and each.name == user.name]
    if any(all(satisfies(each, bound) is not False for bound in bounds) for each in newer):
        return f"use a newer release of {user.name}, which {requiring} permits"
    return f"{requiring} permits no newer release of {user.name}: use another release of {name}"


def _status_of_use(kind: UseKind, user: ResolvedPackage) -> Status:
    """A note for a module that the guide may never import, and for a function that it may never call."""
    if kind in ("module", "call"):
        return "info"
    return "error" if not user.is_dependency else "warning"


def _rejected(context: GuideContext, rejected: RejectedRelease, packages: dict[str, ResolvedPackage]) -> Problem:
    user, dependency = packages[rejected.user.name], packages[rejected.dependency.name]
    pin = f"{dependency.name}{rejected.accepted}"
    return Problem(
        "error",
        f"{rejected.user} stops at its import with {rejected.dependency}: it accepts {pin}",
        (
            guide_evidence(context, user.name, user.reason, user.line),
            table_evidence(rejected.place, pin, rejected.wheel),
            table_evidence(dependency.name, f"{dependency.version} ({dependency.reason})", "the package index",
                           rejected.dependency.day),
        ),
        f"Use a release in {pin}.",
        install_step(f"{user.name}=={user.version}", pin),
        line=line_of(context, user.line, user.reason),
    )  # fmt: skip


def _not_compared(context: GuideContext, skipped: Sequence[str]) -> Problem:
    return Problem(
        "info",
        f"not compared with newer dependencies: {len(skipped)} of the older releases, as a limited number is read",
        (table_evidence("not compared", ", ".join(skipped[:8]), context.guide.name),),
        "Run the command again if the index was slow: what was compared is kept.",
    )


@rule("RUN048", kind="guide", severity=("error", "warning"), cause="build-isolation-no-torch", url=PKG_RESOURCES,
      needs=("wheels", "isolation", "python"))  # fmt: skip
def isolated_build_lacks_a_module(context: GuideContext) -> Iterator[Problem]:
    """A release without a wheel is built in isolation, and its setup.py imports what that environment lacks.

    setuptools 82 has no pkg_resources; torch, numpy and Cython are only there if pyproject.toml requires them.
    A warning if the guide names no Python: an old one has an older setuptools.
    """
    if context.index_facts is None:
        return
    for install in context.trace.installs:
        is_isolated = builds_in_isolation(install)
        if has_constraints(install.action, install.before, context.guide) and is_isolated is False:
            continue  # a pip before 25.3 applies PIP_CONSTRAINT, which pins setuptools, to the builds too
        for name in sorted(install.resolution.built - BUILT_WITH_TORCH - install.action.built_with_torch):
            package = install.resolution.packages.get(name)
            python = install.before.python or context.trace.python
            found = context.index_facts.build_imports(name, package.version, python) if package else ()
            if package and found and (is_isolated is not False or _is_always_isolated(install, found)):
                yield _failing_build(context, install, package, found)


def _is_always_isolated(install: InstallStep, found: Sequence[BuildImport]) -> bool:
    """Whether pip of any release isolates the build: that of a project with a pyproject.toml."""
    action = install.action
    return not (action.no_build_isolation or action.tool == "conda" or action.only_binary or found[0].is_legacy)


def _failing_build(
    context: GuideContext, install: InstallStep, package: ResolvedPackage, found: Sequence[BuildImport]
) -> Problem:
    line = line_of(context, package.line or install.action.line, package.reason)
    modules = " and ".join(each.module for each in found)
    needed = tools_of_build(context, install, package, packages_of_imports(found))
    is_named = any(each.startswith("setuptools") for each in needed)
    needed += [] if is_named else [setuptools_for(install.before)]
    pin = f"{package.name}=={package.version}"
    removed = " (setuptools 82 removed pkg_resources)" if "pkg_resources" in modules else ""
    return Problem(
        "error" if install.before.python else "warning",
        f"{package.name} {package.version} has no wheel, and its setup.py imports {modules}, which an isolated build "
        f"lacks{removed}",
        (
            guide_evidence(context, package.name, package.reason, line),
            *(table_evidence(f"setup.py:{each.line}", f"import {each.module}", each.archive) for each in found),
        ),
        f"Install {', '.join(needed)} and wheel first, then build without isolation.",
        steps(
            install_command([*needed, "wheel"]),
            shell_command("uv pip install {} --no-build-isolation", pin),
        ),
        line=line,
        proven=() if found[0].is_legacy else ("isolation",),
    )
