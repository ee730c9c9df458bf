"""envdoctor's directories: bundled data, and the user's by the XDG Base Directory Specification.

Relative values of the XDG variables are ignored, as the specification requires.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def bundled_directory(name: str) -> Path:
    """The directory `name` ("profiles", "train") in the installed package, or in the source checkout."""
    installed = PACKAGE / "bundled" / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Logs, verifications and the list of environments: `$XDG_STATE_HOME/envdoctor`."""
    return _directory("XDG_STATE_HOME", ".local/state", environ)


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Parsed tables, facts of compiled files, direct wheels and builds: `$XDG_CACHE_HOME/envdoctor`."""
    return _directory("XDG_CACHE_HOME", ".cache", environ)


def data_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Environments that envdoctor installs: `$XDG_DATA_HOME/envdoctor`."""
    return _directory("XDG_DATA_HOME", ".local/share", environ)


def config_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's profiles: `$XDG_CONFIG_HOME/envdoctor`."""
    return _directory("XDG_CONFIG_HOME", ".config", environ)


def home_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """`$HOME`, else the home directory of the user database."""
    return Path(environ.get("HOME") or Path.home())


def log_file(command: str, name: str) -> Path:
    """The path of a new log file of a command."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return state_directory() / "logs" / f"{command}-{Path(name).stem}-{stamp}.log"


def remove_abandoned(base: Path, prefix: str, seconds: float) -> None:
    """Remove the directories in `base` that a killed command left, by their name and age."""
    import shutil  # takes time to import, and only trials remove something

    for path in base.glob(f"{prefix}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > seconds:
                shutil.rmtree(path, ignore_errors=True)


def _directory(variable: str, default: str, environ: Mapping[str, str]) -> Path:
    value = environ.get(variable, "")
    base = Path(value) if value.startswith("/") else home_directory(environ) / default
    return base / "envdoctor"
