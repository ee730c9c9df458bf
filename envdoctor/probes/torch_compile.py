"""A compiled function of three operations, forward and backward, against float64."""

import os

from _needs import missing_build_tools, need
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 300
NEEDS_GPU = False  # compiles for the GPU where there is one, else C++ for the CPU
QUICK = False  # compiles
SECONDS = 17

# Sums of 257 float32 terms of order one err by 257 * 2^-24 = 1.5e-5 at worst, 1e-6 as errors vary in sign.
# torch.testing.assert_close, which inductor's tests use, takes atol 1e-5 for float32.
TOLERANCE = 1e-5
SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")


def probe(result: Result) -> str:
    """Compile, run, compare, and make sure that a kernel was really generated."""
    need("torch")
    switched_off = [f"{name}={os.environ[name]}" for name in SWITCHES if os.environ.get(name, "0") not in ("", "0")]
    if switched_off:
        raise Unavailable(f"torch.compile is switched off by {', '.join(switched_off)}")
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    result.read_versions("torch", *(["triton"] if device == "cuda" else []))
    if device == "cuda":
        need("triton")
    torch.manual_seed(result.seed())
    x, y = torch.randn(2, 129, 257, dtype=torch.float64)
    try:
        compiled = evaluate(torch.compile(function, fullgraph=True), x, y, device, torch.float32)
    except Exception as error:
        missing = missing_build_tools(language="c" if device == "cuda" else "c++")
        if missing:
            raise Unavailable(f"torch.compile needs {missing}") from error
        raise
    exact = evaluate(function, x, y, "cpu", torch.float64)
    for name, found, expected in zip(("forward_error", "gradient_error"), compiled, exact, strict=True):
        error = (found.cpu().double() - expected).abs() / (1 + expected.abs())
        result.at_most(name, error.max().item(), TOLERANCE)
    from torch._inductor import metrics

    result.note("kernels", metrics.generated_kernel_count)
    result.require(metrics.generated_kernel_count > 0, "inductor generated no kernel: the function ran uncompiled")
    return f"{metrics.generated_kernel_count} kernels generated on {device}, forward and backward right"


def function(x, y):
    """Multiply, tanh, sum: fused into one kernel by inductor."""
    import torch

    return torch.tanh(x * y).sum(-1)


def evaluate(call, x, y, device, dtype):
    """The value of `call` and its gradient by x."""
    x = x.to(device=device, dtype=dtype).requires_grad_()
    value = call(x, y.to(device=device, dtype=dtype))
    value.sum().backward()
    return value.detach(), x.grad


if __name__ == "__main__":
    run(probe)
