"""Errors that are shown to the user: the observed value, the expected value, and a hint with the next command."""

from __future__ import annotations

import errno
import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from envdoctor.core.shell_commands import shell_command

if TYPE_CHECKING:
    from pathlib import Path

EXIT_OK = 0
EXIT_NO = 1  # a check found problems, or a requirement is not met
EXIT_BAD_INPUT = 2
EXIT_FAILED = 3  # the tool could not complete its work, or decide
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141  # 128 + SIGPIPE, as programs that this signal ends


def exit_code(*, failed: bool, undecided: bool) -> int:
    """The exit code of a command that decides something: no, not decided, or yes."""
    return EXIT_NO if failed else EXIT_FAILED if undecided else EXIT_OK


class EnvdoctorError(Exception):
    """The tool could not complete its work (network, disk, crashed child process): exit code 3.

    `message` contains the observed value and its source, `expected` the correct value, and `hint` one command or
    action. `log` is the log file of a failed child process, and `causes` are the causes that `explain` finds in it.
    `data` is the record of a command that read its input and has no result: `data` of the JSON output.
    """

    exit_code = EXIT_FAILED
    kind = "failed"
    log: str = ""
    causes: tuple[Any, ...] = ()

    def __init__(self, message: str, *, expected: str = "", hint: str = "", data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.hint = hint
        self.data = data


class BadInput(EnvdoctorError):  # noqa: N818  the name states the problem
    """The input is invalid: exit code 2, and nothing on disk was changed."""

    exit_code = EXIT_BAD_INPUT
    kind = "bad-input"


class Refused(EnvdoctorError):  # noqa: N818
    """A requirement is not met: exit code 1."""

    exit_code = EXIT_NO
    kind = "refused"


class Interrupted(EnvdoctorError):  # noqa: N818
    """The user, a scheduler or a closed terminal interrupted the work: exit code 130."""

    exit_code = EXIT_INTERRUPTED
    kind = "interrupted"


# Errors of the system (permissions, disk space, limits), which are not bugs in envdoctor.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
SYSTEM_ERRORS = (
    *DISK_ERRORS, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETXTBSY, errno.EAGAIN,
)  # fmt: skip


def as_envdoctor_error(error: Exception) -> EnvdoctorError | None:
    """Convert an error of the system to an error for the user; None for a bug in envdoctor."""
    if isinstance(error, EnvdoctorError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return _encoding_error(error)
    if isinstance(error, OSError) and error.errno in SYSTEM_ERRORS:
        return _system_error(error)
    if isinstance(error, FileNotFoundError) and not error.filename:
        return _missing_directory_error(error)
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # raised by pathlib
        return EnvdoctorError(
            "HOME is not set, and the user id of this process has no entry in the user database",
            expected="a directory for logs and environments",
            hint="export HOME=/path/to/a/writable/directory",
        )
    return None


def _missing_directory_error(error: FileNotFoundError) -> EnvdoctorError | None:
    if "temporary directory" in str(error):  # raised by tempfile
        return EnvdoctorError(
            "no directory for temporary files can be written: neither TMPDIR nor /tmp, /var/tmp and /usr/tmp",
            expected="a writable directory with free space",
            hint="export TMPDIR=/path/to/a/writable/directory",
        )
    if _is_working_directory_deleted():
        return EnvdoctorError(
            "the current working directory was deleted", expected="an existing working directory", hint="cd"
        )
    return None


def _is_working_directory_deleted() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


def _system_error(error: OSError) -> EnvdoctorError:
    path = shlex.quote(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else "."
    is_disk_error = error.errno in DISK_ERRORS
    return EnvdoctorError(
        f"{path}: {error.strerror}" if error.filename else str(error.strerror),
        expected="a disk with free space" if is_disk_error else "accessible files and directories",
        hint=shell_command("df -h {}", path) if is_disk_error else shell_command("ls -ld {}", path),
    )


def write_error(path: Path, error: OSError, *, expected: str, hint: str) -> EnvdoctorError:
    """The error for a path that cannot be written: BadInput, since the user chose the path, or a disk error."""
    message = f"cannot write {path}: {error.strerror or error}"
    if error.errno in DISK_ERRORS:
        return EnvdoctorError(message, expected="a disk with free space", hint=shell_command("df -h {}", path.parent))
    return BadInput(message, expected=expected, hint=hint)


def _encoding_error(error: UnicodeEncodeError) -> EnvdoctorError:
    """A name that is not UTF-8 was written to JSON, a lock or a journal."""
    before, after = (
        re.split(r"[\s\"']", text) for text in (error.object[: error.start], error.object[error.start :])
    )
    return EnvdoctorError(
        f"the name {before[-1] + after[0]!a} is not UTF-8",
        expected="names in UTF-8, and a UTF-8 locale",
        hint="rename it, or export LC_ALL=C.UTF-8",
    )


def internal_error(error: Exception) -> EnvdoctorError:
    """The error for a bug in envdoctor, for a caller that cannot receive a traceback."""
    return EnvdoctorError(
        f"internal error: {type(error).__name__}: {error}",
        expected="a result",
        hint="this is a bug in envdoctor: please report it",
    )


MAX_LISTED = 60  # names in an error
NEAREST = 5  # names in an error about one of many


def closest_match(name: str, known: list[str], *, cutoff: float = 0.5) -> str:
    """The known name that is most similar to `name`; empty if none is similar."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=cutoff)
    return found[0] if found else ""


def unknown_name(kind: str, name: str, known: list[str], *, hint: str) -> BadInput:
    """The error for an unknown name, with the closest known ones; all known ones if they fit in a few lines."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=NEAREST, cutoff=0.5)
    suggestion = f"; did you mean '{close[0]}'?" if close else ""
    expected = f"one of: {', '.join(sorted(known))}"
    if len(known) > MAX_LISTED:
        expected = f"one of {len(known)} {kind}s, such as {', '.join(sorted(close or sorted(known)[:NEAREST]))}"
    return BadInput(f"unknown {kind} '{name}'{suggestion}", expected=expected, hint=hint)
