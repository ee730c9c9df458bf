"""Let a finished environment take the place of the current one; go back to the one before; clear up after a kill."""

from __future__ import annotations

import ctypes
import os
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from envdoctor.environment.managed import FOREIGN, Beside, is_foreign, read_installed, write_installed


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one atomic step; False where the C library or the file system cannot (NFS, musl)."""
    at_working_directory, rename_exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(at_working_directory, paths[0], at_working_directory, paths[1], rename_exchange) == 0)


def write_through(folder: Path) -> None:
    """Wait until a file system has on its disk what was written to it, one by one: before that, a power failure
    leaves files of the right names and no content, which no marker may vouch for. Without syncfs(2) it is skipped.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(AttributeError):
            ctypes.CDLL(None).syncfs(handle)
    finally:
        os.close(handle)


def swap_in(beside: Beside) -> None:
    """The environment in `building` becomes the current one, in one step where the system can; the other waits there.

    What was current is then in `building`, or in `outgoing`; `keep_previous` moves it on.
    """
    if not beside.venv.exists() or not any(beside.venv.iterdir()):
        beside.building.rename(beside.venv)  # rename(2) replaces an empty folder
    elif not exchange(beside.building, beside.venv):
        beside.venv.rename(beside.outgoing)
        try:
            beside.building.rename(beside.venv)
        except OSError:
            beside.outgoing.rename(beside.venv)
            raise


def keep_previous(beside: Beside) -> None:
    """What was current a moment ago becomes the previous one; the one before that goes."""
    old = next((place for place in (beside.outgoing, beside.building) if place.exists()), None)
    if old is None:
        return
    if is_foreign(beside.previous):
        beside.previous.rename(beside.next_kept)
    remove(beside.previous)
    old.rename(beside.previous)
    beside.adopting.unlink(missing_ok=True)


def go_back(beside: Beside) -> None:
    """The previous environment and the current one change places."""
    if not beside.venv.exists():
        beside.previous.rename(beside.venv)
    elif not exchange(beside.previous, beside.venv):
        beside.venv.rename(beside.outgoing)
        beside.previous.rename(beside.venv)
        beside.outgoing.rename(beside.previous)


def settle(beside: Beside) -> str:
    """Put right what a kill in the middle of a swap left; what was found, in words, or nothing.

    An environment that was current is never removed here: it comes back, or becomes the previous one.
    """
    for doomed in beside.folder.glob("removing-*"):
        shutil.rmtree(doomed, ignore_errors=True)
    if beside.outgoing.exists() and not beside.venv.exists():
        beside.outgoing.rename(beside.venv)
        return "it was killed in the middle of the swap; the environment from before is back in its place"
    if beside.outgoing.exists() or (beside.building.exists() and _is_old(beside)):
        keep_previous(beside)
        return "the swap itself was complete; the environment from before is kept for rollback"
    return ""


def discard(beside: Beside) -> str:
    """Remove a half-built environment; what was found, in words, or nothing."""
    beside.adopting.unlink(missing_ok=True)
    if not beside.building.exists():
        return ""
    remove(beside.building)
    return "its half-built environment was removed; what it had downloaded is in uv's cache"


def is_finished(beside: Beside, request: str, lock: str) -> bool:
    """Whether `building` holds a whole environment for this request and lock: a kill kept it from being swapped in.

    It is marked anew with what it will replace: there may have been a rollback since.
    """
    made = read_installed(beside.building)
    if made is None or not made.request or (made.request, made.lock) != (request, lock):
        return False
    write_installed(beside.building, msgspec.structs.replace(made, replaces=replaced_by(beside)))
    return True


def replaced_by(beside: Beside) -> str:
    """The id of the environment that is current, for the one that will take its place."""
    current = read_installed(beside.venv)
    return current.id if current else FOREIGN if is_foreign(beside.venv) else ""


def _is_old(beside: Beside) -> bool:
    """Whether `building` holds what was current before: killed right after the exchange."""
    current, built = read_installed(beside.venv), read_installed(beside.building)
    if current is None:  # before an exchange with a stranger's environment, or there is no current one
        return False
    if beside.adopting.exists() and current.replaces == FOREIGN:
        return is_foreign(beside.building)
    return built is not None and bool(built.id) and built.id == current.replaces


def remove(folder: Path) -> None:
    """Remove an environment. First it loses its name, so that a half-removed one is never taken for a whole."""
    if not folder.exists() and not folder.is_symlink():
        return
    doomed = folder.with_name(f"removing-{os.getpid()}-{folder.name}")
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
