"""Path tests that return False, where pathlib before Python 3.12 raises for an inaccessible directory."""

from __future__ import annotations

import os
from pathlib import Path


def exists(path: Path | str) -> bool:
    """Whether the path exists and is accessible."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: Path | str) -> bool:
    """Whether the path is an accessible directory."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path | str) -> bool:
    """Whether the path is an accessible regular file."""
    return os.path.isfile(path)  # noqa: PTH113


def is_link(path: Path | str) -> bool:
    """Whether the path is an accessible symlink."""
    return os.path.islink(path)  # noqa: PTH114


def expand_home(path: Path | str) -> Path:
    """Expand `~/x` and `~user/x`; unchanged if there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib's expanduser raises RuntimeError for an unknown user


def resolve_links(path: Path) -> Path:
    """Resolve the symlinks of a path; links that form a loop are not followed."""
    return Path(os.path.realpath(path))
