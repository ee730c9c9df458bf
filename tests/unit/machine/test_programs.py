"""No program of an environment is started to read the facts of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.command import envdoctor

from envdoctor.core.programs import find_program, is_in_environment

TOOLS = ("nvidia-smi", "nvcc", "ptxas", "cc", "gcc", "clang", "ldconfig", "lspci", "nvidia-ctk")


def plant(folder: Path) -> Path:
    """Programs that leave a mark when they are started."""
    folder.mkdir(parents=True)
    for name in TOOLS:
        program = folder / name
        program.write_text(f"#!/bin/sh\ntouch {folder}/started\necho 'release 12.8, V12.8.93'\n")
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_check_starts_nothing_of_an_active_environment(mark: str, tmp_path: Path) -> None:
    folder = plant(tmp_path / "venv/bin")
    (tmp_path / "venv" / mark).mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").symlink_to(folder / "nvcc")
    for path in (folder, tmp_path / "bin"):
        variables = {
            "PATH": f"{path}:{os.environ['PATH']}",
            "CUDA_HOME": str(tmp_path / "venv"),
            "CC": f"{folder}/cc",
        }
        done = envdoctor("check", home=tmp_path, **variables)
        assert done.returncode in (0, 1), done.stderr
        assert not (folder / "started").exists()


def test_programs_of_the_system_and_of_other_folders_are_found(tmp_path: Path) -> None:
    folder = plant(tmp_path / "cuda/bin")
    assert find_program("nvcc", {"PATH": f".::bin:{folder}"}) == str(folder / "nvcc")
    assert find_program("sh", {"PATH": f"{folder}:/bin"}) == "/bin/sh"
    (tmp_path / "cuda/pyvenv.cfg").touch()
    assert is_in_environment(str(folder / "nvcc"))
    assert find_program("nvidia-ctk", {"PATH": str(folder)}) is None
