"""`envdoctor uninstall`: remove an environment, or everything that envdoctor stores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from envdoctor.core.command_line import command_line
from envdoctor.core.directories import cache_directory, state_directory
from envdoctor.core.errors import BadInput
from envdoctor.core.options import DryRunRemovalOption, ForceOption, Option, VenvArgument, YesOption
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.environment.managed import EnvironmentPaths, is_foreign, read_install_record
from envdoctor.install.environment_lock import environment_lock
from envdoctor.install.environment_use import require_unused
from envdoctor.install.known_environments import file_system_errors, find_environment, known_environments
from envdoctor.install.removal import Removal, RemovalResult, confirm_removal, restore_command
from envdoctor.install.swap import remove_tree
from envdoctor.knowledge.installed import knowledge_directory


class UninstallRequest(Record, frozen=True, kw_only=True):
    """The environment is removed with its previous ones. Your own profiles and uv's cache are kept.

    Example: envdoctor uninstall --venv ./venv
    """

    venv: VenvArgument = ""
    everything: Annotated[
        bool, Option("--all", "Remove every environment, all logs and all caches of envdoctor.")
    ] = False
    force: ForceOption = False
    dry_run: DryRunRemovalOption = False
    yes: YesOption = False


def run(request: UninstallRequest, reporter: Reporter) -> CommandResult:
    """Remove one environment with its previous ones, or all of them with logs and caches, after a confirmation."""
    if request.everything and request.venv:
        raise BadInput(
            "--all cannot be combined with an environment", expected="one of them", hint="envdoctor uninstall --help"
        )
    environments = known_environments() if request.everything else [find_environment(request.venv)]
    if not (request.dry_run or request.yes):
        words = ["uninstall", *([request.venv] if request.venv else []), *(["--all"] if request.everything else [])]
        planned = _uninstall(environments, everything=request.everything, dry_run=True)
        confirm_removal(planned, reporter, words)
    return CommandResult(
        _uninstall(environments, everything=request.everything, dry_run=request.dry_run, force=request.force)
    )


def _uninstall(
    environments: Sequence[EnvironmentPaths], *, everything: bool, dry_run: bool, force: bool = False
) -> RemovalResult:
    """Remove environments. All are checked before the first is removed, and those of other tools are kept."""
    removal = Removal(dry_run=dry_run)
    removable = [each for each in environments if _is_removable(each, removal, everything=everything)]
    for environment in removable:
        with file_system_errors(environment):
            _uninstall_environment(environment, removal, force=force)
    if everything:
        for folder in (state_directory(), cache_directory(), knowledge_directory()):
            if folder.exists():
                removal.count(folder)
                if not dry_run:
                    remove_tree(folder)
    return removal.result()


def _is_removable(environment: EnvironmentPaths, removal: Removal, *, everything: bool) -> bool:
    """Whether envdoctor created all of it. Raises BadInput if not, unless `everything` is to be removed."""
    with file_system_errors(environment):
        venv = environment.venv
        is_managed = read_install_record(venv) is not None
        is_other = venv.is_symlink() or (venv.exists() and not is_managed and not _is_empty(venv))
        replaced = [path for path in (environment.previous, *environment.adopted_environments) if is_foreign(path)]
        foreign = replaced + ([venv] if is_other else [])
        if foreign and not everything:
            raise _foreign_environment(environment, foreign)
        for path in foreign:
            removal.keep(path, "not created by envdoctor")
        if not environment.venv.exists() and not environment.folder.is_dir():
            raise BadInput(
                f"there is no environment at {environment.venv}",
                expected="an environment listed by `envdoctor envs`",
                hint="envdoctor envs",
            )
        return not foreign


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _foreign_environment(environment: EnvironmentPaths, foreign: Sequence[Path]) -> BadInput:
    if environment.venv in foreign:
        return BadInput(
            f"{environment.venv} was not created by envdoctor",
            expected="an environment listed by `envdoctor envs`",
            hint="envdoctor envs",
        )
    restore = restore_command(environment, foreign[0])
    return BadInput(
        f"{foreign[0]} was not created by envdoctor; {environment.venv} replaced it",
        expected="permission to remove it as well, or its restoration first",
        hint=f"{command_line('envdoctor', 'clean', '--venv', environment.venv, '--adopted')}; or {restore}",
    )


def _uninstall_environment(environment: EnvironmentPaths, removal: Removal, *, force: bool) -> None:
    """Remove an environment. It is renamed first, so that a killed removal leaves no complete-looking environment."""
    for path in (environment.venv, environment.folder):
        if path.exists():
            removal.count(path)
    if removal.dry_run:
        return
    with environment_lock(environment):
        command = command_line("envdoctor", "uninstall", "--venv", environment.venv, "--force")
        require_unused(environment, force=force, command=command)
        if environment.venv.exists():
            environment.venv.rename(environment.folder / f"removing-{os.getpid()}-venv")
        remove_tree(environment.folder)
