"""Packages that a new environment has before the first step of a guide."""

from __future__ import annotations

from msgspec.structs import replace

from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.context import GuideContext
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem

_SEEDED_SETUPTOOLS = "65.5.0"  # of ensurepip in Python 3.10 and 3.11


def if_not_seeded(context: GuideContext, package: ResolvedPackage, problem: Problem) -> Problem:
    """A problem with setuptools, which is not certain where venv or conda can have installed an older one."""
    is_certain = package.name != "setuptools" or problem.status not in ("error", "warning")
    if is_certain or not may_be_there_before(context, package):
        return problem
    return replace(
        problem,
        status="unknown",
        message=f"{problem.message} (not certain: pip keeps the setuptools that venv or conda installs)",
        fix=f"Check with `python -c 'import pkg_resources'`. {problem.fix}",
    )


def may_be_there_before(context: GuideContext, setuptools: ResolvedPackage) -> bool:
    """Whether a new environment has a setuptools that its requirement accepts, so that pip keeps it.

    venv installs it up to Python 3.11, conda always; an environment of uv has none.
    """
    states = [each.state for each in context.environments if setuptools in each.state.packages.values()]
    has_seeds = any(
        each.tool == "conda" or satisfies(each.python or context.trace.python, "<3.12") is not False
        for each in states
    )
    tools = {each.action.tool for each in context.trace.installs if "setuptools" in each.resolution.packages}
    if not has_seeds or (tools <= {"uv"} and context.guide.commands) or context.index_facts is None:
        return False
    name, _, version = setuptools.reason.removeprefix("required by ").partition(" ")
    texts = context.index_facts.requires(name, version) if setuptools.is_dependency else ()
    bounds = [found.specifier for text in texts if (found := parse_requirement(text)) and found.name == "setuptools"]
    bounds += [] if setuptools.is_dependency else [setuptools.specifier]
    return all(satisfies(_SEEDED_SETUPTOOLS, bound) is not False for bound in bounds if bound)
