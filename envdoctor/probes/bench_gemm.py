"""Speed of large matrix products in 16 bits, in TFLOP/s, on each GPU: in short bursts, and sustained."""

from _bench import find_gpus, measure, measure_burst
from _needs import half_precision, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True
ALONE = True
SECONDS = 10
BENCH = True

SIZE = 8192
WARM_SECONDS = 3.0  # the clocks of an H100 fall for some seconds after it reached its power limit


def probe(result: Result) -> str:
    """Measure one GPU after another."""
    need_cuda()
    result.read_versions("torch")
    read_device(result)
    dtype = half_precision()
    result.versions["dtype"] = str(dtype).removeprefix("torch.")
    rates = [multiply(result, index, device, dtype, SIZE) for index, device in enumerate(find_gpus(result))]
    text = ", ".join(f"{burst:.0f} and {sustained:.0f}" for burst, sustained in rates)
    return f"{SIZE} cubed in {result.versions['dtype']}, short and sustained: {text} TFLOP/s"


def multiply(result: Result, index: int, device, dtype, size: int, **times) -> tuple[float, float]:
    """Multiply random matrices. Matrices of zeros need less power and are an eighth faster on an H200."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty_like(a)

    def work() -> object:
        return torch.matmul(a, b, out=out)

    amount = 2e-12 * size**3
    burst = measure_burst(result, "gemm_burst", index, work, amount, device)
    return burst, measure(result, "gemm", index, work, amount, device, **{"warm": WARM_SECONDS} | times)


if __name__ == "__main__":
    run(probe)
