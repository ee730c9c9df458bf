"""Paths without exceptions.

Questions answer False where they may not look; pathlib raises there before Python 3.12.
"""

from __future__ import annotations

import os
from pathlib import Path


def exists(path: Path | str) -> bool:
    """Whether something can be seen at a path."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: Path | str) -> bool:
    """Whether a folder can be seen at a path."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path | str) -> bool:
    """Whether a file can be seen at a path."""
    return os.path.isfile(path)  # noqa: PTH113


def is_link(path: Path | str) -> bool:
    """Whether a link can be seen at a path."""
    return os.path.islink(path)  # noqa: PTH114


def expanded(path: Path | str) -> Path:
    """`~/x` and `~name/x` as the shell means them; where there is no such home, as they stand."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib's raises RuntimeError for a user that is none


def follow(path: Path) -> Path:
    """Where the links of a path end; links in a circle are left as they are."""
    return Path(os.path.realpath(path))
