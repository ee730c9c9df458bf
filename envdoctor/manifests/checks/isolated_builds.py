"""Checks on builds in isolation that need torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.git_builds import MAIN, build_of_package
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.images import is_bare_image
from envdoctor.knowledge.published import PublishedRelease, find_release, releases_in_range
from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.manifests.actions import WITHOUT_COMMAND
from envdoctor.manifests.built_repositories import BuiltRepository, built_repositories
from envdoctor.manifests.checks.builds import BUILT_WITH_TORCH, ISOLATION, possible_builds, torch_of_step
from envdoctor.manifests.checks.certainty import builds_in_isolation
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.replacements import installs_a_main_branch
from envdoctor.manifests.checks.torch_of_builds import install_command, named_torch, standard_of, torch_of_steps
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState, setuptools_for
from envdoctor.manifests.flash_attn_wheels import has_release_wheel, release_with_wheel
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement
from envdoctor.rules.registry import Problem, rule

_HEADING = lazy_pattern(r"#{1,6}\s")
_CONTAINER = lazy_pattern(r"(?<!without )(?<!no )\b(?:docker|container|image)", re.IGNORECASE)
# Source archives without a pyproject.toml, read on 2026-11-26: flash-attn 1.0.9 to 2.8.3.post2, causal-conv1d 1.1.1
# to 1.5.0.post8, mamba-ssm 1.1.1 to 2.2.2.
_WITHOUT_PYPROJECT = {"flash-attn": ">=0", "causal-conv1d": "<1.5.1", "mamba-ssm": "<2.2.3"}

_TOOLS = ("packaging", "psutil", "ninja")
_OLD = timedelta(days=730)  # the newest torch is another generation


@rule(
    "RUN040",
    kind="guide",
    severity="error",
    cause="build-isolation-no-torch",
    url=ISOLATION,
    needs=("wheels", "isolation"),
)
def isolated_build_has_no_torch(context: GuideContext) -> Iterator[Problem]:
    """The build of flash-attn imports torch. In an isolated build it fails with ModuleNotFoundError.

    pip before 25.3 builds a project without a pyproject.toml without isolation, with the torch that is installed.
    tool.uv can add torch to a build: no-build-isolation-package, extra-build-dependencies.
    """
    reported: set[tuple[str, str, str]] = set()  # a later step with the same requirement is not reached
    for install, requirement, line in possible_builds(context):
        key = (requirement.name, install.before.name, install.before.image)
        if install.action.no_build_isolation or install.action.tool == "conda" or key in reported:
            continue
        if requirement.name not in BUILT_WITH_TORCH - {"flash-attn-3"} or satisfies(requirement.pin or "2.8", ">=3"):
            continue
        if requirement.name in install.action.built_with_torch or _has_wheel_on_index(context, install, requirement):
            continue
        package = install.resolution.packages.get(requirement.name)
        release = requirement.pin or (package.version if package and not requirement.url else "")
        if requires_torch_itself(requirement.name, release) or (
            requirement.url and build_of_package(requirement.name)
        ):
            continue
        if requirement.name == "apex" and not requirement.url:
            continue  # PyPI has another project of this name, which does not import torch
        is_legacy = _is_without_pyproject(requirement.name, release)
        is_isolated = builds_in_isolation(install) if is_legacy or install.action.command in WITHOUT_COMMAND else True
        if is_isolated is False and _has_torch(install.before):
            continue
        reported.add(key)
        yield Problem(
            "error",
            f"`{requirement.text}` is built from source in an isolated environment without torch"
            if is_isolated is not False
            else f"`{requirement.text}` is built from source before torch is installed",
            (
                guide_evidence(context, requirement.name, _command(install, requirement), line),
                table_evidence(requirement.name, "source only on PyPI", "release list of PyPI", "2026-11-21"),
            ),
            *_ways_to_build(context, install, requirement.text, f"{requirement.name}=={release}"),
            line=line,
            proven=() if is_isolated is None else ("isolation",),
        )
    yield from _isolated_dependencies(context)
    yield from _isolated_repositories(context)


def _isolated_dependencies(context: GuideContext) -> Iterator[Problem]:
    """Packages without a wheel that others require: no step installs them with torch before."""
    for install in context.trace.installs:
        action = install.action
        built = install.resolution.built & (BUILT_WITH_TORCH - {"flash-attn-3"})
        for name in sorted(built - action.built_with_torch - install.before.packages.keys()):
            package = install.resolution.packages.get(name)
            if not package or not package.is_dependency or action.no_build_isolation or action.only_binary:
                continue
            if requires_torch_itself(name, package.version):
                continue
            line, pin = package.line or action.line, f"{name}=={package.version}"
            if installs_a_main_branch(install) and _is_in_a_container(context, line):
                continue  # its image, which no command names, can have the package
            yield Problem(
                "error",
                f"{pin} ({package.reason}) is built from source in an isolated environment without torch",
                (
                    guide_evidence(context, name, package.reason, line),
                    table_evidence(pin, "no wheel for the target", "the package index"),
                ),
                f"Install torch and the tools of the build first, then {name} without isolation, then this step.",
                steps(
                    _install_tools(install, _needed_torch(context, install, standard_of(pin)), *_TOOLS),
                    shell_command("uv pip install {} --no-build-isolation", pin),
                ),
                line=line,
                proven=("isolation",),
            )


def _is_in_a_container(context: GuideContext, line: int) -> bool:
    """Whether the heading above a line names a container."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    text = (number for number in range(min(line, len(context.guide.lines)), 0, -1) if number not in code)
    headings = (each for number in text if _HEADING.match(each := context.guide.lines[number - 1]))
    return bool(_CONTAINER.search(next(headings, "")))


