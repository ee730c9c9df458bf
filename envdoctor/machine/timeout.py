"""Timeouts for calls that can block forever: a dead network mount, a driver that does not respond."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call_with_timeout(seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a thread; TimeoutError if it does not return in time.

    A call that blocks in the kernel cannot be cancelled, so its daemon thread keeps running.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no response within {seconds:g} s")
    return results[0]
