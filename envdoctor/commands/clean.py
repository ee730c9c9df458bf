"""`envdoctor clean`: remove replaced environments, unfinished installs and unused builds."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from envdoctor.core.directories import cache_directory
from envdoctor.core.files import open_file
from envdoctor.core.options import DryRunRemovalOption, Option, VenvArgument, YesOption
from envdoctor.core.paths import expand_home
from envdoctor.core.record import Record
from envdoctor.core.reporter import Reporter
from envdoctor.core.results import CommandResult
from envdoctor.download.partial_file import PART_SUFFIX
from envdoctor.environment.managed import EnvironmentPaths, environment_paths, is_foreign
from envdoctor.forecast.set_names import FOLDER as COMPARED_FOLDER
from envdoctor.forecast.wheels import USES_FOLDER
from envdoctor.install.build_cache import try_lock_build, unused_builds
from envdoctor.install.environment_lock import environment_lock
from envdoctor.install.known_environments import file_system_errors, known_environments
from envdoctor.install.removal import Removal, RemovalResult, confirm_removal, restore_command
from envdoctor.install.swap import recover_swap
from envdoctor.package_index.wheel_metadata import FOLDER as METADATA_FOLDER
from envdoctor.package_index.wheel_sources import FOLDER as SOURCES_FOLDER


class CleanRequest(Record, frozen=True, kw_only=True):
    """Also removes leftovers of killed installs.

    Example: envdoctor clean --dry-run
    """

    venv: VenvArgument = ""
    dry_run: DryRunRemovalOption = False
    yes: YesOption = False
    adopted: Annotated[
        bool,
        Option("--adopted", "Also remove replaced environments not created by envdoctor."),
    ] = False


def run(request: CleanRequest, reporter: Reporter) -> CommandResult:
    """Clean one environment, or all of them and the cache of builds, after a confirmation."""
    if not (request.dry_run or request.yes):
        words = ["clean", *([request.venv] if request.venv else []), *(["--adopted"] if request.adopted else [])]
        confirm_removal(_clean(request, dry_run=True), reporter, words)
    return CommandResult(_clean(request, dry_run=request.dry_run))


def _clean(request: CleanRequest, *, dry_run: bool) -> RemovalResult:
    venv = request.venv
    environments = [environment_paths(expand_home(venv).absolute())] if venv else known_environments()
    removal = Removal(dry_run=dry_run)
    for environment in environments:
        with file_system_errors(environment):
            if not environment.folder.is_dir():
                continue
            if dry_run:
                _clean_environment(environment, removal, adopted=request.adopted)
                continue
            with environment_lock(environment):
                recover_swap(environment)
                _clean_environment(environment, removal, adopted=request.adopted)
    if not venv:
        _clean_downloads(removal)
        _clean_sources(removal)
        _clean_builds([environment.venv for environment in environments], removal)
    return removal.result()


def _clean_environment(environment: EnvironmentPaths, removal: Removal, *, adopted: bool) -> None:
    for path in (environment.previous, environment.building, *environment.adopted_environments):
        if is_foreign(path) and path != environment.building and not adopted:
            restore = restore_command(environment, path)
            removal.keep(
                path,
                f"not created by envdoctor; restore it with {restore}, or remove it with envdoctor clean --adopted",
            )
        elif path.is_dir():
            removal.remove(path)


def _clean_downloads(removal: Removal) -> None:
    """Remove unfinished downloads of direct wheels, except those that run."""
    for part in (cache_directory() / "wheels").glob(f"*/*{PART_SUFFIX}"):
        with suppress(OSError), open_file(part) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                removal.keep(part, "it is being downloaded")
            else:
                removal.remove(part.parent)


def _clean_sources(removal: Removal) -> None:
    """Remove what other commands have read of wheels: it is read again when it is needed."""
    for name in (SOURCES_FOLDER, METADATA_FOLDER, USES_FOLDER, COMPARED_FOLDER):
        path = cache_directory() / name
        if path.is_dir():
            removal.remove(path)


def _clean_builds(environments: Sequence[Path], removal: Removal) -> None:
    for path in unused_builds(cache_directory() / "builds", environments):
        try:
            with try_lock_build(path) as free:
                if free:
                    removal.remove(path)
                else:
                    removal.keep(path, "a build is running in it")
        except OSError as error:
            removal.keep(path, f"cannot be removed: {error.strerror or error}")
