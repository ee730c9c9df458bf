"""Processes that run in an environment: they continue with modules of both versions if it is replaced."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def processes_in(venv: Path) -> list[str]:
    """Other Python processes that were started with an environment or loaded its libraries: `4242 (python x.py)`."""
    prefixes = {f"{os.fsdecode(each)}/" for each in (venv, venv.resolve())}
    found = []
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if int(folder.name) == os.getpid() or not (folder / "exe").readlink().name.startswith("python"):
                continue
            words = os.fsdecode((folder / "cmdline").read_bytes()).rstrip("\0").split("\0")
            uses = _program(folder, words[0]).startswith(tuple(prefixes))
            if uses or any(prefix in (folder / "maps").read_text(errors="replace") for prefix in prefixes):
                found.append(f"{folder.name} ({' '.join(words)[:80]})")
    return sorted(found)


def _program(folder: Path, word: str) -> str:
    """The path of a process's program, from its first word, its PATH and its working directory."""
    if "/" in word:
        return str((folder / "cwd").readlink() / word)
    variables = os.fsdecode((folder / "environ").read_bytes()).split("\0")
    path = next((each.removeprefix("PATH=") for each in variables if each.startswith("PATH=")), "")
    return shutil.which(word, path=path) or ""
