"""Compilation of small C programs and libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def compile_c(source: Path, target: Path, *options: str) -> Path:
    """Compile a C file with $CC, cc, gcc or clang; a missing compiler or a warning fails the test."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.fail(f"{source.name} needs a C compiler: install gcc or clang, or set CC")
    command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", "-o", str(target), str(source), *options]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.fail(f"{' '.join(command)} failed:\n{built.stderr}")
    return target
