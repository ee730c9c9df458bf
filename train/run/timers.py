"""Seconds of each part of a training step."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

PARTS = ("generate", "score", "sync")  # the rest of a step is the update


class StepTimer:
    """Adds up the seconds of wrapped methods within a step."""

    def __init__(self) -> None:
        self.start_step()

    def start_step(self) -> None:
        """Reset the parts at the beginning of a step."""
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.started = time.monotonic()

    def end_step(self) -> dict[str, float]:
        """Seconds of the step, and of each part."""
        total = time.monotonic() - self.started
        parts = {f"{name}_seconds": seconds for name, seconds in self.seconds.items()}
        return {"seconds": total, **parts, "update_seconds": max(0.0, total - sum(self.seconds.values()))}

    def wrap(self, owner: object, name: str, part: str, unless: Callable[[], bool] = lambda: False) -> None:
        """Time a method of an object as `part`, where the object has it; calls with `unless()` are not timed."""
        method = getattr(owner, name, None)
        if method is not None:
            setattr(owner, name, self._timed(method, part, unless))

    def _timed(self, method: Callable[..., Any], part: str, unless: Callable[[], bool]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            if unless():
                return method(*arguments, **named)
            start, nested = time.monotonic(), sum(self.seconds.values())
            try:
                return method(*arguments, **named)
            finally:
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()  # kernels run on after the call returns
                # A part that runs within another one counts there alone.
                self.seconds[part] += time.monotonic() - start - (sum(self.seconds.values()) - nested)

        return timed
