"""bitsandbytes with its native library, or the reason why not."""

from _needs import need, need_cuda, read_device
from _result import Result

TOLERANCE = 1.6e-2  # torch.testing.assert_close for bfloat16, as in cuda_matmul


def native(result: Result) -> bool:
    """Whether the CUDA library is loaded: without it bitsandbytes imports all the same, with a mock in its place."""
    need_cuda()
    need("bitsandbytes")
    import bitsandbytes

    result.read_versions("torch", "bitsandbytes")
    read_device(result)
    library = bitsandbytes.cextension.lib
    if getattr(library, "compiled_with_cuda", False) is True:
        return True
    why = getattr(library, "error_msg", "")  # only the mock has a text there
    first = why.strip().splitlines()[:1] if isinstance(why, str) else []
    result.require(False, ": ".join(["bitsandbytes has not loaded its CUDA library", *first]))
    return False


def hold(result: Result, name: str, found, exact) -> None:
    """Hold the largest error against the tolerance, relative to each value and to their root mean square."""
    error = (found.double() - exact).abs() / (exact.abs() + exact.square().mean().sqrt())
    result.at_most(name, error.max().item(), TOLERANCE)
