"""What a probe needs before it can say anything: libraries, a CUDA device, a compiler."""

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _result import Result, Unavailable

# Any of these says that the machine has an NVIDIA GPU; /dev/dxg is WSL's.
DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")


def need(*modules: str) -> None:
    """Raise Unavailable for the first of these modules that is not installed. Imports none of them."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise Unavailable(f"{name} is not installed")


def need_cuda() -> None:
    """Raise Unavailable, with the reason, unless torch can use a CUDA device.

    A build without CUDA is told by torch/version.py alone: importing torch would cost seconds for nothing.
    """
    need("torch")
    version, cuda, hip = torch_build()
    if cuda is None:
        kind = f"a ROCm build ({hip})" if hip else "a CPU build"
        seen = next((path for path in DEVICE_FILES if Path(path).exists()), None)
        if seen:
            raise Unavailable(f"torch {version} is {kind}, though this machine has an NVIDIA GPU ({seen})")
        raise Unavailable(f"torch sees no CUDA device: torch {version} is {kind}")
    import torch

    if not torch.cuda.is_available():
        raise Unavailable(f"torch sees no CUDA device: torch {version} for CUDA {cuda}, {cuda_refusal()}")


def read_device(result: Result) -> None:
    """Keep what the first CUDA device is and what CUDA torch was built for."""
    import torch

    result.versions |= {"cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(0)}


def half_precision():
    """The 16-bit type of the first CUDA device: bfloat16 from compute capability 8.0, else float16."""
    import torch

    return torch.bfloat16 if torch.cuda.get_device_capability(0) >= (8, 0) else torch.float16


def torch_build() -> tuple[str, str | None, str | None]:
    """The version of torch and the CUDA and HIP versions that it was built for, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("torch is not installed")
    file = Path(next(iter(spec.submodule_search_locations))) / "version.py"
    found = importlib.util.spec_from_file_location("torch_version", file)
    if found is None or found.loader is None or not file.is_file():
        raise Unavailable(f"torch is not whole: {file} is missing")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.__version__, getattr(module, "cuda", None), getattr(module, "hip", None)


def cuda_refusal() -> str:
    """Why torch.cuda does not start, in its own words."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES='{visible}')"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return (str(error).strip().splitlines() or ["no reason given"])[0] + hidden
    return f"{torch.cuda.device_count()} devices" + hidden


@contextmanager
def compiling(words: str, *, language: str) -> Iterator[None]:
    """Make an error in the block Unavailable where tools to compile are missing, which stand for {} in the words."""
    try:
        yield
    except Exception as error:
        missing = missing_build_tools(language=language)
        if missing:
            raise Unavailable(words.format(missing)) from error
        raise


def missing_build_tools(*, language: str) -> str:
    """What is missing to compile a Python extension in `language` (c or c++), empty if nothing.

    torch inductor asks for CXX or g++ (torch/_inductor/config.py, cpp.cxx), Triton for CC, gcc or clang
    (triton/runtime/build.py); both include Python.h.
    """
    variable, programs = ("CXX", ("g++", "clang++")) if language == "c++" else ("CC", ("gcc", "clang", "cc"))
    named = os.environ.get(variable)
    missing = []
    if not any(shutil.which(program) for program in ([named] if named else programs)):
        missing.append(f"{variable}={named}" if named else f"a {language.upper()} compiler ({' or '.join(programs)})")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        missing.append(f"the Python headers ({header})")
    return " and ".join(missing)
