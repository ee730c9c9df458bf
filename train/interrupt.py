"""SIGINT and SIGTERM: the first asks for an end after the running step, with a checkpoint; the next one ends now."""

from __future__ import annotations

import signal
import time
from types import FrameType


class Interrupt:
    """Outside the training loop a signal ends the program at once, by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self.training = False
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        # A terminal and a parent process may both pass on the same Ctrl-C: within a second it counts once.
        if not self.training or (self.asked_at is not None and now - self.asked_at > 1.0):
            raise KeyboardInterrupt
        self.asked_at = self.asked_at or now
