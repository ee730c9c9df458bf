"""Speed of copies between pinned host memory and each GPU, each way, in GB/s."""

from _bench import find_gpus, measure
from _needs import need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = True
ALONE = True
SECONDS = 8
BENCH = True

SIZE = 256 << 20  # bytes; small, because pinned memory is not available to other processes


def probe(result: Result) -> str:
    """Measure one GPU after another."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    host = torch.full((SIZE,), 7, dtype=torch.uint8, pin_memory=True)
    rates = [copy(result, index, device, host) for index, device in enumerate(find_gpus(result))]
    text = ", ".join(f"{to_gpu:.1f} to and {from_gpu:.1f} from" for to_gpu, from_gpu in rates)
    return f"pinned host memory: {text} the GPU, GB/s"


def copy(result: Result, index: int, device, host, **times) -> tuple[float, float]:
    """Copy to the GPU and back; returns both rates."""
    import torch

    times = {"warm": 0.3, "seconds": 1.0} | times
    buffer = torch.empty_like(host, device=device)
    amount = 1e-9 * host.numel()
    to_gpu = measure(result, "h2d", index, lambda: buffer.copy_(host, non_blocking=True), amount, device, **times)
    from_gpu = measure(result, "d2h", index, lambda: host.copy_(buffer, non_blocking=True), amount, device, **times)
    return to_gpu, from_gpu


if __name__ == "__main__":
    run(probe)
