"""Triton compiles and runs a vector add and a matrix product, with nothing cached."""

import os
import tempfile
from pathlib import Path

from _needs import compiling, half_precision, need, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
QUICK = False  # compiles

COUNT, BLOCK = (
    98_432,
    1024,
)  # the length of Triton's first tutorial: no multiple of the block, so the mask matters
SIZE = 256
TOLERANCE = 1.6e-2  # torch.testing.assert_close for bfloat16, as in cuda_matmul


def probe(result: Result) -> str:
    """Compile in an empty cache, run both kernels, count what was compiled."""
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
    return f"vector add exact, tl.dot right, {compiled} kernels compiled"


def check_add(result: Result, device) -> None:
    """One float32 addition is rounded once: exactly torch's. Past the end, the poison must stay."""
    import torch
    from _triton_kernels import add

    x, y = torch.randn(COUNT, device=device), torch.randn(COUNT, device=device)
    out = torch.full((COUNT + BLOCK,), float("nan"), device=device)
    add[((COUNT + BLOCK - 1) // BLOCK,)](x, y, out, COUNT, BLOCK=BLOCK)
    result.require(torch.equal(out[:COUNT], x + y), "the vector add is not exact")
    result.require(bool(out[COUNT:].isnan().all()), "the vector add wrote past its end")


def check_multiply(result: Result, device, dtype) -> None:
    """tl.dot against float64, into a poisoned output."""
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
