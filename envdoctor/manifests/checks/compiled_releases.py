"""Checks on releases that an installer compiles because they have no wheel for the Python."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.checks.certainty import STATE_PYTHON
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.stated_python import is_fixed_python
from envdoctor.manifests.step_resolution import has_other_index
from envdoctor.resolution.index_facts import RustBuild
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

RUST = "https://pyo3.rs/latest/building-and-distribution"
_LAST_ENDED_PYTHON = "3.9"  # its support ended in 2025-10: devguide.python.org/versions, 2026-11-27
_RUST_TOOLS = lazy_pattern(r"\b(?:rustup|rustc|cargo|rust)\b")


@rule(
    "RUN079",
    kind="guide",
    severity=("error", "warning", "unknown"),
    cause="python-unsupported",
    url=RUST,
    needs=("wheels", "python"),
)
def build_needs_rust(context: GuideContext) -> Iterator[Problem]:
    """A release has no wheel for the Python, its build compiles Rust code, and no step installs Rust.

    Old releases such as tokenizers 0.13.3 have wheels for the Pythons of their time. PyO3, with which they are built,
    rejects newer Pythons as well. A warning in an image, which can contain Rust; unknown if no Python is named, and a
    warning if all wheels are for Pythons whose support has ended.
    """
    if context.index_facts is None or any(_RUST_TOOLS.search(each.text) for each in context.guide.commands):
        return
    for install in context.trace.installs:
        if install.action.only_binary or install.action.tool == "conda" or has_other_index(install.action):
            continue
        for name in sorted(install.resolution.built):
            package = install.resolution.packages.get(name)
            found = (
                context.index_facts.rust_build(name, package.version, context.platform)
                if package and package.origin == "PyPI"
                else None
            )
            # That a release is built was found for one of the Pythons: this one can have a wheel.
            python = install.before.python or context.trace.python
            if package and found and found.pythons and python not in found.pythons:
                yield _without_rust(context, install, package, found)


def _without_rust(context: GuideContext, install: InstallStep, package: ResolvedPackage, found: RustBuild) -> Problem:
    python = install.before.python or context.trace.python
    line = line_of(context, package.line or install.action.line, package.reason)
    status: Status = "error"
    if install.before.image or (not install.before.python and _is_for_ended_pythons(found)):
        status = "warning"
    elif not install.before.python:
        status = "unknown"
    return Problem(
        status,
        f"{package.name} {package.version} has no wheel for Python {python}, and its build needs Rust, which no step "
        "installs",
        (
            guide_evidence(context, package.name, package.reason, line),
            table_evidence(found.archive, "builds with maturin or setuptools-rust", "pyproject.toml of the archive"),
            table_evidence(
                f"wheels of {package.name} {package.version}", ", ".join(found.pythons), "the package index"
            ),
        ),
        _fix(context, install, found),
        line=line,
    )


def _is_for_ended_pythons(found: RustBuild) -> bool:
    """Whether no wheel is for a Python that still has releases, so that no usual environment takes one."""
    return all(satisfies(python, f"<={_LAST_ENDED_PYTHON}") is True for python in found.pythons)


def _fix(context: GuideContext, install: InstallStep, found: RustBuild) -> str:
    state = "" if install.before.python else STATE_PYTHON
    if is_fixed_python(context.guide, install.before):
        return "Use a newer release of what requires it."
    return f"{state}Use Python {found.pythons[0]}, for which it has a wheel, or a newer release of what requires it."
