"""Speed of copies between pinned host memory and each GPU, each way, in GB/s."""

from _bench import find_gpus, measure
from _needs import need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = True
ALONE = True
SECONDS = 8
BENCH = True

SIZE = 256 << 20  # bytes; pinned memory is taken from everybody, so no more than it needs


def probe(result: Result) -> str:
    """GPU by GPU."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    host = torch.full((SIZE,), 7, dtype=torch.uint8, pin_memory=True)
    found = [copy(result, index, device, host) for index, device in enumerate(find_gpus(result))]
    told = ", ".join(f"{there:.1f} to and {back:.1f} from" for there, back in found)
    return f"pinned host memory: {told} the GPU, GB/s"


def copy(result: Result, index: int, device, host, **times) -> tuple[float, float]:
    """There and back again."""
    import torch

    times = {"warm": 0.3, "seconds": 1.0} | times
    buffer = torch.empty_like(host, device=device)
    amount = 1e-9 * host.numel()
    there = measure(result, "h2d", index, lambda: buffer.copy_(host, non_blocking=True), amount, device, **times)
    back = measure(result, "d2h", index, lambda: host.copy_(buffer, non_blocking=True), amount, device, **times)
    return there, back


if __name__ == "__main__":
    run(probe)
