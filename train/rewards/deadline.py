"""A deadline for code of our own thread: Python's regular expressions look for signals while they match."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class TooLong(Exception):  # noqa: N818  (named after what happened)
    """The deadline has passed."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TooLong when the block takes longer. Outside of the main thread, where no signal comes, it has no end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