def _command(install: InstallStep, requirement: InstallRequirement) -> str:
    """The command of a step; the requirement in the section of an environment file, whose command is only `pip`."""
    return install.action.command if " " in install.action.command else requirement.text


def _has_torch(state: EnvironmentState) -> bool:
    """Whether an environment contains torch, or an image or a file that is not read can have brought it."""
    is_unread = state.resolution in ("partial", "unresolved") or not is_bare_image(state.image)
    return "torch" in state.packages or (state.tool == "image" and is_unread)


def _needed_torch(context: GuideContext, install: InstallStep, standard: int) -> str:
    """The torch to install before a build; empty if an earlier step or an image brings one.

    `standard` is that of the C++ code, 0 if it is unknown.
    """
    return "" if _has_torch(install.before) else torch_of_steps(context, install, standard)


def _install_tools(install: InstallStep, torch: str, *others: str) -> str:
    """The step with what a build needs, with a torch if it is not empty."""
    own = {name: each for name, each in install.resolution.packages.items() if name == "setuptools"}
    state = install.before._replace(packages={**own, **install.before.packages})  # a pin of the step stays
    setuptools = setuptools_for(state, torch.partition("==")[2])
    return install_command([*([torch] if torch else []), setuptools, "wheel", *others])


def _ways_to_build(
    context: GuideContext, install: InstallStep, requirement: str, pin: str
) -> tuple[str, tuple[Remedy, ...]]:
    """The words and the commands of a build without isolation, of an old release with the torch of its time."""
    own_torch = _needed_torch(context, install, standard_of(pin))
    chosen = _release_with_wheel(context, install, requirement, pin)
    build = shell_command("uv pip install {} --no-build-isolation", chosen or requirement)
    torch = torch_of_time(pin) if own_torch and not named_torch(context) else None
    if torch is None:
        first = own_torch if "<" in own_torch and not named_torch(context) else "torch"
        fix = f"Install {first}, setuptools, wheel, packaging, psutil and ninja first, then add --no-build-isolation."
        fix += f" {chosen} is the newest release with wheels for this torch." if chosen else ""
        return fix, steps(_install_tools(install, own_torch, *_TOOLS), build)
    cuda = cuda_on_pypi(torch.version, context.platform)
    built_for = f" (CUDA {cuda}, as the toolkit has to be)" if cuda else ""
    fix = (
        f"Install torch {torch.version} of the time of {pin.replace('==', ' ')}{built_for}, setuptools, wheel, "
        "packaging, psutil and ninja first, then add --no-build-isolation."
    )
    if unfit := without_wheel(context, install, torch):
        return f"{fix}{unfit}", ()
    return fix, steps(_install_tools(install, f"torch=={torch.version}", *_TOOLS), build)


