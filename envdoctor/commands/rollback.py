"""`envdoctor rollback`: restore the previous environment."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from envdoctor.core.command_line import command_line
from envdoctor.core.directories import log_file
from envdoctor.core.errors import Refused
from envdoctor.core.options import ForceOption, VenvArgument
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.environment.managed import EnvironmentPaths, read_install_record
from envdoctor.install.environment_lock import environment_lock
from envdoctor.install.environment_use import require_unused
from envdoctor.install.journal import ROLLBACK, Journal
from envdoctor.install.known_environments import file_system_errors, find_environment
from envdoctor.install.swap import recover_swap, swap_back


class RollbackResult(Record, frozen=True):
    """The two environments that were exchanged."""

    venv: str
    now: str  # profile and lock
    before: str


class RollbackRequest(Record, frozen=True):
    """Exchanges the current and the previous environment, so a second rollback undoes the first.

    Example: envdoctor rollback --venv ./venv
    """

    venv: VenvArgument = ""
    force: ForceOption = False


def run(request: RollbackRequest) -> CommandResult:
    """Exchange the current and the previous environment. A second rollback undoes the first."""
    environment = find_environment(request.venv)
    with file_system_errors(environment):
        if not environment.folder.is_dir():
            raise _no_previous(environment, environment.folder)
        with environment_lock(environment):
            command = command_line("envdoctor", "rollback", "--venv", environment.venv, "--force")
            require_unused(environment, force=request.force, command=command)
            recover_swap(environment)
            if not environment.previous.is_dir():
                raise _no_previous(environment, environment.previous)
            if not (environment.previous / "bin/python").exists():
                raise Refused(
                    f"the previous environment has no interpreter ({environment.previous}/bin/python)",
                    expected="a complete previous environment",
                    hint="envdoctor install, which builds a new one",
                )
            journal = Journal(environment.journal, ROLLBACK, log_file("rollback", environment.venv.name))
            with suppress(OSError):  # a rollback must work on a full disk
                journal.write(ROLLBACK, "start")
            swap_back(environment)
            with suppress(OSError):
                journal.write(ROLLBACK, "end", exit_code=0)
    return CommandResult(
        RollbackResult(str(environment.venv), _describe(environment.venv), _describe(environment.previous))
    )


def _no_previous(environment: EnvironmentPaths, missing: Path) -> Refused:
    return Refused(
        f"{environment.venv} has no previous environment (no {missing})",
        expected="an environment that replaced another, which `envdoctor clean` has not removed",
        hint="envdoctor envs",
    )


def _describe(path: Path) -> str:
    installed = read_install_record(path)
    if installed is None:
        return "an environment that envdoctor did not create" if path.is_dir() else "none"
    return f"{installed.profile} (lock {installed.lock}, installed {installed.created[:10]})"
