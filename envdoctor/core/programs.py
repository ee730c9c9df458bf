"""Programs of the system that envdoctor starts: nvidia-smi, nvcc, a compiler.

An active environment puts its bin first on PATH, and a package can install any program there. Nothing of an
environment is started, so its directories and relative ones are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

SYSTEM_FOLDERS = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/nvidia/bin",
    "/usr/lib/wsl/lib", "/opt/bin", "/run/current-system/sw/bin",
)  # fmt: skip
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


def find_program(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The absolute path of a program, in a directory of the system or of PATH that belongs to no environment."""
    if os.path.dirname(name):  # noqa: PTH120
        path = shutil.which(name) if name.startswith("/") else None
        return None if path is None or is_in_environment(path) else path
    folders = [*environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS]
    found = shutil.which(name, path=os.pathsep.join(each for each in folders if each.startswith("/")))
    if found is None or not is_in_environment(found):
        return found
    outside = [each for each in folders if each.startswith("/") and not is_in_environment(f"{each}/{name}")]
    found = shutil.which(name, path=os.pathsep.join(outside))
    return None if found is None or is_in_environment(found) else found


def is_in_environment(program: str) -> bool:
    """Whether a program lies in a Python environment, by its own path or by the target of its links."""
    folders = {*Path(program).parents, *Path(os.path.realpath(program)).parents}
    return any(os.path.lexists(folder / mark) for folder in folders for mark in ENVIRONMENT_MARKS)
