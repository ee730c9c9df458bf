"""The installed environment that a command examines."""

from __future__ import annotations

import os

from envdoctor.core.directories import cache_directory
from envdoctor.core.records import Stack
from envdoctor.environment.find import find_environment


def select_stack(venv: str, python: str, *, search: bool) -> Stack | None:
    """Read the named environment; with `search` also the active one or ./.venv. None if there is none."""
    if not (venv or python or search):
        return None
    location = find_environment(venv, python, os.environ)
    if not location:
        return None
    from envdoctor.environment.inspect import read_stack

    return read_stack(location, cache_directory())
