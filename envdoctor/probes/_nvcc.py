"""Requirements for compiling an extension with nvcc, and parsing of its output."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

from _needs import missing_build_tools


def missing_compilers(cuda_home: str | None) -> str:
    """Missing tools to compile an extension, empty if none."""
    missing = missing_build_tools(language="c++")
    if not cuda_home or not shutil.which(str(Path(cuda_home, "bin", "nvcc"))):
        missing = f"nvcc (CUDA_HOME={cuda_home or ''})" + (f" and {missing}" if missing else "")
    if shutil.which("ninja") is None:
        ninja = "ninja" + (", installed but not on PATH" if importlib.util.find_spec("ninja") else "")
        missing = f"{missing} and {ninja}" if missing else ninja
    return missing


def nvcc_version(cuda_home: str) -> str:
    """The release that nvcc reports.

    Cuda compilation tools, release 13.0, V13.0.88
    """
    nvcc = str(Path(cuda_home, "bin", "nvcc"))
    finished = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return finished.stdout.partition("release ")[2].partition(",")[0].strip()


def first_error(output: str) -> str:
    """The first error in the output of the compiler or linker.

    Error building extension 'envdoctor_inline_cuda': [1/3] c++ -MMD ...
    /usr/bin/ld: cannot find -lcudart: No such file or directory
    collect2: error: ld returned 1 exit status
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    signs = ("cannot find", "undefined reference", "fatal error", "error:", "unsupported", "Error")
    return next((line for sign in signs for line in lines if sign in line), "no error message")[:300]
