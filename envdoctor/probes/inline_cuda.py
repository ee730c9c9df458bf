"""A CUDA kernel compiled on the spot by nvcc through torch.utils.cpp_extension."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from _needs import missing_build_tools, need_cuda, read_device
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 420
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False
SECONDS = 33

COUNT = 98_433  # no multiple of a block's 256 threads

DECLARATION = "torch::Tensor scaled_add(torch::Tensor x, torch::Tensor y, torch::Tensor out, double factor);"
SOURCE = """
#include <c10/cuda/CUDAException.h>

__global__ void scaled_add_kernel(const float* x, const float* y, float* out, float factor, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __fadd_rn(__fmul_rn(factor, x[i]), y[i]);
}

torch::Tensor scaled_add(torch::Tensor x, torch::Tensor y, torch::Tensor out, double factor) {
  int count = x.numel();
  scaled_add_kernel<<<(count + 255) / 256, 256>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), (float)factor, count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""


def probe(result: Result) -> str:
    """Compile for this GPU alone, then compare."""
    need_cuda()
    import torch
    from torch.utils import cpp_extension

    result.read_versions("torch", "ninja")
    read_device(result)
    missing = missing_compilers(cpp_extension.CUDA_HOME)
    if missing:
        raise Unavailable(f"an extension needs {missing}")
    result.versions["nvcc"] = nvcc_version(cpp_extension.CUDA_HOME)
    torch.manual_seed(result.seed())
    os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*torch.cuda.get_device_capability(0))
    with tempfile.TemporaryDirectory() as folder:
        try:
            extension = compiled(folder)
        except RuntimeError as error:
            result.require(False, f"nvcc {result.versions['nvcc']} builds no extension: {first_error(str(error))}")
            return ""
        judge(result, extension, "cuda")
        torch.cuda.synchronize()
    return f"nvcc {result.versions['nvcc']} compiled a kernel that is exact"


def missing_compilers(cuda_home: str | None) -> str:
    """What is missing to compile an extension, empty if nothing."""
    missing = missing_build_tools(language="c++")
    if not cuda_home or not shutil.which(str(Path(cuda_home, "bin", "nvcc"))):
        missing = f"nvcc (CUDA_HOME={cuda_home or ''})" + (f" and {missing}" if missing else "")
    if shutil.which("ninja") is None:
        alone = "ninja" + (", installed but not on PATH" if importlib.util.find_spec("ninja") else "")
        missing = f"{missing} and {alone}" if missing else alone
    return missing


def nvcc_version(cuda_home: str) -> str:
    """The release that nvcc tells.

    Cuda compilation tools, release 13.0, V13.0.88
    """
    nvcc = str(Path(cuda_home, "bin", "nvcc"))
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.partition("release ")[2].partition(",")[0].strip()


def compiled(folder: str):
    """The extension's module; prints the compiler's words where it fails."""
    from torch.utils.cpp_extension import load_inline

    return load_inline(
        "envdoctor_inline_cuda",
        [DECLARATION],
        [SOURCE],
        functions=["scaled_add"],
        build_directory=folder,
        verbose=True,
    )


def first_error(said: str) -> str:
    """The line of the compiler's or the linker's output that says what is wrong.

    Error building extension 'envdoctor_inline_cuda': [1/3] c++ -MMD ...
    /usr/bin/ld: cannot find -lcudart: No such file or directory
    collect2: error: ld returned 1 exit status
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    signs = ("cannot find", "undefined reference", "fatal error", "error:", "unsupported", "Error")
    return next((line for sign in signs for line in lines if sign in line), "no reason given")[:300]


def judge(result: Result, extension, device) -> None:
    """A product and a sum, each rounded once: exactly torch's. Past the end, the poison must stay."""
    import torch

    x, y = torch.randn(COUNT, device=device), torch.randn(COUNT, device=device)
    out = torch.full((COUNT + 256,), float("nan"), device=device)
    extension.scaled_add(x, y, out, 0.75)
    result.at_most("elements_that_differ", int((out[:COUNT] != 0.75 * x + y).sum()), 0)
    result.require(bool(out[COUNT:].isnan().all()), "the kernel wrote past its end")


if __name__ == "__main__":
    run(probe)
