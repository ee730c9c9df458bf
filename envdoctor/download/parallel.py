"""Parallel requests with a common deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from envdoctor.download.http_client import RequestFailed

K = TypeVar("K")
T = TypeVar("T")
THREADS = 8
GRACE_SECONDS = 1.0


def run_parallel(calls: Mapping[K, Callable[[], T]], *, end: float) -> dict[K, T | RequestFailed]:
    """Return the result of each call by its key, or the RequestFailed that it raised; other exceptions are raised.

    A call without a result at `end`, a time of time.monotonic(), counts as failed. Daemon threads are used instead of
    an executor, which joins its threads at exit: one host that sends its headers byte by byte would block the exit.
    """
    pending: SimpleQueue[tuple[K, Callable[[], T]]] = SimpleQueue()
    results: SimpleQueue[tuple[K, T | BaseException]] = SimpleQueue()
    for item in calls.items():
        pending.put(item)
    for _ in range(min(THREADS, len(calls))):
        Thread(target=_run_calls, args=(pending, results), daemon=True).start()
    completed: dict[K, T | RequestFailed] = {}
    while len(completed) < len(calls):
        try:
            key, result = results.get(timeout=max(0.0, end + GRACE_SECONDS - time.monotonic()))
        except Empty:
            break
        if isinstance(result, BaseException) and not isinstance(result, RequestFailed):
            raise result
        completed[key] = result
    late = RequestFailed("no response before the deadline")
    return {key: completed.get(key, late) for key in calls}


def _run_calls(
    pending: SimpleQueue[tuple[K, Callable[[], T]]], results: SimpleQueue[tuple[K, T | BaseException]]
) -> None:
    while True:
        try:
            key, call = pending.get_nowait()
        except Empty:
            return
        try:
            results.put((key, call()))
        except BaseException as failure:  # run_parallel raises it in the caller's thread
            results.put((key, failure))
