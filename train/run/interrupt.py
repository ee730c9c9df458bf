"""SIGINT, SIGTERM, SIGUSR1: one asks for an end after the running step, with a checkpoint; another ends now."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType


class Interrupt:
    """Outside the training loop a signal ends the program at once, by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested_at: float | None = None
        self.training = False
        # torchrun passes SIGTERM on once more when another rank has left, which may be before this one has marked its
        # checkpoint; what is in a hurry follows with SIGKILL.
        self.ignores_repeats = "TORCHELASTIC_RUN_ID" in os.environ
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # USR1: a scheduler's warning before the end
            signal.signal(name, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        # A terminal and a parent process may both pass on the same Ctrl-C: within a second it counts once.
        again = self.requested_at is not None and now - self.requested_at > 1.0
        if not self.training or (again and not self.ignores_repeats and number != signal.SIGUSR1):
            raise KeyboardInterrupt
        self.requested_at = self.requested_at or now
