"""Requirements of a probe: libraries, a CUDA device, a compiler."""

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _result import Result, Unavailable

# Any of these files shows that the machine has an NVIDIA GPU. /dev/dxg: WSL.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")


def need(*modules: str) -> None:
    """Raise Unavailable for the first module that is not installed, without importing any of them."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise Unavailable(f"{name} is not installed")


def need_cuda() -> None:
    """Raise Unavailable with the reason unless torch can use a CUDA device.

    torch/version.py identifies a build without CUDA, which avoids importing torch for seconds.
    """
    need("torch")
    version, cuda, hip = torch_build()
    if cuda is None:
        kind = f"a ROCm build ({hip})" if hip else "a CPU build"
        device_file = next((path for path in DEVICE_FILES if Path(path).exists()), None)
        if device_file:
            raise Unavailable(f"torch {version} is {kind}, but this machine has an NVIDIA GPU ({device_file})")
        raise Unavailable(f"torch sees no CUDA device: torch {version} is {kind}")
    import torch

    if not torch.cuda.is_available():
        raise Unavailable(f"torch sees no CUDA device: torch {version} for CUDA {cuda}, {cuda_error()}")


def read_device(result: Result) -> None:
    """Report the name of the first CUDA device and the CUDA version of torch's build."""
    import torch

    result.versions |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(0)}


def half_precision():
    """The 16-bit type of the first CUDA device: bfloat16 from compute capability 8.0, otherwise float16."""
    import torch

    return torch.bfloat16 if torch.cuda.get_device_capability(0) >= (8, 0) else torch.float16


def torch_build() -> tuple[str, str | None, str | None]:
    """The versions of torch, CUDA and HIP of torch's build, without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("torch is not installed")
    file = Path(next(iter(spec.submodule_search_locations))) / "version.py"
    version_spec = importlib.util.spec_from_file_location("torch_version", file)
    if version_spec is None or version_spec.loader is None or not file.is_file():
        raise Unavailable(f"torch is incomplete: {file} is missing")
    module = importlib.util.module_from_spec(version_spec)
    version_spec.loader.exec_module(module)
    return module.__version__, getattr(module, "cuda", None), getattr(module, "hip", None)


def cuda_error() -> str:
    """The error of torch.cuda.init()."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES='{visible}')"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return (str(error).strip().splitlines() or ["no error message"])[0] + hidden
    return f"{torch.cuda.device_count()} devices" + hidden


@contextmanager
def compiling(message: str, *, language: str) -> Iterator[None]:
    """Turn an error in the block into Unavailable if build tools are missing, which replace {} in the message."""
    try:
        yield
    except Exception as error:
        missing = missing_build_tools(language=language)
        if missing:
            raise Unavailable(message.format(missing)) from error
        raise


def missing_build_tools(*, language: str) -> str:
    """Missing tools to compile a Python extension in `language` (c or c++), empty if none.

    torch inductor uses CXX or g++ (torch/_inductor/config.py, cpp.cxx), Triton CC, gcc or clang
    (triton/runtime/build.py). Both need Python.h.
    """
    variable, programs = ("CXX", ("g++", "clang++")) if language == "c++" else ("CC", ("gcc", "clang", "cc"))
    compiler = os.environ.get(variable)
    missing = []
    if not any(shutil.which(program) for program in ([compiler] if compiler else programs)):
        missing.append(
            f"{variable}={compiler}" if compiler else f"a {language.upper()} compiler ({' or '.join(programs)})"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        missing.append(f"the Python headers ({header})")
    return " and ".join(missing)
