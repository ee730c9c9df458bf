"""SIGINT, SIGTERM and SIGUSR1: the first ends the run after the current step, with a checkpoint; a second at once.

With num_iterations the run ends after the last update with the completions of the step.
"""

from __future__ import annotations

import os
import signal
import time
from types import FrameType


class Interrupt:
    """Signal handlers of a run; outside the training loop a signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested_at: float | None = None
        self.training = False
        # torchrun sends SIGTERM again when another rank has exited, possibly before this one has saved its
        # checkpoint. A forced stop uses SIGKILL.
        self.ignores_repeats = "TORCHELASTIC_RUN_ID" in os.environ
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # USR1: a scheduler's warning before its limit
            signal.signal(name, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        # A terminal and a parent process may both deliver the same Ctrl-C: within a second it counts once.
        again = self.requested_at is not None and now - self.requested_at > 1.0
        if not self.training or (again and not self.ignores_repeats and number != signal.SIGUSR1):
            raise KeyboardInterrupt
        self.requested_at = self.requested_at or now
