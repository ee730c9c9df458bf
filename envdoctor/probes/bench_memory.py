"""Speed of a copy within each GPU's memory, in GB/s, counting bytes read and bytes written."""

from _bench import find_gpus, measure
from _needs import need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 120
NEEDS_GPU = True
ALONE = True
SECONDS = 7
BENCH = True

MAX_BYTES = 4 << 30  # much larger than the cache of any GPU (60 MB on an H200)


def probe(result: Result) -> str:
    """Measure one GPU after another."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    rates = []
    for index, device in enumerate(find_gpus(result)):
        size = min(MAX_BYTES, torch.cuda.mem_get_info(device)[0] // 4)
        rates.append(copy(result, index, device, size))
        torch.cuda.empty_cache()
    return f"copies within the GPU: {', '.join(f'{rate:.0f}' for rate in rates)} GB/s"


def copy(result: Result, index: int, device, size: int, **times) -> float:
    """Copy between two buffers of `size` bytes."""
    import torch

    source = torch.full((size,), 7, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return measure(result, "memory", index, lambda: target.copy_(source), 2e-9 * size, device, **times)


if __name__ == "__main__":
    run(probe)
