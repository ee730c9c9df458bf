"""SIGINT, SIGTERM, SIGUSR1: one asks for an end after the running step, with a checkpoint; another ends now."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType


class Interrupt:
    """Outside the training loop a signal ends the program at once, by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self.training = False
        # torchrun passes SIGTERM on once more when another rank has left, which may be before this one has marked its
        # checkpoint; what is in a hurry follows with SIGKILL.
        self.patient = "TORCHELASTIC_RUN_ID" in os.environ
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # USR1: a scheduler's warning before the end
            signal.signal(name, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        # A terminal and a parent process may both pass on the same Ctrl-C: within a second it counts once.
        again = self.asked_at is not None and now - self.asked_at > 1.0
        if not self.training or (again and not self.patient and number != signal.SIGUSR1):
            raise KeyboardInterrupt
        self.asked_at = self.asked_at or now
