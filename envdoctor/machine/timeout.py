"""A bound on calls that a broken machine can hang: a dead network mount, a driver that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call_with_timeout(seconds: float, function: Callable[[], T]) -> T:
    """The function's result; TimeoutError when it does not answer in time.

    It runs in a daemon thread, since a call stuck in the kernel cannot be cancelled, only left behind.
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
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]
