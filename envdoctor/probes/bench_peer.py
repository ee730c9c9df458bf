"""One-way copy bandwidth from each GPU to the next, in GB/s."""

from _bench import find_gpus, measure
from _needs import need_cuda, read_device
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 180
NEEDS_GPU = True
ALONE = True
SECONDS = 9
BENCH = True
GPUS = 2

MAX_BYTES = 1 << 30


def probe(result: Result) -> str:
    """Measure copies from each GPU to the next, and from the last to the first."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    gpus = find_gpus(result)
    if len(gpus) < 2:
        raise Unavailable(f"a copy between GPUs needs two GPUs, torch has {len(gpus)}")
    rates = []
    has_peer_access = True
    for index, device in enumerate(gpus):
        other = gpus[(index + 1) % len(gpus)]
        has_peer_access &= torch.cuda.can_device_access_peer(device.index, other.index)
        size = min(MAX_BYTES, *(torch.cuda.mem_get_info(gpu)[0] // 4 for gpu in (device, other)))
        rates.append(copy(result, index, device, other, size))
    result.versions["peer_access"] = "yes" if has_peer_access else "no"
    return f"GPU to GPU: {', '.join(f'{rate:.0f}' for rate in rates)} GB/s" + (
        "" if has_peer_access else ", through the host"
    )


def copy(result: Result, index: int, device, other, size: int, **times) -> float:
    """Measure the bandwidth of copying `size` bytes from one device to another."""
    import torch

    times = {"warm": 0.3, "seconds": 1.0} | times
    source = torch.full((size,), 7, dtype=torch.uint8, device=device)
    target = torch.empty_like(source, device=other)

    def work() -> None:
        target.copy_(source, non_blocking=True)

    return measure(result, "peer", index, work, 1e-9 * size, device, other, **times)


if __name__ == "__main__":
    run(probe)
