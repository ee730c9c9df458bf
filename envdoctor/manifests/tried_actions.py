"""The commands of remedies as actions of the guide that they are tried with."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from envdoctor.core.remedies import INSTALL, Install, Uninstall, UserCommand, command_of, parse_step
from envdoctor.manifests.actions import Action
from envdoctor.manifests.actions import Install as InstallAction
from envdoctor.manifests.actions import Uninstall as UninstallAction
from envdoctor.resolution.requirement import parse_install_requirement

_LISTS = (".txt", ".in")
_FILE = "--requirements="


def install_of(step: object) -> Install | None:
    """The installation of a step; of a command that installs files of requirements as well, what it adds to these."""
    if isinstance(step, Install):
        return step
    words = _words_with_files(step)
    added = [each for each in words if not each.startswith(_FILE)]
    is_valid = words and any(not each.startswith("-") for each in added[len(INSTALL) :])
    parsed = parse_step(shlex.join(added)) if is_valid else None
    return parsed if isinstance(parsed, Install) else None


def action_of(step: object, line: int, actions: Sequence[Action] = ()) -> Action | None:
    """The step as an action of a guide, whose `actions` install the files of requirements that it names."""
    if isinstance(step, Uninstall):
        return UninstallAction(line, command_of(step), step.packages)
    install = install_of(step)
    if install is None:
        return None
    files = [each.removeprefix(_FILE) for each in _words_with_files(step) if each.startswith(_FILE)]
    named = (
        each for each in actions if isinstance(each, InstallAction) and any(file in each.command for file in files)
    )
    listed = (each for action in named for each in action.requirements)
    parsed = (parse_install_requirement(text, line) for text in install.packages)
    return InstallAction(
        line, command_of(install), "uv", (*listed, *(each for each in parsed if each)), torch_backend=install.backend,
        no_deps=install.no_deps, no_build_isolation=install.no_build_isolation, reinstall=bool(install.reinstall),
    )  # fmt: skip


def _words_with_files(step: object) -> list[str]:
    """The words of a command that installs files of requirements; none for other steps."""
    if not isinstance(step, UserCommand) or not step.command.startswith(f"{' '.join(INSTALL)} {_FILE}"):
        return []
    return shlex.split(step.command)


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
