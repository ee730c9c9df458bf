"""The name under which envdoctor is published, and the command that upgrades this installation.

The command and the package are `envdoctor`. PyPI refuses that name for a distribution, since `env-doctor` is another
project there (docs/releasing.md).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from envdoctor.core.directories import PACKAGE
from envdoctor.core.program import DISTRIBUTION, is_in_uv_cache


def extra_command(extra: str, requirement: str, python: str = sys.executable) -> str:
    """Return the command that installs the requirement of an extra into the environment of an interpreter.

    An environment of `uvx` is in uv's cache and serves one start: the command starts envdoctor with the extra.
    """
    if is_in_uv_cache(python):
        return f"uvx --from '{DISTRIBUTION}[{extra}]' envdoctor {extra}"
    return shlex.join([python, "-m", "uv", "pip", "install", "--python", python, requirement])


def upgrade_command(prefix: Path = Path(sys.prefix), source: Path = PACKAGE.parent) -> str:
    """Return the command for an installation by `uv tool` or pipx, for a checkout and for another environment."""
    if (source / ".git").exists():
        return shlex.join(["git", "-C", str(source), "pull"])
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool upgrade {DISTRIBUTION}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx upgrade {DISTRIBUTION}"
    python = str(prefix / "bin/python")
    return shlex.join([python, "-m", "uv", "pip", "install", "--python", python, "--upgrade", DISTRIBUTION])
