"""Remedies for the host: variables with paths, packages of the distribution, CUDA toolkits, and limits."""

from __future__ import annotations

import shlex
from collections.abc import Container


def set_path(name: str, value: str, removed: Container[str]) -> str:
    """The command that removes directories from a variable with a search path."""
    remaining = ":".join(part for part in value.split(":") if part and part not in removed)
    return f"export {name}={shlex.quote(remaining)}" if remaining else f"unset {name}"
