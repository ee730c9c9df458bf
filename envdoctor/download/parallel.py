"""Several questions at once, never longer than they may take."""

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


def run_parallel(questions: Mapping[K, Callable[[], T]], *, end: float) -> dict[K, T | RequestFailed]:
    """Each question's answer, in order; one that is not answered by `end` is RequestFailed.

    The threads are daemons of our own, since those of an executor are waited for at exit: a name server or a host
    that sends its headers byte by byte would hold the whole run.
    """
    waiting: SimpleQueue[tuple[K, Callable[[], T]]] = SimpleQueue()
    answers: SimpleQueue[tuple[K, T | BaseException]] = SimpleQueue()
    for item in questions.items():
        waiting.put(item)
    for _ in range(min(THREADS, len(questions))):
        Thread(target=_work, args=(waiting, answers), daemon=True).start()
    found: dict[K, T | RequestFailed] = {}
    while len(found) < len(questions):
        try:
            key, answer = answers.get(timeout=max(0.0, end + GRACE_SECONDS - time.monotonic()))
        except Empty:
            break
        if isinstance(answer, BaseException) and not isinstance(answer, RequestFailed):
            raise answer
        found[key] = answer
    late = RequestFailed("no answer before the time for this run was over")
    return {key: found.get(key, late) for key in questions}


def _work(waiting: SimpleQueue[tuple[K, Callable[[], T]]], answers: SimpleQueue[tuple[K, T | BaseException]]) -> None:
    while True:
        try:
            key, ask = waiting.get_nowait()
        except Empty:
            return
        try:
            answers.put((key, ask()))
        except BaseException as failure:  # handed to the caller, who raises it
            answers.put((key, failure))