def _release_with_wheel(context: GuideContext, install: InstallStep, requirement: str, pin: str) -> str:
    """The newest flash-attn with a wheel for the pinned torch, where an open requirement brings one without."""
    torch, named = torch_of_step(install), parse_install_requirement(requirement, 0)
    if not torch or not torch.pinned or not named or named.name != "flash-attn" or named.pin or named.url:
        return ""
    platform, python, release = context.platform, install.before.python, minor_of(torch.version)
    chosen = release_with_wheel(release, torch.cuda, python, platform)
    is_unfit = has_release_wheel(pin.partition("==")[2], release, python, platform) is False
    is_permitted = chosen and satisfies(chosen, named.specifier or ">=0")
    return f"flash-attn=={chosen}" if is_unfit and is_permitted else ""


def without_wheel(context: GuideContext, install: InstallStep, torch: PublishedRelease) -> str:
    """The sentence on a torch that has no wheel for the Python of a step; empty if it has one."""
    python = install.before.python or context.trace.python
    if not python or torch.has_wheel(context.platform, python):
        return ""
    return f" It needs another Python: torch {torch.version} has no wheel for {python}."


def torch_of_time(pin: str) -> PublishedRelease | None:
    """The newest torch at the time of an old release, for which it was written; None for newer releases."""
    name, _, version = pin.partition("==")
    release = find_release(name, version) if version else None
    newest, *older = releases_in_range("torch", "")
    if release is None or date.fromisoformat(newest.date) - date.fromisoformat(release.date) < _OLD:
        return None
    return next((each for each in older if each.date <= release.date), None)


def _is_without_pyproject(name: str, version: str) -> bool:
    """Whether the source archive of a release, the newest one without a version, has no pyproject.toml."""
    return satisfies(public_part(version or "99"), _WITHOUT_PYPROJECT.get(name, "<0")) is True


def _has_wheel_on_index(context: GuideContext, install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether the package index has a wheel of the release, for some Python and platform."""
    package = install.resolution.packages.get(requirement.name)
    version = requirement.pin or (package.version if package else "")
    index = context.index_facts
    if requirement.url or index is None:
        return False
    release = index.release(requirement.name, version) if version else index.newest_release(requirement.name)
    return release is not None and release.has_wheel


def _isolated_repositories(context: GuideContext) -> Iterator[Problem]:
    """Repositories of the tables that are built in isolation without torch."""
    for built in built_repositories(context):
        if "torch" not in built.row.modules or not built.row.lacks_modules(built.release) or not is_isolated(built):
            continue
        row, requirement = built.row, built.requirement
        line = line_of(context, requirement.line, requirement.text)
        verb = "imports" if row.build_file == "setup.py" else "needs"
        yield Problem(
            "error",
            f"{built.title} is built in an isolated environment without torch, which its {row.build_file} {verb}",
            (
                guide_evidence(context, row.package, _command(built.install, requirement), line),
                table_evidence(row.build_file, "import torch", row.source, row.date),
            ),
            "Install torch, setuptools, wheel and ninja first, then add --no-build-isolation.",
            steps(
                _install_tools(built.install, _needed_torch(context, built.install, built.row.standard), "ninja"),
                shell_command("uv pip install {} --no-build-isolation", requirement.text),
            ),
            line=line,
            proven=("isolation",) if built.has_pyproject else (),
        )


def is_isolated(built: BuiltRepository) -> bool:
    """Whether the build of a repository has an environment of its own; also if the release of pip is not known."""
    action = built.install.action
    names = {built.row.package, built.row.repository_name, built.requirement.name}
    if action.no_build_isolation or names & action.built_with_torch:
        return False
    return built.has_pyproject or builds_in_isolation(built.install) is not False


def requires_torch_itself(name: str, version: str) -> bool:
    """Whether an isolated build of a release has torch, because its build requirements name it."""
    row = build_of_package(name)
    return row is not None and row.compiles_for_newest_torch(version or MAIN) is not False
