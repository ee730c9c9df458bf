"""The program that converts a GGUF file: what stops it. It was run by hand with a file of 135 M parameters."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.paths import TRAIN


def convert(python: Path, file: Path, folder: Path) -> tuple[int, str]:
    """Exit status and errors of the program."""
    command = [str(python), "-B", str(TRAIN / "gguf_model.py"), str(file), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_missing_file_or_package_is_named(stack_python: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    status, error = convert(stack_python, file, tmp_path / "model")
    assert status == 2
    assert error.startswith(f"error: {file}: no such file\nexpected: a GGUF file\nhint: ")
    file.write_bytes(b"GGUF")
    status, error = convert(stack_python, file, tmp_path / "model")
    assert status == 2
    assert "error: the package gguf is not installed in " in error
    assert f"hint: uv pip install --python {stack_python} gguf" in error
    assert not (tmp_path / "model").exists()
