"""A compiled function of three operations, forward and backward, against float64."""

import os
import sys

from _needs import missing_build_tools, need
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 300
NEEDS_GPU = False  # compiles for the GPU if there is one, otherwise C++ for the CPU
QUICK = False  # compiles
SECONDS = 17

# The error of a sum of 257 float32 terms of order one is at most 257 * 2^-24 = 1.5e-5, typically 1e-6.
# torch.testing.assert_close, which inductor's tests use, has atol 1e-5 for float32.
TOLERANCE = 1e-5
SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
DETECTION = "TORCHINDUCTOR_VEC_ISA_OK"


def probe(result: Result) -> str:
    """Compile, run and compare, and check that inductor generated a kernel."""
    need("torch")
    disabled_by = [f"{name}={os.environ[name]}" for name in SWITCHES if os.environ.get(name, "0") not in ("", "0")]
    if disabled_by:
        raise Unavailable(f"torch.compile is disabled by {', '.join(disabled_by)}")
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    result.read_versions("torch", *(["triton"] if device == "cuda" else []))
    if device == "cuda":
        need("triton")
    torch.manual_seed(result.seed())
    x, y = torch.randn(2, 129, 257, dtype=torch.float64)
    if device == "cpu" and DETECTION not in os.environ:
        compile_kernels_only()
    try:
        compiled = evaluate(torch.compile(function, fullgraph=True), x, y, device, torch.float32)
    except Exception as error:
        missing = missing_build_tools(language="c" if device == "cuda" else "c++")
        if missing:
            raise Unavailable(f"torch.compile needs {missing}") from error
        if device == "cpu" and DETECTION not in os.environ:  # the compiler may lack the CPU's newest instructions
            os.environ[DETECTION] = ""
            os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606  inductor caches its choice
        raise
    exact = evaluate(function, x, y, "cpu", torch.float64)
    for name, computed, expected in zip(("forward_error", "gradient_error"), compiled, exact, strict=True):
        error = (computed.cpu().double() - expected).abs() / (1 + expected.abs())
        result.at_most(name, error.max().item(), TOLERANCE)
    from torch._inductor import metrics

    result.note("kernels", metrics.generated_kernel_count)
    result.require(metrics.generated_kernel_count > 0, "inductor generated no kernel: the function ran uncompiled")
    return f"{metrics.generated_kernel_count} kernels generated on {device}, forward and backward correct"


def compile_kernels_only():
    """Let inductor compile nothing but the two kernels, which takes 13 instead of 23 s of CPU time.

    It uses the vector instructions that the CPU reports, without compiling a test of each set, and no precompiled
    header. Kernels, compiler and flags stay the same.
    """
    from torch._inductor import config

    config.cpp.vec_isa_ok = True
    if hasattr(config, "cpp_cache_precompile_headers"):  # torch 2.9
        config.cpp_cache_precompile_headers = False


def function(x, y):
    """Multiply, tanh and sum, which inductor fuses into one kernel."""
    import torch

    return torch.tanh(x * y).sum(-1)


def evaluate(call, x, y, device, dtype):
    """The value of `call` and its gradient with respect to x."""
    x = x.to(device=device, dtype=dtype).requires_grad_()
    value = call(x, y.to(device=device, dtype=dtype))
    value.sum().backward()
    return value.detach(), x.grad


if __name__ == "__main__":
    run(probe)
