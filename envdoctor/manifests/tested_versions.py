"""The environment of a guide with the versions that its text states, where its steps leave them open."""

from __future__ import annotations

from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import published_releases, releases_in_range
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, correct_environment
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.records import build_machine
from envdoctor.manifests.stated_cuda import cuda_of_commands
from envdoctor.manifests.stated_packages import stated_versions
from envdoctor.manifests.step_resolution import CONDA_NAMES
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage, ResolverTarget
from envdoctor.resolution.torch_sources import torch_has_build


def with_tested_versions(context: GuideContext, environment: CorrectedEnvironment) -> CorrectedEnvironment:
    """The environment with the versions of the text in place of today's, corrected as the audit corrects it.

    Only packages that a step installs get one. The dependencies of today's releases are left out: the solver finds
    those of the tested ones.
    """
    state = environment.state
    installed = {**dict.fromkeys(_open_packages(context, state.name)), **state.requested}
    tested = {
        name: found
        for name, requirement in _stated(context).items()
        if name in installed and (found := _tested(context, installed[name], requirement))
    }
    if not tested:
        return environment
    named = {name: package for name, package in state.packages.items() if not package.is_dependency}
    changed = state._replace(packages=named | tested, requested=state.requested | tested)
    machine = context.machine or build_machine(context.trace)
    target = ResolverTarget(context.platform, state.python, state.glibc, context.trace.today)
    return correct_environment(machine, changed, target, context.build)


def _stated(context: GuideContext) -> dict[str, InstallRequirement]:
    guide = context.guide
    code = {number for block in guide.blocks for number, _ in block.lines}
    return stated_versions(guide.lines, code) if guide.blocks and guide.commands else {}


def _open_packages(context: GuideContext, name: str) -> list[str]:
    """The packages that the steps of an environment install without a version."""
    installs = (each for each in context.trace.installs if each.after.name == name)
    named = (each for install in installs for each in install.action.requirements if not each.url)
    return [CONDA_NAMES.get(each.name, each.name) for each in named if not each.specifier]


def _tested(
    context: GuideContext, package: ResolvedPackage | None, stated: InstallRequirement
) -> ResolvedPackage | None:
    """A package at its tested release; None if a step states a version, and if there is no such release.

    PyPI can have another project under the name that a package has in conda only: `package_of_text` has the name.
    """
    if package and (package.specifier or package.pinned or package.wheel or package.origin == IMAGE_ORIGIN):
        return None
    name, releases = stated.name, releases_in_range(stated.name, stated.specifier)
    if published_releases(name) and not releases:
        return None
    version = releases[0].version if releases else stated.pin
    if package and name == "torch":
        cuda = _tested_build(context, version, package.cuda)
        return package._replace(version=version, pinned=True, cuda=cuda, specifier=stated.specifier)
    return ResolvedPackage(name, version, stated.line, stated.text, True, specifier=stated.specifier)


def _tested_build(context: GuideContext, torch: str, installed: str) -> str:
    """The CUDA version of a torch: that of the steps, else that of the text, else that of its wheel on PyPI."""
    guide, platform = context.guide, context.platform
    stated = (installed, cuda_of_commands(guide.actions, guide.name).version, guide.cuda)
    built = (cuda for cuda in stated if cuda and torch_has_build(torch, cuda, platform))
    return next(built, cuda_on_pypi(torch, platform))
