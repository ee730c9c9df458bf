"""The installed environment that a command examines."""

from __future__ import annotations

import os
from pathlib import Path

from envdoctor.core.directories import cache_directory
from envdoctor.core.records import Stack
from envdoctor.environment.find import EnvironmentSelection, find_environment


def select_stack(venv: str, python: str) -> Stack | None:
    """Read the named environment; None if none is named."""
    return read_environment(find_environment(venv, python, os.environ)) if venv or python else None


def read_environment(selection: EnvironmentSelection) -> Stack | None:
    """Read the selected environment; None if there is none."""
    if not selection.path:
        return None
    from envdoctor.environment.inspect import read_stack

    return read_stack(Path(selection.path), cache_directory())
