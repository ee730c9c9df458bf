"""Problems of dependencies: unused ones, and those of which a repository can require another release."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from envdoctor.environment.markers import Markers
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import leading_name, required_specifier
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.unread_sources import unread_repositories
from envdoctor.resolution.index_facts import InstalledSet
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem


def of_used_dependency(
    context: GuideContext, installed: InstalledSet, package: ResolvedPackage, problem: Problem
) -> Problem:
    """The problem of an import; a note if the package is a dependency that its requirer never imports.

    Projects require packages that only the code of a model uses: ms-swift requires attrdict.
    """
    if not package.is_dependency or problem.status != "warning" or context.index_facts is None:
        return problem
    requiring = package.reason.removeprefix("required by ").partition(" ")[0]
    if context.index_facts.imports_package(installed, requiring, package.name) is not False:
        return problem
    return replace(problem, status="info", message=f"{problem.message} ({requiring} does not import {package.name})")


def of_used_requirement(
    context: GuideContext, packages: Mapping[str, ResolvedPackage], package: ResolvedPackage, place: str,
    problem: Problem,
) -> Problem:  # fmt: skip
    """The problem of an import in `place`; a note if only a file of the checkout names the package.

    Neither its code, nor the guide, nor the metadata of an installed package names it: lmms-eval requires
    transformers-stream-generator, which only the code of one model imports.
    """
    checkout = context.guide.checkout
    is_judged = problem.status == "error" and not package.is_dependency and checkout and checkout.is_clone
    if not is_judged or checkout is None or context.index_facts is None:
        return problem
    module = place.removeprefix("src/").partition("/")[0].removesuffix(".py")
    name = re.compile(rf"(?<![\w-])(?:{re.escape(module)}|{re.escape(package.name)})(?![\w-])", re.IGNORECASE)
    lines = enumerate(
        context.guide.lines if context.guide.commands else (), 1
    )  # those of a manifest require packages
    other_lines = (each for line, each in lines if line != package.line)
    if any(map(name.search, other_lines)) or checkout.once(module, find=lambda: _is_in_code(checkout, name)):
        return problem
    others = [each for each in packages.values() if not each.is_dependency or published_releases(each.name)]
    markers = Markers(context.trace.python, context.platform)
    requires = (context.index_facts.requires(each.name, each.version) for each in others if each is not package)
    if any(package.name in map(leading_name, markers.applicable(each)) for each in requires):
        return problem
    return replace(problem, status="info", message=f"{problem.message} (no code of the checkout imports {module})")


def _is_in_code(checkout: Checkout, name: re.Pattern[str]) -> bool:
    """Whether a module or a script names a package, or there is no code."""
    files = [each for each in checkout.paths if each.endswith((".py", ".ipynb", ".sh")) and each != "setup.py"]
    return not files or any(name.search(checkout.text(each)) for each in files)


def can_be_newer(context: GuideContext, state: EnvironmentState, package: ResolvedPackage) -> bool:
    """Whether a repository that is not read can require a newer release of a dependency than the solver selects."""
    if not package.is_dependency or not unread_repositories(context, state):
        return False
    name, _, version = package.reason.removeprefix("required by ").partition(" ")
    return not re.search(r"<|==|~=", required_specifier(name, version, package.name))
