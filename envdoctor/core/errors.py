"""Errors that reach the user: what was seen, what was expected, what to run next."""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path
from typing import Any

EXIT_OK = 0
EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_FAILED = 3
EXIT_INTERRUPTED = 130


class EnvdoctorError(Exception):
    """The tool could not do its work (network, disk, a crashed child): exit code 3.

    `message` holds the observed value and where it was read, `expected` what would have been right,
    `hint` one command or action to take next. `log` is the file of a child that failed, where there is one,
    and `causes` what `explain` finds in it.
    """

    exit_code = EXIT_FAILED
    kind = "failed"
    log: str = ""
    causes: tuple[Any, ...] = ()

    def __init__(self, message: str, *, expected: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.hint = hint


class BadInput(EnvdoctorError):  # noqa: N818  the name states the problem
    """The user's input cannot be used: exit code 2, and nothing on disk was changed."""

    exit_code = EXIT_BAD_INPUT
    kind = "bad-input"


class Refused(EnvdoctorError):  # noqa: N818
    """The answer is no: exit code 1."""

    exit_code = EXIT_NO
    kind = "refused"


class Interrupted(EnvdoctorError):  # noqa: N818
    """The user, a scheduler or a closed terminal stopped the work: exit code 130."""

    exit_code = EXIT_INTERRUPTED
    kind = "interrupted"


# What a machine refuses: rights, room, limits. Nothing of it is a fault in the program that asked.
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
REFUSALS = (
    *DISK_FAULTS, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETXTBSY, errno.EAGAIN,
)  # fmt: skip


def foreseen(error: Exception) -> EnvdoctorError | None:
    """What the machine refused, wherever that came up, as an error for the user; None for what is a fault of ours."""
    if isinstance(error, EnvdoctorError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return _not_utf8(error)
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return _refused(error)
    if isinstance(error, FileNotFoundError) and not error.filename and _is_adrift():
        return EnvdoctorError(
            "the folder that this was started in is gone", expected="a folder that is there", hint="cd"
        )
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's words
        return EnvdoctorError(
            "HOME is not set, and no user has this process's number",
            expected="a folder to keep logs and environments in",
            hint="export HOME=/a/folder/of/yours",
        )
    return None


def _is_adrift() -> bool:
    """Whether the current folder was removed."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


def _refused(error: OSError) -> EnvdoctorError:
    place = shlex.quote(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else "."
    full = error.errno in DISK_FAULTS
    return EnvdoctorError(
        f"{place}: {error.strerror}" if error.filename else str(error.strerror),
        expected="a disk with room" if full else "files and folders that you may use",
        hint=f"df -h {place}" if full else f"ls -ld {place}",
    )


def cannot_write(path: Path, error: OSError, *, expected: str, hint: str) -> EnvdoctorError:
    """BadInput, since the place was the user's choice, unless it is the disk that is at fault."""
    said = f"cannot write {path}: {error.strerror or error}"
    if error.errno in DISK_FAULTS:
        return EnvdoctorError(said, expected="a disk with room", hint=f"df -h {shlex.quote(str(path.parent))}")
    return BadInput(said, expected=expected, hint=hint)


def _not_utf8(error: UnicodeEncodeError) -> EnvdoctorError:
    """A name that went into JSON, a lock or a journal: these are UTF-8."""
    before, after = (
        re.split(r"[\s\"']", text) for text in (error.object[: error.start], error.object[error.start :])
    )
    return EnvdoctorError(
        f"the name {before[-1] + after[0]!a} is not UTF-8",
        expected="a name in UTF-8, and a locale that has it",
        hint="rename it, or export LC_ALL=C.UTF-8",
    )


def nearest(name: str, known: list[str]) -> str:
    """The known name that `name` most likely meant, or an empty string."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=0.5)
    return found[0] if found else ""


def unknown_name(kind: str, name: str, known: list[str], *, hint: str) -> BadInput:
    """The error for a name that is not among the known ones, with the nearest of them."""
    close = nearest(name, known)
    meant = f"; did you mean '{close}'?" if close else ""
    return BadInput(f"unknown {kind} '{name}'{meant}", expected="one of: " + ", ".join(sorted(known)), hint=hint)
