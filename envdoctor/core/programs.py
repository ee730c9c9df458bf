"""Programs of the system that envdoctor starts: nvidia-smi, nvcc, a compiler.

An active environment puts its bin first on PATH, and a package can install any program there. Nothing of an
environment is started, so its directories and relative ones are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


def find_program(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The absolute path of a program, in an absolute directory of PATH that belongs to no environment."""
    if os.path.dirname(name):  # noqa: PTH120
        path = shutil.which(name) if name.startswith("/") else None
        return None if path is None or is_in_environment(path) else path
    folders = [each for each in environ.get("PATH", "").split(os.pathsep) if each.startswith("/")]
    outside = [each for each in folders if not is_in_environment(f"{each}/{name}")]
    return shutil.which(name, path=os.pathsep.join(outside)) if outside else None


def is_in_environment(program: str) -> bool:
    """Whether a program lies in a Python environment, by its own path or by the target of its links."""
    folders = {*Path(program).parents, *Path(os.path.realpath(program)).parents}
    return any(os.path.lexists(folder / mark) for folder in folders for mark in ENVIRONMENT_MARKS)
