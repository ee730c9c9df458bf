"""Where a step's time goes: sampling, scoring, handing weights to vLLM; what is left is the update."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

PARTS = ("generate", "score", "sync")


class StepTimer:
    """Times calls of the trainer's parts, the same leaves in every TRL from 0.22.2 to 1.16."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.began = time.monotonic()

    def start_step(self) -> None:
        """A step begins."""
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.began = time.monotonic()

    def end_step(self) -> dict[str, float]:
        """Seconds of the step, and of each part."""
        whole = time.monotonic() - self.began
        parts = {f"{name}_seconds": seconds for name, seconds in self.seconds.items()}
        return {"seconds": whole, **parts, "update_seconds": max(0.0, whole - sum(self.seconds.values()))}

    def watch(self, trainer: Any) -> None:
        """Put the watch on what this trainer calls."""
        self._time(trainer.model, "generate", "generate")
        self._time(trainer, "_calculate_rewards", "score")
        # Log-probabilities of answers before learning: of the reference, and of the policy where TRL asks for them.
        self._time(trainer, "_get_per_token_logps_and_entropies", "score", unless=torch.is_grad_enabled)
        colocated = getattr(trainer, "vllm_generation", None)  # an object of its own from TRL 0.28
        if colocated is not None:
            self._time(colocated, "sync_weights", "sync")
            self._time(colocated, "generate", "generate")
            return
        self._time(trainer, "_move_model_to_vllm", "sync")
        for name in ("llm", "vllm_client"):
            if hasattr(trainer, name):
                self._time(getattr(trainer, name), "generate", "generate")

    def _time(self, owner: object, name: str, part: str, unless: Callable[[], bool] = lambda: False) -> None:
        method = getattr(owner, name, None)
        if method is not None:
            setattr(owner, name, self._timed(method, part, unless))

    def _timed(self, method: Callable[..., Any], part: str, unless: Callable[[], bool]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            if unless():
                return method(*arguments, **named)
            before, nested = time.monotonic(), sum(self.seconds.values())
            try:
                return method(*arguments, **named)
            finally:
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()  # a GPU works on after the call: what it was asked counts here
                # What a part calls of another part counts there alone.
                self.seconds[part] += time.monotonic() - before - (sum(self.seconds.values()) - nested)

        return timed
