"""Speed of one large matrix product in 16 bits, in TFLOP/s, on each GPU."""

from _bench import find_gpus, measure
from _needs import half_precision, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True
ALONE = True
SECONDS = 10
BENCH = True

SIZE = 8192


def probe(result: Result) -> str:
    """Measure one GPU after another."""
    need_cuda()
    result.read_versions("torch")
    read_device(result)
    dtype = half_precision()
    result.versions["dtype"] = str(dtype).removeprefix("torch.")
    rates = [multiply(result, index, device, dtype, SIZE) for index, device in enumerate(find_gpus(result))]
    text = ", ".join(f"{rate:.0f}" for rate in rates)
    return f"{SIZE} cubed in {result.versions['dtype']}: {text} TFLOP/s"


def multiply(result: Result, index: int, device, dtype, size: int, **times) -> float:
    """Multiply random matrices. Matrices of zeros need less power and are an eighth faster on an H200."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return measure(result, "gemm", index, lambda: torch.matmul(a, b, out=out), 2e-12 * size**3, device, **times)


if __name__ == "__main__":
    run(probe)
