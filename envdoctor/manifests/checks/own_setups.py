"""Checks on the setup.py of a project on disk that a step installs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import Clone, directory_of_clone
from envdoctor.manifests.built_repositories import built_repositories, repository_of_clone
from envdoctor.manifests.checks.builds import ISOLATION
from envdoctor.manifests.checks.certainty import builds_in_isolation
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.isolated_builds import is_isolated
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import setuptools_for
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.rules.registry import Problem, rule

_PACKAGES = {"pkg_resources": "setuptools<82", "Cython": "cython"}
_FIRST_PYTHON = ">=3.9"  # with setuptools 82, which has no pkg_resources


@rule("RUN178", kind="guide", severity="error", cause="build-isolation-no-torch", url=ISOLATION, needs=("isolation",))
def own_build_lacks_a_module(context: GuideContext) -> Iterator[Problem]:
    """The project is built in isolation, and its own setup.py imports what that environment lacks.

    torch, numpy and Cython are only there if pyproject.toml requires them. setuptools 82 has no pkg_resources.
    """
    reported: set[str] = {*_clones_of_reported(context)}
    for install in context.trace.installs:
        is_isolated = builds_in_isolation(install)
        python = install.before.python or context.trace.python
        for build in install.action.own_builds:
            is_old = satisfies(python, _FIRST_PYTHON) is False
            modules = [each for each, _ in build.imports if not (each == "pkg_resources" and is_old)]
            is_kept = install.action.no_build_isolation or (is_isolated is False and not build.has_pyproject)
            if (
                not modules
                or is_kept
                or install.action.built_with_torch
                or (place := posixpath.normpath(build.url)) in reported
            ):
                continue
            reported.add(place)
            line = line_of(context, install.action.line, build.url)
            # With another torch than the project requires, the build would be for one that is replaced next.
            bounds = {each.name: each.specifier for each in install.action.requirements}
            needed = [
                _PACKAGES.get(each, f"{each}{bounds.get(each, '')}")
                for each in modules
                if not _is_installed(install, each, bounds.get(each, ""))
            ]
            setuptools = setuptools_for(install.before) if "torch" in modules else "setuptools"
            needed += [] if "setuptools<82" in needed else [setuptools]
            # A remedy has no editable installations: its sentence names what to add to the command of the guide.
            is_editable = re.search(r"\s(?:-e|--editable)\b", install.action.command)
            yield Problem(
                "error",
                f"`{build.url}` is built in an isolated environment without {' and '.join(modules)}, which its "
                f"setup.py imports{' (setuptools 82 removed pkg_resources)' if 'pkg_resources' in modules else ''}",
                (
                    guide_evidence(context, "command", install.action.command, line),
                    *(table_evidence(f"setup.py:{row}", f"import {each}", "the project next to it")
                      for each, row in build.imports if each in modules),
                ),
                f"Install {', '.join(needed)} and wheel first, then add --no-build-isolation"
                f"{f' to `{install.action.command[:80]}`' if is_editable else ''}.",
                steps(
                    shell_command("uv pip install {} wheel", needed),
                    *([] if is_editable else [shell_command("uv pip install {} --no-build-isolation", build.url)]),
                ),
                line=line,
                proven=("isolation",) if build.has_pyproject else (),
            )  # fmt: skip


def _is_installed(install: InstallStep, module: str, specifier: str) -> bool:
    """Whether an earlier step installs what the project requires."""
    package = install.before.packages.get(module)
    return package is not None and satisfies(public_part(package.version), specifier or ">=0") is True


def _clones_of_reported(context: GuideContext) -> Iterator[str]:
    """The directories of repositories that another way through the guide builds by their address: RUN040."""
    built = (each for each in built_repositories(context) if "torch" in each.row.modules and is_isolated(each))
    repositories = {each.row.repository.lower() for each in built if each.requirement.url.startswith("git+")}
    for clone in context.actions(Clone):
        if repository_of_clone(clone.url).lower() in repositories:
            yield directory_of_clone(clone.url)
