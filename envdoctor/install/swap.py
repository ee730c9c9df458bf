"""Let a finished environment take the place of the current one; go back to the one before; clear up after a kill."""

from __future__ import annotations

import ctypes
import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from envdoctor.environment.managed import (
    FOREIGN,
    EnvironmentPaths,
    is_foreign,
    read_install_record,
    write_install_record,
)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one atomic step; False where the C library or the file system cannot (NFS, musl)."""
    at_working_directory, rename_exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    encoded = os.fsencode(one), os.fsencode(other)
    return bool(rename(at_working_directory, encoded[0], at_working_directory, encoded[1], rename_exchange) == 0)


def flush_file_system(folder: Path) -> None:
    """Wait until a file system has on its disk what was written to it, one by one: before that, a power failure
    leaves files of the right names and no content, which no marker may vouch for. Without syncfs(2) it is skipped.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(AttributeError):
            ctypes.CDLL(None).syncfs(handle)
    finally:
        os.close(handle)


def swap_in(paths: EnvironmentPaths) -> None:
    """The environment in `building` becomes the current one, in one step where the system can; the other waits there.

    What was current is then in `building`, or in `outgoing`; `retain_previous` moves it on.
    """
    if not paths.venv.exists() or not any(paths.venv.iterdir()):
        paths.building.rename(paths.venv)  # rename(2) replaces an empty folder
    elif not exchange(paths.building, paths.venv):
        paths.venv.rename(paths.outgoing)
        try:
            paths.building.rename(paths.venv)
        except OSError:
            paths.outgoing.rename(paths.venv)
            raise


def retain_previous(paths: EnvironmentPaths) -> None:
    """What was current a moment ago becomes the previous one; the one before that goes."""
    old = next((place for place in (paths.outgoing, paths.building) if place.exists()), None)
    if old is None:
        return
    if is_foreign(paths.previous):
        paths.previous.rename(paths.next_adopted_environment)
    remove(paths.previous)
    old.rename(paths.previous)
    paths.adoption_marker.unlink(missing_ok=True)


def swap_back(paths: EnvironmentPaths) -> None:
    """The previous environment and the current one change places."""
    if not paths.venv.exists():
        paths.previous.rename(paths.venv)
    elif not exchange(paths.previous, paths.venv):
        paths.venv.rename(paths.outgoing)
        paths.previous.rename(paths.venv)
        paths.outgoing.rename(paths.previous)


def recover_swap(paths: EnvironmentPaths) -> str:
    """Put right what a kill in the middle of a swap left; what was found, in words, or nothing.

    An environment that was current is never removed here: it comes back, or becomes the previous one.
    """
    for doomed in paths.folder.glob("removing-*"):
        shutil.rmtree(doomed, ignore_errors=True)
    if paths.outgoing.exists() and not paths.venv.exists():
        paths.outgoing.rename(paths.venv)
        return "it was killed in the middle of the swap; the environment from before is back in its place"
    if paths.outgoing.exists() or (paths.building.exists() and _is_old(paths)):
        retain_previous(paths)
        return "the swap itself was complete; the environment from before is kept for rollback"
    return ""


def remove_unfinished(paths: EnvironmentPaths) -> str:
    """Remove a half-built environment; what was found, in words, or nothing."""
    paths.adoption_marker.unlink(missing_ok=True)
    if not paths.building.exists():
        return ""
    remove(paths.building)
    return "its half-built environment was removed; what it had downloaded is in uv's cache"


def reuse_finished_build(paths: EnvironmentPaths, request: str, lock: str) -> bool:
    """Whether `building` holds a whole environment for this request and lock: a kill kept it from being swapped in.

    It is marked anew with what it will replace: there may have been a rollback since.
    """
    made = read_install_record(paths.building)
    if made is None or not made.request or (made.request, made.lock) != (request, lock):
        return False
    write_install_record(paths.building, msgspec.structs.replace(made, replaces=current_environment_id(paths)))
    return True


def current_environment_id(paths: EnvironmentPaths) -> str:
    """The id of the environment that is current, for the one that will take its place."""
    current = read_install_record(paths.venv)
    return current.id if current else FOREIGN if is_foreign(paths.venv) else ""


def _is_old(paths: EnvironmentPaths) -> bool:
    """Whether `building` holds what was current before: killed right after the exchange."""
    current, built = read_install_record(paths.venv), read_install_record(paths.building)
    if current is None:  # before an exchange with a stranger's environment, or there is no current one
        return False
    if paths.adoption_marker.exists() and current.replaces == FOREIGN:
        return is_foreign(paths.building)
    return built is not None and bool(built.id) and built.id == current.replaces


def remove(folder: Path) -> None:
    """Remove an environment. First it loses its name, so that a half-removed one is never taken for a whole."""
    if not folder.exists() and not folder.is_symlink():
        return
    doomed = folder.with_name(f"removing-{os.getpid()}-{folder.name}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
