"""One process of bench_allreduce.py: _bench_rank.py RANK SIZE BACKEND RENDEZVOUS_FILE RESULT_FILE SIZES_AS_JSON."""

import contextlib
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

from _bench import report_rate, time_repeats
from _result import Result

BATCHES = 5
TARGET_SECONDS = 1.0  # for one size: long enough for ten samples of the clocks
MAX_REPEATS = 1000


def main(rank: int, size: int, backend: str, rendezvous: str, sizes: dict[str, int]) -> dict:
    """Bus bandwidth for each size, as defined by nccl-tests: 2 (n - 1) / n * bytes / seconds."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        backend, init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=timedelta(seconds=120)
    )
    result = Result()
    wrong = 0
    for name, length in sizes.items():
        buffer = torch.ones(length // 4, device=device)
        distributed.all_reduce(buffer)
        wrong += int((buffer != size).sum())
        buffer.zero_()  # sums of ones would overflow; the values do not affect the speed

        def work(buffer=buffer):
            distributed.all_reduce(buffer)

        seconds = time_repeats(work, 5, device) / 5
        # All ranks must make the same number of calls: rank 0 decides.
        repeats = torch.tensor([round(TARGET_SECONDS / BATCHES / seconds)], device=device)
        distributed.broadcast(repeats, 0)
        count = min(MAX_REPEATS, max(2, int(repeats)))
        began_at, amount = time.time(), 2 * (size - 1) / size * length * 1e-9
        rates = [amount * count / time_repeats(work, count, device) for _ in range(BATCHES)]
        report_rate(result, name, sorted(rates)[BATCHES // 2], rates, began_at)
        del buffer
    distributed.barrier()
    with contextlib.suppress(Exception):  # an error at shutdown does not affect the measurement
        distributed.destroy_process_group()
    return {"numbers": result.numbers, "wrong": wrong}


if __name__ == "__main__":
    report = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], json.loads(sys.argv[6]))
    Path(sys.argv[5]).write_text(json.dumps(report), encoding="utf-8")
