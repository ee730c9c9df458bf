"""cuBLAS products in 16 and 32 bits compared with float64, and 200 repeats compared bit by bit."""

from _needs import half_precision, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True

SIZE = 1024
REPEATS = 200

# rtol of torch.testing.assert_close for bfloat16. Its atol of 1e-5 is for values of order one. For these sums of 1024
# products, the absolute part is 1.6e-2 of their root mean square.
HALF_TOLERANCE = 1.6e-2
# Rounding errors of K products grow as sqrt(K) u, u = 2^-24 (Higham and Mary, A new approach to probabilistic
# rounding error analysis, 2019): 1.9e-6, with a margin of 4. The error of TF32 (u = 2^-11) is near 3e-4.
SINGLE_TOLERANCE = 4 * SIZE**0.5 * 2.0**-24


def probe(result: Result) -> str:
    """Check products and gradients in both precisions, then repeats."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    torch.manual_seed(result.seed())
    half = half_precision()
    compare(result, "cuda", half)
    compare(result, "cuda", torch.float32)
    repeat(result, "cuda", half, REPEATS)
    repeat(result, "cuda", torch.float32, REPEATS)
    name = str(half).removeprefix("torch.")
    return f"{SIZE}^3 products in {name} and float32 correct, {REPEATS} repeats bit-identical"


def compare(result: Result, device, dtype) -> None:
    """Compare a product, written to a buffer that contains NaN, and both gradients with float64."""
    import torch

    a = torch.randn(SIZE, SIZE, device=device).to(dtype).requires_grad_()
    b = torch.randn(SIZE, SIZE, device=device).to(dtype).requires_grad_()
    cotangent = torch.randn(SIZE, SIZE, device=device).to(dtype)
    poisoned = torch.full((SIZE, SIZE), float("nan"), device=device, dtype=dtype)
    product = torch.matmul(a.detach(), b.detach(), out=poisoned)
    torch.matmul(a, b).backward(cotangent)
    a64, b64, c64 = a.detach().double(), b.detach().double(), cotangent.double()
    pairs = ((product, a64 @ b64), (a.grad, c64 @ b64.T), (b.grad, a64.T @ c64))
    for name, (computed, exact) in zip(("forward", "gradient", "gradient"), pairs, strict=True):
        error = (computed.double() - exact).abs()
        scale = exact.square().mean().sqrt()
        if dtype == torch.float32:
            relative_error = (error.square().mean().sqrt() / scale).item()
            result.at_most(f"float32_{name}_error", relative_error, SINGLE_TOLERANCE)
        else:
            relative_error = (error / (exact.abs() + scale)).max().item()
            result.at_most(f"{str(dtype).removeprefix('torch.')}_{name}_error", relative_error, HALF_TOLERANCE)


def repeat(result: Result, device, dtype, times: int) -> None:
    """Compare repeated products: cuBLAS guarantees bit-identical results on one GPU in one stream."""
    import torch

    a = torch.randn(SIZE, SIZE, device=device).to(dtype)
    b = torch.randn(SIZE, SIZE, device=device).to(dtype)
    first = torch.matmul(a, b)
    different = sum(not torch.equal(torch.matmul(a, b), first) for _ in range(times))
    result.at_most(f"{str(dtype).removeprefix('torch.')}_repeats_that_differ", different, 0)


if __name__ == "__main__":
    run(probe)
