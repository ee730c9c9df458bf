"""Fixture that compiles the fake libnvidia-ml.so.1, and environment variables with which a child loads it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FakeNvml = Callable[..., dict[str, str]]


def machine_ini(name: str, *lines: str) -> str:
    """The configuration of a machine (gh200, h100x8, h200) with `lines` before it.

    The first occurrence of a key counts, so `lines` override values of the machine:
    `machine_ini("gh200", "[system]", "fail.nvmlInitWithFlags = 18")`.
    """
    return "\n".join((*lines, (HERE / f"{name}.ini").read_text()))


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """`fake_nvml(ini_text, omit=())` returns environment variables with which a process loads the fake library.

    The loader reads LD_LIBRARY_PATH when a process starts, so only a child process can use it. `omit`: symbols that
    are missing in the library. `version`: part of the library's file name, as in a driver installation.
    """
    builds: dict[tuple[tuple[str, ...], str], Path] = {}

    def environment(ini: str, omit: Sequence[str] = (), version: str = "") -> dict[str, str]:
        key = (tuple(omit), version)
        if key not in builds:
            builds[key] = build_library(tmp_path_factory.mktemp("fakenvml"), omit, version)
        config = tmp_path_factory.mktemp("nvml-config") / "fake.ini"
        config.write_text(ini)
        return os.environ | {"LD_LIBRARY_PATH": str(builds[key]), "FAKE_NVML_CONFIG": str(config)}

    return environment


def build_library(directory: Path, omit: Sequence[str], version: str) -> Path:
    """Compile the fake library into `directory` and return the directory."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.fail("the fake NVML library needs a C compiler: install gcc or clang, or set CC")
    library = directory / "libnvidia-ml.so.1"
    target = directory / f"libnvidia-ml.so.{version}" if version else library
    renamed = [f"-D{symbol}=omitted_{symbol}" for symbol in omit]
    command = [
        *compiler.split(), "-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
        *renamed, "-o", str(target), str(HERE / "fakenvml.c"),
    ]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.fail(f"{' '.join(command)} failed:\n{built.stderr}")
    if target != library:
        library.symlink_to(target.name)
    return directory
