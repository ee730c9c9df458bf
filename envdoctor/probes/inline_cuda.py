"""A CUDA kernel that nvcc compiles through torch.utils.cpp_extension."""

import os
import tempfile

from _needs import need_cuda, read_device
from _nvcc import first_error, missing_compilers, nvcc_version
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 420
NEEDS_GPU = True
MEMORY_GB = 16
QUICK = False
SECONDS = 33

COUNT = 98_433  # not a multiple of the 256 threads of a block

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
    """Compile for this GPU, then compare with torch."""
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
            extension = compile_extension(folder)
        except RuntimeError as error:
            result.require(
                False, f"nvcc {result.versions['nvcc']} cannot build an extension: {first_error(str(error))}"
            )
            return ""
        check_kernel(result, extension, "cuda")
        torch.cuda.synchronize()
    return f"nvcc {result.versions['nvcc']} compiled a kernel with exact results"


def compile_extension(folder: str):
    """Compile the extension and return its module. The output of a failed compilation is printed."""
    from torch.utils.cpp_extension import load_inline

    return load_inline(
        "envdoctor_inline_cuda",
        [DECLARATION],
        [SOURCE],
        functions=["scaled_add"],
        build_directory=folder,
        verbose=True,
    )


def check_kernel(result: Result, extension, device) -> None:
    """A product and a sum, each rounded once, equal torch exactly. NaN after the end must not be overwritten."""
    import torch

    x, y = torch.randn(COUNT, device=device), torch.randn(COUNT, device=device)
    out = torch.full((COUNT + 256,), float("nan"), device=device)
    extension.scaled_add(x, y, out, 0.75)
    result.at_most("elements_that_differ", int((out[:COUNT] != 0.75 * x + y).sum()), 0)
    result.require(bool(out[COUNT:].isnan().all()), "the kernel wrote past its end")


if __name__ == "__main__":
    run(probe)
