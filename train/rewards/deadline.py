"""A time limit for a block of Python code. Regular expressions check for signals while they match."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class DeadlineExceeded(Exception):  # noqa: N818  (named after the event)
    """The time limit has passed."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise DeadlineExceeded if the block takes longer. No limit outside the main thread, which gets no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise DeadlineExceeded

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
