"""A profile's lock as a file for somebody without envdoctor. Pure: no process, no socket.

Nothing of a profile reaches a shell, a Dockerfile, YAML or TOML but as one quoted value or one line of comment; a
value that a form has no way to quote is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from envdoctor.core.errors import unknown_name
from envdoctor.export.files import conda, requirements, uv_project
from envdoctor.export.images import apptainer, dockerfile
from envdoctor.export.pylock import pylock
from envdoctor.export.script import script
from envdoctor.export.stack import Exported, Locked, Place, checked
from envdoctor.locking.lock import Lock
from envdoctor.profiles import Profile

WRITERS: dict[str, Callable[[Locked], Exported]] = {
    "requirements": requirements,
    "pylock": pylock,
    "dockerfile": dockerfile,
    "apptainer": apptainer,
    "conda": conda,
    "script": script,
    "uv-project": uv_project,
}
FORMS = tuple(WRITERS)


def export(profile: Profile, file: Lock, form: str, places: tuple[Place, ...] = ()) -> Exported:
    """The lock in one of FORMS; BadInput where the form cannot hold it. `places` is what pylock alone needs."""
    if form not in WRITERS:
        raise unknown_name("form", form, list(FORMS), hint="envdoctor export --help")
    return WRITERS[form](checked(profile, file, places))


__all__ = ["FORMS", "Exported", "Place", "export"]
