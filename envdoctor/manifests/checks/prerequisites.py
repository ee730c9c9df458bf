"""Checks on what a step needs from earlier steps: the dependencies that it omits, and files of a repository."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.actions import Clone, Run
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.rules.registry import Problem, rule

NO_DEPS = "https://pip.pypa.io/en/stable/cli/pip_install/#cmdoption-no-deps"
GROUPS = "https://docs.astral.sh/uv/pip/packages/#installing-packages-from-files"
_READS_UNKNOWN = lazy_pattern(r" (?:-r|--requirement)\b|(?:^| )(?:-e )?\.{1,2}(?:/|\[| |$)|\bsync\b|setup\.py")
_GROUP = lazy_pattern(r"\s--group[= ](\S+)")


@rule("RUN018", kind="guide", severity="error", cause="dependency-pin-violated", url=NO_DEPS)
def dependencies_are_omitted_and_not_installed(context: GuideContext) -> Iterator[Problem]:
    """A package is installed with --no-deps, and no step installs torch, which it requires."""
    installs = context.trace.installs
    for number, install in enumerate(installs):
        if not install.action.no_deps or install.before.image or install.before.resolution == "conflict":
            continue
        if "torch" in install.before.packages or any(map(_installs_unknown, installs[: number + 1])):
            continue
        end = _first_use(context, install)
        later = [each for each in installs[number + 1 :] if each.action.line < end]
        if any("torch" in each.after.packages or _installs_unknown(each) for each in later):
            continue
        for requirement in install.action.requirements:
            if requires := _required_torch(requirement):
                yield _without_dependencies(context, install, requirement, requires)


def _installs_unknown(install: InstallStep) -> bool:
    """Whether a step installs a project or a file that the guide does not show."""
    requirements = install.action.requirements
    is_local = any(each.url and not each.wheel for each in requirements)
    return bool(is_local or install.action.unknown or _READS_UNKNOWN.search(install.action.command))


def _first_use(context: GuideContext, install: InstallStep) -> float:
    """The line of the first program after a step that uses a package of it."""
    modules = {each.name.replace("-", "_") for each in install.action.requirements}
    runs = (run for run in context.actions(Run) if run.line > install.action.line)
    return next((run.line for run in runs if run.module.partition(".")[0] in modules), float("inf"))


def _required_torch(requirement: InstallRequirement) -> str:
    """The requirement on torch of the release, or of the newest one before a version that the tables lack."""
    if requirement.name in ("torch", "torchvision", "torchaudio"):
        return ""
    version = public_part(requirement.pin)
    before = next(iter(releases_in_range(requirement.name, f"<={version}" if version else "")), None)
    texts = requirements_of_release(requirement.name, version) or (
        requirements_of_release(requirement.name, before.version) if before else ()
    )
    parsed = ((text, parse_requirement(text)) for text in texts)
    return next((text for text, found in parsed if found and found.name == "torch"), "")


def _without_dependencies(
    context: GuideContext, install: InstallStep, requirement: InstallRequirement, requires: str
) -> Problem:
    line = line_of(context, install.action.line, requirement.text)
    return Problem(
        "error",
        f"--no-deps omits the dependencies of {requirement.name}, and no step installs torch or the others",
        (
            guide_evidence(context, "command", install.action.command, line),
            table_evidence(requirement.name, f"requires {requires}", "METADATA of the wheel on PyPI"),
        ),
        "Install its dependencies in an earlier step, torch from the index of its CUDA version.",
        line=line,
    )


@rule("RUN019", kind="guide", severity="warning", cause="dependency-pin-violated", url=GROUPS)
def group_is_installed_before_the_repository_is_cloned(context: GuideContext) -> Iterator[Problem]:
    """`--group` reads pyproject.toml of the current directory, and a later step clones the repository that has it."""
    clones = [action for action in context.actions(Clone) if action.url]
    entered = [command.line for command in context.guide.commands if command.words[:1] == ("cd",)]
    for install in context.trace.installs:
        line = install.action.line
        found = _GROUP.search(install.action.command)
        later = next((clone for clone in clones if clone.line > line), None)
        if not found or later is None or any(each.line < line for each in clones) or any(n < line for n in entered):
            continue
        yield Problem(
            "warning",
            f"--group {found[1]} reads pyproject.toml of the current directory, but the repository that has it is "
            f"cloned only in line {later.line}",
            (
                guide_evidence(context, "command", install.action.command, line),
                guide_evidence(context, "clone", later.command, later.line),
            ),
            "Clone the repository first, and run the command in its directory.",
            steps(shell_command("git clone {}", later.url)),
            line=line,
        )
