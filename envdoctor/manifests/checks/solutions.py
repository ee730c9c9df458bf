"""Checks on steps for which no set of releases exists, as the solver found it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.published import find_release, published_releases
from envdoctor.knowledge.releases import leading_name, normalize_name
from envdoctor.knowledge.versions import dotted_numbers, minor_of, newest_patch, public_part, satisfies
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS, contradicting_bounds
from envdoctor.manifests.checks.evidence import guide_evidence, line_of
from envdoctor.manifests.checks.machine import torch_without_build
from envdoctor.manifests.checks.module_requirements import package_of_module
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.other_systems import names_other_system
from envdoctor.manifests.stated_python import is_fixed_python
from envdoctor.manifests.step_resolution import has_unknown_mirror, resolve_step
from envdoctor.resolution.requirement import InstallRequirement, is_file_name
from envdoctor.resolution.step import apart
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule

REQUIREMENTS_FILES = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
CONDA_FILES = "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REQUIRING = lazy_pattern(rf"({_NAME})(?:[=<>!~]\S*)? depends? on ")
_REQUIRED = lazy_pattern(rf"the step requires ({_NAME})")
_STATED = lazy_pattern(r"the step requires ([^;]+)")  # and also what " and " joins
_MISSING = lazy_pattern(rf"no version of ({_NAME})(?:\[[^\]]*\])?(\S+)")
_UNKNOWN = lazy_pattern(rf"({_NAME}) was not found in the package registry")
_DEPENDS = lazy_pattern(rf"({_NAME}[=<>!~]\S+) depends? on ({_NAME})(?:\[[^\]]*\])?([=<>!~][^\s;]+)")
_PYTHONS = ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
_MAX_PYTHONS = 5  # with which a step is solved again
_NO_WHEEL = lazy_pattern(rf"({_NAME})(?:\[[^\]]*\])?==(\S+) has no wheels")


@rule(
    "RUN015",
    kind="guide",
    severity=("error", "warning", "info", "unknown"),
    cause="dependency-pin-violated",
    url=SPECIFIERS,
    needs=("python",),
)
def step_has_no_solution(context: GuideContext) -> Iterator[Problem]:
    """No set of releases satisfies the requirements of a step and of their dependencies: the installer stops.

    A release that was never published or that was deleted, two exact versions that exclude each other, or a
    dependency that needs another Python. uv resolves the step for the Python and the platform of the guide. A package
    that has wheels only for other systems is a note in a section that names Windows or macOS.
    """
    seen: set[str] = set()  # a later step can have the requirements of an earlier one
    for install in context.trace.installs:
        for conflict in (install.resolution.conflict, *install.resolution.further_conflicts):
            if conflict in seen:
                continue
            seen.add(conflict)
            # An argument may be no package, and an index of a company has packages of its own.
            is_doubtful = bool(install.action.unknown) or has_unknown_mirror(install.action)
            is_misread = is_doubtful and bool(_UNKNOWN.search(conflict))
            if conflict and not is_misread and not _is_reported(context, install, conflict):
                yield _problem(context, install, conflict)


@rule("RUN091", kind="guide", severity="error", cause="dependency-pin-violated", url=REQUIREMENTS_FILES)
def included_file_does_not_exist(context: GuideContext) -> Iterator[Problem]:
    """A requirements file that a manifest includes does not exist: the installer stops at its line.

    `-r base.txt` in a requirements file, `file: base.txt` in a setup.cfg, and the dynamic dependencies of setuptools.
    A file that a script or a Dockerfile names may come from elsewhere: it is listed as not read.

    Add the file to the project, or remove the line.
    """
    for each in context.guide.absent_files if not context.guide.commands else ():
        yield Problem(
            "error",
            f"{each.path} does not exist: the installation stops at this line",
            (guide_evidence(context, "included file", each.path, each.line),),
            "Add the file to the project, or remove the line.",
            line=each.line,
        )


@rule("RUN123", kind="guide", severity="error", cause="dependency-pin-violated", url=CONDA_FILES)
def manifest_is_not_valid_yaml(context: GuideContext) -> Iterator[Problem]:
    """An environment.yml is not valid YAML: conda stops. What can be read of it is audited all the same.

    Often the keys have different indentations, or a tab is among the spaces.
    """
    for line, reason in context.guide.syntax_errors:
        text = context.guide.lines[line - 1].strip() if line <= len(context.guide.lines) else ""
        yield Problem(
            "error",
            f"line {line} is not valid YAML ({reason}): conda cannot read the file",
            (guide_evidence(context, "YAML", text[:80], line),),
            "Indent all keys of a level by the same number of spaces.",
            line=line,
        )


def _is_reported(context: GuideContext, install: InstallStep, conflict: str) -> bool:
    """Whether RUN001, RUN002, RUN005 or RUN054 report it from the tables, or RUN166."""
    required = {normalize_name(name) for name in _REQUIRED.findall(conflict)}
    if required and required <= TORCH_FAMILY and torch_without_build(install.action, context.platform):
        return True
    if (unknown := _UNKNOWN.search(conflict)) and is_file_name(normalize_name(unknown[1])):
        return True
    requiring = {normalize_name(name) for name in _REQUIRING.findall(conflict)}
    for _, bounds in contradicting_bounds(install):
        if requiring and requiring <= {each.required_by for each in bounds}:
            return True
    named = {requirement.name for requirement in install.action.requirements}
    missing = {normalize_name(match[1]) for match in _MISSING.finditer(conflict)} & named
    without_wheel = [find_release(normalize_name(match[1]), match[2]) for match in _NO_WHEEL.finditer(conflict)]
    return any(published_releases(name) for name in missing) or any(without_wheel)


def _problem(context: GuideContext, install: InstallStep, conflict: str) -> Problem:
    requirement = _blamed(install, conflict)
    line = line_of(context, requirement.line, requirement.text) if requirement else install.action.line
    absent = _renamed(context, requirement, conflict) or _nearest(context, install, requirement, conflict)
    name, fix, remedies = absent or _fix(install, conflict)
    python = _fitting_python(context, install) if "Python" in conflict and not remedies else ""
    if python:
        fix = f"Create the environment with Python {python}, with which this step has a solution."
    if "no usable wheels" in conflict:  # uv names no other reason for a release with a source archive
        return Problem(
            "unknown",
            f"not solved, because a release has only a source archive here: {conflict}",
            (guide_evidence(context, name, requirement.text if requirement else install.action.command, line),),
            fix if python else "Check whether it builds: with a compiler, it can be installed.",
            line=line,
        )
    machine = context.guide.stated_machine
    is_python_stated = install.before.python_line or context.guide.python or machine.python
    if "Python ABI tag" in conflict and not is_python_stated:
        assumed = f", and with Python {install.before.python}" if install.before.python else ""
        return Problem(
            "unknown",
            f"not solved, because the guide names no Python{assumed}: {conflict}",
            (guide_evidence(context, name, requirement.text if requirement else install.action.command, line),),
            "State the Python that has wheels of these releases with --python.",
            line=line,
        )
    is_for_others = "platform tag" in conflict and names_other_system(context.guide.lines, context.guide.blocks, line)
    return Problem(
        "info" if is_for_others else "warning" if _UNKNOWN.search(conflict) else "error",
        f"this step cannot be installed: {conflict}",
        (guide_evidence(context, name, requirement.text if requirement else install.action.command, line),),
        fix,
        remedies,
        line=line,
        cause="python-unsupported" if "Python" in conflict else "",
    )


def _fitting_python(context: GuideContext, install: InstallStep) -> str:
    """The Python nearest to the stated one with which a step has a solution; empty if there is none."""
    stated, solver = install.before.python, apart(context.solver)
    if not stated or solver is None or solver.reason or is_fixed_python(context.guide, install.before):
        return ""
    others = sorted(set(_PYTHONS) - {stated}, key=lambda each: _distance(each, stated))
    for python in others[:_MAX_PYTHONS]:
        before, target = install.before._replace(python=python), install.target._replace(python=python)
        if resolve_step(install.action, before, target, solver).state in ("solved", "partial"):
            return python
    return ""


def _distance(python: str, stated: str) -> tuple[int, bool]:
    """How far a Python is from another one; of two at the same distance, the newer one is first."""
    minor, other = (dotted_numbers(each)[1] for each in (python, stated))
    return abs(minor - other), minor < other


def _blamed(install: InstallStep, conflict: str) -> InstallRequirement | None:
    """The requirement of the guide that the conflict names last, an exact one if there is one."""
    named = [normalize_name(name) for name in _REQUIRED.findall(conflict)]
    named += [normalize_name(match[1]) for match in _DEPENDS.finditer(conflict)]
    found = [each for name in reversed(named) for each in install.action.requirements if each.name == name]
    return next((each for each in found if each.pin), next(iter(found), None))


def _renamed(
    context: GuideContext, requirement: InstallRequirement | None, conflict: str
) -> tuple[str, str, tuple[Remedy, ...]] | None:
    """What to change for a requirement that has the name of a module instead of its package: `sklearn==1.2.2`."""
    found = _MISSING.search(conflict) or _UNKNOWN.search(conflict)
    name = normalize_name(found[1]) if found else ""
    if not requirement or requirement.name != name or context.index_facts is None:
        return None
    pin = package_of_module(context.index_facts, name, requirement.specifier)
    return (name, f"Use {pin}: the index has it under this name.", ()) if pin else None


def _nearest(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement | None, conflict: str
) -> tuple[str, str, tuple[Remedy, ...]] | None:
    """The next release of the same series for a pin that the index does not have: cmake 3.28.1 for 3.28.0."""
    found, index = _MISSING.search(conflict), context.index_facts
    pin = requirement.pin if requirement and found and requirement.name == normalize_name(found[1]) else ""
    if requirement is None or index is None or not pin or "+" in pin:
        return None
    python = newest_patch(install.before.python) if install.before.python else ""
    series = [
        each.version
        for each in index.usable_releases(requirement.name)
        if minor_of(each.version) == minor_of(pin) and each.has_wheel
        and not (python and satisfies(python, each.requires_python or ">=0") is False)
    ]  # fmt: skip
    newer = [each for each in series if satisfies(each, f">{pin}")]
    nearest = min(newer, key=dotted_numbers) if newer else max(series, key=dotted_numbers, default="")
    fix = (
        f"Name a release of {requirement.name} that the index has: {requirement.name}=={nearest} is the nearest one."
    )
    return (requirement.name, fix, ()) if nearest else None


def _fix(install: InstallStep, conflict: str) -> tuple[str, str, tuple[Remedy, ...]]:
    """The package of the conflict, and what to change."""
    if missing := _MISSING.search(conflict):
        name = normalize_name(missing[1])
        return (
            name,
            f"Name a release of {name} that the index has.",
            steps(shell_command("pip index versions {}", name)),
        )
    if unknown := _UNKNOWN.search(conflict):
        name = normalize_name(unknown[1])
        if name.replace("-", "_") in sys.stdlib_module_names:
            return name, f"Remove {name}: it is a module of Python itself.", ()
        return name, f"The configured index has no package {name}: name the index or the repository that has it.", ()
    stated = {leading_name(text) for part in _STATED.findall(conflict) for text in part.split(" and ")}
    requirements = {requirement.name: requirement for requirement in install.action.requirements}
    depends = [each for each in _DEPENDS.findall(conflict) if not stated or normalize_name(each[1]) in stated]
    for requiring, name, specifier in depends:
        own = requirements.get(normalize_name(name))
        is_alone = all(each[1] != name or each[0] == requiring for each in depends)
        if own and own.specifier and is_alone:
            fix = f"{requiring} requires {name}{specifier}: omit the version of {name}, or take one in this range."
            return own.name, fix, ()
    first = next(iter(depends), None)
    name = public_part(first[1]) if first else "requirements"
    return name, "Change one of these requirements.", ()
