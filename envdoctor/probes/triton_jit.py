"""Triton compiles and runs a vector addition and a matrix product with an empty cache."""

import os
import tempfile
from pathlib import Path

from _needs import compiling, half_precision, need, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
QUICK = False  # compiles

# The length of Triton's first tutorial: not a multiple of the block, so that the mask is tested.
COUNT, BLOCK = 98_432, 1024
SIZE = 256
TOLERANCE = 1.6e-2  # torch.testing.assert_close for bfloat16, as in cuda_matmul


def probe(result: Result) -> str:
    """Compile with an empty cache, run both kernels, and count the compiled kernels."""
    need_cuda()
    need("triton")
    import torch

    result.read_versions("torch", "triton")
    read_device(result)
    torch.manual_seed(result.seed())
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache  # read at the first compilation
        with compiling("Triton needs {} to build its launcher", language="c"):
            check_add(result, "cuda")
            check_multiply(result, "cuda", half_precision())
        torch.cuda.synchronize()
        compiled = sum(1 for _ in Path(cache).rglob("*.cubin"))
    result.note("kernels_compiled", compiled)
    result.require(compiled >= 2, f"{compiled} kernels were compiled, expected 2 (is TRITON_INTERPRET set?)")
    return f"vector addition exact, tl.dot correct, {compiled} kernels compiled"


def check_add(result: Result, device) -> None:
    """A float32 addition is rounded once and equals torch exactly. NaN after the end must not be overwritten."""
    import torch
    from _triton_kernels import add

    x, y = torch.randn(COUNT, device=device), torch.randn(COUNT, device=device)
    out = torch.full((COUNT + BLOCK,), float("nan"), device=device)
    add[((COUNT + BLOCK - 1) // BLOCK,)](x, y, out, COUNT, BLOCK=BLOCK)
    result.require(torch.equal(out[:COUNT], x + y), "the vector add is not exact")
    result.require(bool(out[COUNT:].isnan().all()), "the vector add wrote past its end")


def check_multiply(result: Result, device, dtype) -> None:
    """Compare tl.dot with float64. The output buffer contains NaN."""
    import torch
    from _triton_kernels import multiply

    a = torch.randn(SIZE, SIZE, device=device).to(dtype)
    b = torch.randn(SIZE, SIZE, device=device).to(dtype)
    out = torch.full((SIZE, SIZE), float("nan"), device=device)
    multiply[(SIZE // 64, SIZE // 64)](a, b, out, SIZE=SIZE, BLOCK=64, STEP=32)
    exact = a.double() @ b.double()
    error = (out.double() - exact).abs() / (exact.abs() + exact.square().mean().sqrt())
    result.at_most("dot_error", error.max().item(), TOLERANCE)


if __name__ == "__main__":
    run(probe)
