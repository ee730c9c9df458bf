"""Checks of bitsandbytes' native library and of its errors."""

from _needs import need, need_cuda, read_device
from _result import Result

TOLERANCE = 1.6e-2  # torch.testing.assert_close for bfloat16, as in cuda_matmul


def has_native_library(result: Result) -> bool:
    """Whether the CUDA library is loaded. Without it, bitsandbytes imports successfully with a mock library."""
    need_cuda()
    need("bitsandbytes")
    import bitsandbytes

    result.read_versions("torch", "bitsandbytes")
    read_device(result)
    library = bitsandbytes.cextension.lib
    if getattr(library, "compiled_with_cuda", False) is True:
        return True
    reason = getattr(library, "error_msg", "")  # only the mock library has this text
    first_line = reason.strip().splitlines()[:1] if isinstance(reason, str) else []
    result.require(False, ": ".join(["bitsandbytes has not loaded its CUDA library", *first_line]))
    return False


def check_error(result: Result, name: str, computed, exact) -> None:
    """Check the largest error, relative to each value plus the root mean square of all values."""
    error = (computed.double() - exact).abs() / (exact.abs() + exact.square().mean().sqrt())
    result.at_most(name, error.max().item(), TOLERANCE)
