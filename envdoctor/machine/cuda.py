"""The installed CUDA toolkit and C compiler."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.files import read_file
from envdoctor.core.paths import is_file
from envdoctor.core.processes import run
from envdoctor.core.programs import find_program, is_in_environment
from envdoctor.core.records import CudaToolkit, Fact, absent, known, unreadable

VERSION_SECONDS = 5.0


def read_cuda(environ: Mapping[str, str] = os.environ) -> CudaToolkit:
    """Read the toolkit that a source build uses: CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda."""
    nvcc = find_nvcc(environ)
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    version = read_nvcc_version(Path(nvcc.value)) if nvcc.value else absent(nvcc.source)
    return CudaToolkit(
        nvcc=nvcc,
        nvcc_version=version,
        cuda_home=known(home, "CUDA_HOME") if home else absent("CUDA_HOME"),
        ptxas_version=_read_ptxas_version(nvcc, version, environ),
        compiler=_read_compiler(environ),
    )


def find_nvcc(environ: Mapping[str, str]) -> Fact[str]:
    """The path of nvcc, in the search order of torch.utils.cpp_extension."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := environ.get(variable):
            path = Path(home, "bin/nvcc")
            if is_file(path):
                return known(str(path), variable)
    if on_path := shutil.which("nvcc", path=environ.get("PATH", "")):
        return known(on_path, "PATH")
    default = Path("/usr/local/cuda/bin/nvcc")
    return known(str(default), "/usr/local/cuda") if is_file(default) else absent("CUDA_HOME, PATH, /usr/local/cuda")


def read_nvcc_version(nvcc: Path) -> Fact[str]:
    """The version of nvcc, from the toolkit's version.json, otherwise from `nvcc --version`."""
    listing = nvcc.resolve().parent.parent / "version.json"
    try:
        version = msgspec.json.decode(read_file(listing))["cuda_nvcc"]["version"]
        return known(str(version), str(listing))
    except (OSError, ValueError, KeyError, TypeError):
        return _read_tool_version([str(nvcc), "--version"], r"release [\d.]+, V([\d.]+)")


def _read_ptxas_version(nvcc: Fact[str], version: Fact[str], environ: Mapping[str, str]) -> Fact[str]:
    """A ptxas next to nvcc has nvcc's version; any other ptxas is run."""
    if nvcc.value and is_file(Path(nvcc.value).with_name("ptxas")):
        return version
    path = environ.get("TRITON_PTXAS_PATH") or find_program("ptxas", environ)
    if not path:
        return absent("TRITON_PTXAS_PATH, PATH")
    return _read_tool_version([path, "--version"], r"release [\d.]+, V([\d.]+)")


def _read_compiler(environ: Mapping[str, str]) -> Fact[str]:
    """The C compiler that torch and triton use: CC, then cc, gcc and clang on PATH."""
    for name in (environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (path := find_program(name, environ)):
            return _read_tool_version([path, "--version"], r"\A(.*)$")
    return absent("CC, PATH")


def _read_tool_version(command: list[str], pattern: str) -> Fact[str]:
    """Run a command and return the first group of `pattern` in its output."""
    source = " ".join(command)
    if is_in_environment(command[0]) or not command[0].startswith("/"):
        return unreadable(source, "a program of an environment, which is not started")
    try:
        result = run(command, timeout=VERSION_SECONDS)
    except EnvdoctorError as error:
        return unreadable(source, error.message)
    match = re.search(pattern, result.output, re.MULTILINE)
    if not result.ok or not match:
        return unreadable(source, f"{result.ending}: {result.output.strip()[-200:]!r}")
    return known(match[1], source)
