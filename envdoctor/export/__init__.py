"""Export a profile's lock to a file that does not need envdoctor. Pure: no process, no socket.

All values of a profile are written to shell scripts, Dockerfiles, YAML and TOML as quoted values or as one line of
comment. A value that a format cannot quote is an error.
"""

from __future__ import annotations

from collections.abc import Callable

from envdoctor.core.errors import unknown_name
from envdoctor.export.files import conda, requirements, uv_project
from envdoctor.export.images import apptainer, dockerfile
from envdoctor.export.pylock import pylock
from envdoctor.export.script import script
from envdoctor.export.stack import ExportedFile, LockedStack, check_stack
from envdoctor.locking.lock import Lock
from envdoctor.locking.wheel_urls import PackageFile
from envdoctor.profiles import Profile

WRITERS: dict[str, Callable[[LockedStack], ExportedFile]] = {
    "requirements": requirements,
    "pylock": pylock,
    "dockerfile": dockerfile,
    "apptainer": apptainer,
    "conda": conda,
    "script": script,
    "uv-project": uv_project,
}
FORMS = tuple(WRITERS)


def export(profile: Profile, lock: Lock, form: str, files: tuple[PackageFile, ...] = ()) -> ExportedFile:
    """The lock in one of FORMS; BadInput if the format does not support it. Only pylock needs `files`."""
    if form not in WRITERS:
        raise unknown_name("format", form, list(FORMS), hint="envdoctor export --help")
    return WRITERS[form](check_stack(profile, lock, files))


__all__ = ["FORMS", "ExportedFile", "export"]
