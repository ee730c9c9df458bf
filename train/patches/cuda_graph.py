"""Work for a GPU that is the same again and again, recorded as a CUDA graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def aside(device: torch.device) -> torch.cuda.Stream:
    """Where work is recorded, always the same: cuBLAS keeps a workspace for each stream."""
    return torch.cuda.Stream(device)


def capture(work: Callable[[], Any], device: torch.device, pool: Any = None) -> Callable[[], None] | None:
    """What replays `work`, which is not done yet; None where it cannot be recorded: it waits for the GPU, say.

    torch.cuda.graph would look for garbage, wait for the GPU and give back what torch keeps of its memory first.
    """
    graph, stream, side = torch.cuda.CUDAGraph(), torch.cuda.current_stream(), aside(device)
    pool = pool or torch.cuda.graph_pool_handle()
    side.wait_stream(stream)
    try:
        with torch.cuda.stream(side):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
    except RuntimeError:
        # torch's allocator would take the recording to go on, and not try again when memory is short
        # (pytorch#180395, of April 2026). Where it has ended, this says so by an error.
        with contextlib.suppress(AttributeError, RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index, pool)  # noqa: SLF001  # type: ignore[attr-defined]
        return None
    stream.wait_stream(side)
    return graph.replay
