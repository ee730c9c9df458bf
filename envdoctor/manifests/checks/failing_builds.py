"""A check on releases without a wheel whose build fails with the build tools of today."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.checks.builds import BUILT_WITH_TORCH
from envdoctor.manifests.checks.certainty import builds_in_isolation
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.torch_of_builds import install_command, tools_of_build
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.index_facts import BuildFailure
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

SETUP_PY = "https://setuptools.pypa.io/en/stable/history.html"
_WITHOUT_DISTUTILS = "3.12"  # which setuptools 57 imports


@rule("RUN223", kind="guide", severity=("error", "warning"), cause="library-too-new", url=SETUP_PY,
      needs=("wheels", "python"))  # fmt: skip
def build_fails_with_the_tools_of_today(context: GuideContext) -> Iterator[Problem]:
    """A release has no wheel for the Python, and its setup.py fails with the setuptools or the pip of today.

    Python 3.12 removed imp, setuptools 58 use_2to3, 67 rejects requirements outside of PEP 440, and Cython 3 has no
    cython_sources. A script that sets an attribute of __builtins__ stops in every build by PEP 517.
    A Cython module without its C file needs Cython, which some releases do not require for their build. A warning if
    the guide names no Python.

    Fix: a newer release with a wheel or a complete build, else the tools of the time and a build without isolation.
    """
    index = context.index_facts
    for install in context.trace.installs if index else ():
        action = install.action
        if action.only_binary or action.tool == "conda" or index is None:
            continue
        for name in sorted(install.resolution.built - BUILT_WITH_TORCH - action.built_with_torch):
            package = install.resolution.packages.get(name)
            python = install.before.python or context.trace.python
            is_of_index = package and package.origin == "PyPI"
            found = index.build_failures(name, package.version, python) if package and is_of_index else ()
            failures = [each for each in found if not _is_cured(install, each)]
            if package and failures:
                yield _failing_build(context, install, package, failures)


def _is_cured(install: InstallStep, failure: BuildFailure) -> bool:
    """Whether a build with the installed packages has what it needs, or its tools can be older ones."""
    if builds_in_isolation(install) is not False or any(each.startswith("python<") for each in failure.cured_by):
        return False
    names = {found.name for text in failure.cured_by if (found := parse_requirement(text))}
    return "cython" not in names or "cython" in install.before.packages


def _failing_build(
    context: GuideContext, install: InstallStep, package: ResolvedPackage, failures: Sequence[BuildFailure]
) -> Problem:
    line = line_of(context, package.line or install.action.line, package.reason)
    fix, remedies = _fix(context, install, package, failures)
    return Problem(
        "error" if install.before.python else "warning",
        f"{package.name} {package.version} has no wheel, and its build fails: setup.py "
        f"{' and '.join(each.reason for each in failures)}",
        (
            guide_evidence(context, package.name, package.reason, line),
            *(table_evidence(f"setup.py:{each.line}", each.reason, each.archive) for each in failures),
        ),
        fix,
        remedies,
        line=line,
    )


def _fix(
    context: GuideContext, install: InstallStep, package: ResolvedPackage, failures: Sequence[BuildFailure]
) -> tuple[str, tuple[Remedy, ...]]:
    python, index = install.before.python or context.trace.python, context.index_facts
    needed = [text for each in failures for text in each.cured_by]
    older = next((text for text in needed if text.startswith("python<")), "")
    newer = index.buildable_release(package.name, python, context.platform) if index else None
    # An older release than one for an older Python is for that one as well.
    is_older = older and newer and satisfies(newer.version, f"<{package.version}")
    if newer and newer.version != package.version and not is_older:
        pin = f"{newer.name}=={newer.version}"
        return f"Use {pin}, which has a wheel or a complete build, if the code permits it.", install_step(pin)
    if older:
        return f"Create the environment with a Python below {older.partition('<')[2]}.", ()
    is_possible = all(each.cured_by for each in failures)
    is_too_new = "setuptools<58" in needed and satisfies(python, f">={_WITHOUT_DISTUTILS}") is not False
    if is_possible and not is_too_new:
        needed = tools_of_build(context, install, package, needed)
        needed += [] if any(each.startswith("setuptools") for each in needed) else ["setuptools"]
        return (
            f"Install {', '.join(needed)} and wheel first, then build without isolation.",
            steps(
                install_command([*needed, "wheel"]),
                shell_command("uv pip install {} --no-build-isolation", f"{package.name}=={package.version}"),
            ),
        )
    return f"Use another release of {package.name}.", ()
