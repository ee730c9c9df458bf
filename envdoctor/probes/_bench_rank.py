"""One process of bench_allreduce.py: _bench_rank.py RANK SIZE BACKEND MEETING_FILE RESULT_FILE SIZES_AS_JSON."""

import contextlib
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

from _bench import keep, timed
from _result import Result

BATCHES = 5
TARGET_SECONDS = 1.0  # of one size: long enough for ten looks at the clocks
MOST_REPEATS = 1000


def main(rank: int, size: int, backend: str, meeting: str, sizes: dict[str, int]) -> dict:
    """Bus bandwidth of each size as nccl-tests defines it: 2 (n - 1) / n of the bytes over the seconds."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=120)
    )
    result = Result()
    wrong = 0
    for name, length in sizes.items():
        buffer = torch.ones(length // 4, device=device)
        distributed.all_reduce(buffer)
        wrong += int((buffer != size).sum())
        buffer.zero_()  # the sums of ones would overflow; what is sent does not change the speed of a link

        def work(buffer=buffer):
            distributed.all_reduce(buffer)

        each = timed(work, 5, device) / 5
        # All must call it equally often: the first process decides.
        repeats = torch.tensor([round(TARGET_SECONDS / BATCHES / each)], device=device)
        distributed.broadcast(repeats, 0)
        count = min(MOST_REPEATS, max(2, int(repeats)))
        opened, amount = time.time(), 2 * (size - 1) / size * length * 1e-9
        rates = [amount * count / timed(work, count, device) for _ in range(BATCHES)]
        keep(result, name, sorted(rates)[BATCHES // 2], rates, opened)
        del buffer
    distributed.barrier()
    with contextlib.suppress(Exception):  # the numbers matter, not how the library says goodbye
        distributed.destroy_process_group()
    return {"numbers": result.numbers, "wrong": wrong}


if __name__ == "__main__":
    said = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], json.loads(sys.argv[6]))
    Path(sys.argv[5]).write_text(json.dumps(said), encoding="utf-8")
