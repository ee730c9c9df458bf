"""The commands of remedies as actions of the guide that they are tried with."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.core.remedies import Install, Uninstall, command_of
from envdoctor.manifests.actions import Action
from envdoctor.manifests.actions import Install as InstallAction
from envdoctor.manifests.actions import Uninstall as UninstallAction
from envdoctor.resolution.requirement import parse_install_requirement

_LISTS = (".txt", ".in")


def action_of(step: object, line: int) -> Action | None:
    """The step as an action of a guide."""
    if isinstance(step, Uninstall):
        return UninstallAction(line, command_of(step), step.packages)
    if not isinstance(step, Install):
        return None
    parsed = (parse_install_requirement(text, line) for text in step.packages)
    return InstallAction(
        line, command_of(step), "uv", tuple(each for each in parsed if each), torch_backend=step.backend,
        no_deps=step.no_deps, no_build_isolation=step.no_build_isolation, reinstall=bool(step.reinstall),
    )  # fmt: skip


def is_project(action: Action) -> bool:
    """Whether an action installs a project, whose tool solves all requirements together when one changes."""
    return isinstance(action, InstallAction) and " " not in action.command and not action.command.endswith(_LISTS)


def with_requirements(action: Action, changes: Sequence[Action]) -> Action:
    """The installation of a project with the requirements of commands in place of its own, and in addition."""
    if not isinstance(action, InstallAction) or not changes:
        return action
    new = {each.name: each for change in changes if isinstance(change, InstallAction) for each in change.requirements}
    own = [new.pop(each.name, each) for each in action.requirements]
    return action._replace(line=changes[0].line, requirements=(*own, *new.values()))
