"""One process of nccl_allreduce.py: python _nccl_rank.py RANK SIZE BACKEND MEETING_FILE RESULT_FILE SEED."""

import contextlib
import json
import sys
from datetime import timedelta
from pathlib import Path

ELEMENTS = 1_000_003  # four megabytes of float32 and no round number, so that the last chunk is a short one
ROUNDS = 5
REPLAYS = 3


def share(rank: int, turn: int, seed: int):
    """What one process brings: small integers, whose sum float32 holds exactly."""
    import torch

    generator = torch.Generator().manual_seed(seed + 1000 * turn + rank)
    return torch.randint(-1000, 1000, (ELEMENTS,), generator=generator).float()


def main(rank: int, size: int, backend: str, meeting: str, seed: int) -> dict[str, float]:
    """All-reduce some times, then inside a captured graph; how many elements came out wrong."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=120)
    )
    buffer = torch.empty(ELEMENTS, device=device)

    def wrong(turn: int, run) -> int:
        expected = sum(share(other, turn, seed) for other in range(size))
        buffer.copy_(share(rank, turn, seed))
        run()
        return int((buffer.cpu() != expected).sum())

    reduced = sum(wrong(turn, lambda: distributed.all_reduce(buffer)) for turn in range(ROUNDS))
    found = {"wrong_elements": reduced}
    if backend == "nccl":
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # The watchdog of torch's NCCL asks events meanwhile; other threads must be let do so.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            distributed.all_reduce(buffer)
        found["wrong_in_graph"] = sum(wrong(ROUNDS + turn, graph.replay) for turn in range(REPLAYS))
        found["nccl"] = float("{}{:02d}{:02d}".format(*torch.cuda.nccl.version()[:3]))
        del graph
    distributed.barrier()
    with contextlib.suppress(Exception):  # right sums matter, not how the library says goodbye
        distributed.destroy_process_group()
    return found


if __name__ == "__main__":
    said = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[6]))
    Path(sys.argv[5]).write_text(json.dumps(said), encoding="utf-8")
