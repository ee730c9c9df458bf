"""One process of nccl_allreduce.py: python _nccl_rank.py RANK SIZE BACKEND RENDEZVOUS_FILE RESULT_FILE SEED."""

import contextlib
import json
import sys
from datetime import timedelta
from pathlib import Path

ELEMENTS = 1_000_003  # 4 MB of float32; not a round number, so that the last chunk is shorter
ROUNDS = 5
REPLAYS = 3


def rank_values(rank: int, turn: int, seed: int):
    """The input of one rank: small integers, whose sum is exact in float32."""
    import torch

    generator = torch.Generator().manual_seed(seed + 1000 * turn + rank)
    return torch.randint(-1000, 1000, (ELEMENTS,), generator=generator).float()


def main(rank: int, size: int, backend: str, rendezvous: str, seed: int) -> dict[str, float]:
    """All-reduce several times, then in a captured CUDA graph; returns the number of wrong elements."""
    import torch
    from torch import distributed

    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        backend, init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=timedelta(seconds=120)
    )
    buffer = torch.empty(ELEMENTS, device=device)

    def count_wrong(turn: int, run) -> int:
        expected = sum(rank_values(other, turn, seed) for other in range(size))
        buffer.copy_(rank_values(rank, turn, seed))
        run()
        return int((buffer.cpu() != expected).sum())

    reduced = sum(count_wrong(turn, lambda: distributed.all_reduce(buffer)) for turn in range(ROUNDS))
    report = {"wrong_elements": reduced}
    if backend == "nccl":
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # The NCCL watchdog thread of torch queries events during the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            distributed.all_reduce(buffer)
        report["wrong_in_graph"] = sum(count_wrong(ROUNDS + turn, graph.replay) for turn in range(REPLAYS))
        report["nccl"] = float("{}{:02d}{:02d}".format(*torch.cuda.nccl.version()[:3]))
        del graph
    distributed.barrier()
    with contextlib.suppress(Exception):  # an error at shutdown does not affect the result
        distributed.destroy_process_group()
    return report


if __name__ == "__main__":
    report = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[6]))
    Path(sys.argv[5]).write_text(json.dumps(report), encoding="utf-8")
