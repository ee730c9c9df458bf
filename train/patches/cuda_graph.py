"""Capture of repeated GPU work as a CUDA graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream for captures, one per device: cuBLAS keeps a workspace for each stream."""
    return torch.cuda.Stream(device)


def capture(work: Callable[[], Any], device: torch.device, pool: Any = None) -> Callable[[], None] | None:
    """Capture `work` without running it; return its replay, or None where it cannot be captured (GPU sync, say).

    torch.cuda.graph would first collect garbage, synchronize, and empty torch's memory cache.
    """
    graph, stream, side = torch.cuda.CUDAGraph(), torch.cuda.current_stream(), capture_stream(device)
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
        # torch's allocator would consider the capture as running, and not retry when memory is short
        # (pytorch#180395, April 2026). Where the capture has ended, this call raises.
        with contextlib.suppress(AttributeError, RuntimeError):
            torch._C._cuda_endAllocateToPool(device.index, pool)  # noqa: SLF001  # type: ignore[attr-defined]
        return None
    stream.wait_stream(side)
    return graph.replay
