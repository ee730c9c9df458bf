"""Swap a finished environment in, swap back to the previous one, and recover after a crash."""

from __future__ import annotations

import ctypes
import errno
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
    """Swap two directories atomically. False if the C library or the file system does not support it (musl, NFS)."""
    at_working_directory, rename_exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
    try:
        rename = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(at_working_directory, paths[0], at_working_directory, paths[1], rename_exchange) == 0)


def flush_file_system(folder: Path) -> None:
    """Wait until all files of a file system are on disk, so that the install record is not written before them.

    Without syncfs(2) this does nothing.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(AttributeError):
            ctypes.CDLL(None).syncfs(handle)
    finally:
        os.close(handle)


def swap_in(paths: EnvironmentPaths) -> None:
    """Make the environment in `building` the current one, atomically if the system supports it.

    The replaced environment is then in `building` or in `outgoing`, until `retain_previous` moves it.
    """
    if not paths.venv.exists() or not any(paths.venv.iterdir()):
        paths.building.rename(paths.venv)  # rename(2) replaces an empty directory
    elif not exchange(paths.building, paths.venv):
        paths.venv.rename(paths.outgoing)
        try:
            paths.building.rename(paths.venv)
        except OSError:
            paths.outgoing.rename(paths.venv)
            raise


def retain_previous(paths: EnvironmentPaths) -> None:
    """Move the replaced environment to `previous`. Its former content is removed, or kept if it is foreign."""
    replaced = next((folder for folder in (paths.outgoing, paths.building) if folder.exists()), None)
    if replaced is None:
        return
    if is_foreign(paths.previous):
        paths.previous.rename(paths.next_adopted_environment)
    remove_environment(paths.previous)
    replaced.rename(paths.previous)
    paths.adoption_marker.unlink(missing_ok=True)


def replace_environment(paths: EnvironmentPaths) -> bool:
    """Make the environment in `building` the current one. Whether it replaced one, which is kept for rollback."""
    if is_foreign(paths.venv):
        _record_adoption(paths)
    replaces = paths.venv.exists()
    swap_in(paths)
    retain_previous(paths)
    return replaces and paths.previous.exists()


def _record_adoption(paths: EnvironmentPaths) -> None:
    """Record the packages of an environment that envdoctor did not create, before it is replaced."""
    packages = sorted(
        info.name.removesuffix(".dist-info").replace("-", "==", 1)
        for info in paths.venv.glob("lib/python*/site-packages/*.dist-info")
    )
    paths.adopted_packages.write_text("".join(f"{package}\n" for package in packages))
    paths.adoption_marker.write_text("the directory `building` may contain the adopted environment\n")


def swap_back(paths: EnvironmentPaths) -> None:
    """Exchange the previous and the current environment."""
    if not paths.venv.exists():
        paths.previous.rename(paths.venv)
    elif not exchange(paths.previous, paths.venv):
        paths.venv.rename(paths.outgoing)
        paths.previous.rename(paths.venv)
        paths.outgoing.rename(paths.previous)


def recover_swap(paths: EnvironmentPaths) -> str:
    """Complete or undo a swap that was killed. Returns a message, or an empty string if there was none.

    Never removes an environment that was the current one: it is restored, or becomes the previous one.
    """
    for folder in paths.folder.glob("removing-*"):
        shutil.rmtree(folder, ignore_errors=True)
    if paths.outgoing.exists() and not paths.venv.exists():
        paths.outgoing.rename(paths.venv)
        return "it was killed during the swap; the previous environment was restored"
    if paths.outgoing.exists() or (paths.building.exists() and _contains_replaced(paths)):
        retain_previous(paths)
        return "the swap was complete; the previous environment is kept for rollback"
    return ""


def remove_unfinished(paths: EnvironmentPaths) -> None:
    """Remove an incomplete environment from `building`."""
    paths.adoption_marker.unlink(missing_ok=True)
    remove_environment(paths.building)


def reuse_finished_build(paths: EnvironmentPaths, request: str, lock: str) -> bool:
    """Whether `building` contains a finished environment for this request and lock, left by a killed install.

    Updates the environment that it replaces in its install record: a rollback may have changed it since.
    """
    record = read_install_record(paths.building)
    if record is None or not record.request or (record.request, record.lock) != (request, lock):
        return False
    write_install_record(paths.building, msgspec.structs.replace(record, replaces=current_environment_id(paths)))
    return True


def current_environment_id(paths: EnvironmentPaths) -> str:
    """The id of the current environment, FOREIGN if envdoctor did not create it, empty if there is none."""
    current = read_install_record(paths.venv)
    return current.id if current else FOREIGN if is_foreign(paths.venv) else ""


def _contains_replaced(paths: EnvironmentPaths) -> bool:
    """Whether `building` contains the replaced environment: the install was killed right after the exchange."""
    current, built = read_install_record(paths.venv), read_install_record(paths.building)
    if current is None:  # before an exchange with a foreign environment, or without a current one
        return False
    if paths.adoption_marker.exists() and current.replaces == FOREIGN:
        return is_foreign(paths.building)
    return built is not None and bool(built.id) and built.id == current.replaces


def remove_environment(folder: Path) -> None:
    """Remove an environment. It is renamed first, so that a partially removed one never looks complete."""
    if not folder.exists() and not folder.is_symlink():
        return
    renamed = folder.with_name(f"removing-{os.getpid()}-{folder.name}")
    folder.rename(renamed)
    remove_tree(renamed)


def remove_tree(folder: Path) -> None:
    """Remove a directory; OSError with the first remaining path if something of it could not be removed."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    first = next((Path(place, files[0]) for place, _, files in os.walk(folder) if files), folder)
    raise OSError(errno.EACCES, "could not be removed", str(first))
