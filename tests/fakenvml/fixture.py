"""The fake libnvidia-ml.so.1, compiled once a session, and environments in which a child process loads it."""

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
    """The configuration of a whole machine (gh200, h100x8, h200), with lines put before it.

    The first mention of a key counts, so `lines` change what the machine answers:
    `machine_ini("gh200", "[system]", "fail.nvmlInitWithFlags = 18")`.
    """
    return "\n".join((*lines, (HERE / f"{name}.ini").read_text()))


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """`fake_nvml(ini_text, omit=())` is an environment whose processes load the fake library.

    The loader reads LD_LIBRARY_PATH when a process starts: it takes a child process to use it. `omit` names symbols
    that the library shall lack, `version` becomes part of the library's file name, as a driver installs it.
    """
    builds: dict[tuple[tuple[str, ...], str], Path] = {}

    def environment(ini: str, omit: Sequence[str] = (), version: str = "") -> dict[str, str]:
        wanted = (tuple(omit), version)
        if wanted not in builds:
            builds[wanted] = build_library(tmp_path_factory.mktemp("fakenvml"), omit, version)
        config = tmp_path_factory.mktemp("nvml-config") / "fake.ini"
        config.write_text(ini)
        return os.environ | {"LD_LIBRARY_PATH": str(builds[wanted]), "FAKE_NVML_CONFIG": str(config)}

    return environment


def build_library(directory: Path, omit: Sequence[str], version: str) -> Path:
    """Compile the fake into `directory` and return it."""
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
