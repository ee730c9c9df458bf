"""Confines builds and imports of a trial: they write only to its folder and to the cache of uv."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from envdoctor.core.directories import PACKAGE, config_directory, home_directory
from envdoctor.core.processes import run
from envdoctor.locking.uv import run_uv

SCRIPT = PACKAGE / "probes/trial/confine.py"
NEEDED_VERSION = 2  # of Landlock: 1 permits no links between folders, which uv makes
START_SECONDS = 60.0


@cache
def is_confinable() -> bool:
    """Whether the kernel can limit where a process writes: Landlock, from Linux 5.19."""
    printed = run([sys.executable, "-I", SCRIPT], timeout=START_SECONDS).output.strip()
    return printed.isdecimal() and int(printed) >= NEEDED_VERSION


@cache
def uv_cache() -> Path:
    """The cache folder of uv."""
    printed = run_uv(["cache", "dir"], environment={}, timeout=START_SECONDS).output.splitlines()
    return Path(printed[-1].strip()) if printed else home_directory() / ".cache/uv"


def confined(folders: Sequence[Path]) -> list[str | Path]:
    """The start of a command line whose process writes only to these folders."""
    return [sys.executable, "-I", SCRIPT, *folders, "--"]


def own_folders(folder: Path) -> dict[str, str]:
    """Variables with which programs keep their files in a folder. uv keeps the user's settings and cache."""
    home = folder / "home"
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    settings: Mapping[str, Path] = {
        "UV_CONFIG_FILE": config_directory().parent / "uv/uv.toml", "NETRC": home_directory() / ".netrc",
        "RUSTUP_HOME": home_directory() / ".rustup",  # the toolchains, which a build only reads
    }  # fmt: skip
    kept = {name: str(path) for name, path in settings.items() if path.exists() and name not in os.environ}
    return kept | {
        "HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"), "CARGO_HOME": str(home / "cargo"),
        "PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(uv_cache()),
    }  # fmt: skip
