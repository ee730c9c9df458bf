"""NCCL's bus bandwidth over all GPUs of the machine, for 64 MiB and 1 GiB, with interface and transport."""

import json
from pathlib import Path

from _bench import find_gpus
from _needs import need_cuda, read_device
from _result import Result, Unavailable, run
from nccl_allreduce import parse_log, start_ranks

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 48  # one process and CUDA context per GPU, for up to eight GPUs
ALONE = True
SECONDS = 14
BENCH = True
GPUS = 2

RANK_SCRIPT = Path(__file__).with_name("_bench_rank.py")
SIZES = {"allreduce_64mb": 64 << 20, "allreduce_1gb": 1 << 30}


def probe(result: Result) -> str:
    """Run one process per GPU."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    count = len(find_gpus(result))
    if count < 2:
        raise Unavailable(f"an all-reduce needs two GPUs, torch has {count}")
    if not torch.distributed.is_nccl_available():
        raise Unavailable("this torch is built without NCCL")
    log = measure_ranks(result, "nccl", count, SIZES)
    result.versions |= parse_log(log)
    rates = ", ".join(f"{result.numbers[name]:.0f} at {size >> 20} MiB" for name, size in SIZES.items())
    transport = result.versions.get("transport", "an unknown transport")
    return f"bus bandwidth over {count} GPUs: {rates}, GB/s, by {transport}"


def measure_ranks(result: Result, backend: str, count: int, sizes: dict[str, int]) -> str:
    """Run the processes and report the measurements of rank 0; returns the log of NCCL."""
    codes, reports, log = start_ranks(RANK_SCRIPT, backend, count, json.dumps(sizes))
    if any(codes):
        raise RuntimeError(f"the processes of {count} GPUs ended with exit codes {codes}")
    result.note("gpus", count)
    for key, value in reports[0]["numbers"].items():
        result.note(key, value)
    result.at_most("wrong_elements", sum(report["wrong"] for report in reports), 0)
    return log


if __name__ == "__main__":
    run(probe)
