"""vLLM's log-probability of each sampled token, kept as it comes out of the model, a list a step.

vLLM cuts every step's array into a row a request and adds each to an object of its own, in Python, which sets the
pace of a small model: 64 answers of 512 tokens of a Qwen2 of 387 M parameters take 0.83 to 0.87 of the time without
that (medians of 24 pairs each, 2026-11-22, two H200s, driver 580.159.04, vLLM 0.26.0), and the numbers are vLLM's
own, all 4,096 of 64 greedy answers (tests/benchmarks/sampling_gpu.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any


class Ledger:
    """Takes the numbers off what the model runner hands to the scheduler, and finds those of an answer again."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._update = scheduler, scheduler.update_from_output
        self._steps: list[tuple[list[str], list[Any], list[float]]] = []  # request, its new tokens, number of each
        scheduler.update_from_output = self._take

    def _take(self, scheduled: Any, output: Any) -> Any:
        numbers = output.logprobs
        several = getattr(numbers, "cu_num_generated_tokens", None)  # tokens of one request: speculative decoding
        if numbers is not None and several is None:
            self._steps.append((list(output.req_ids), output.sampled_token_ids, numbers.logprobs[:, 0].tolist()))
            output.logprobs = None
        return self._update(scheduled, output)

    def close(self) -> None:
        """Let vLLM do it again."""
        self._scheduler.update_from_output = self._update

    def read(self, answers: Iterable[tuple[str, list[int]]]) -> list[list[float] | None]:
        """The numbers of these answers (request, its tokens), which are all that was sampled since the last call.

        None where the tokens are not those that were kept.
        """
        tokens, numbers = defaultdict[str, list[int]](list), defaultdict[str, list[float]](list)
        for requests, sampled, said in self._steps:
            for request, new, number in zip(requests, sampled, said, strict=False):
                if len(new):  # none while a long prompt is read
                    tokens[request].append(int(new[0]))
                    numbers[request].append(number)
        self._steps.clear()
        # vLLM adds "-" and eight random characters to the name that it gives back (0.14 to 0.26 at least).
        kept = {name: request for request in tokens for name in (request.rpartition("-")[0], request)}
        found: list[list[float] | None] = []
        for name, answer in answers:
            request, count = kept.get(name, ""), len(answer)
            same = tokens[request][:count] == list(answer)  # with asynchronous scheduling one more may have been made
            found.append(numbers[request][:count] if same else None)
        return found


def ledger_of(llm: Any) -> Ledger | None:
    """A ledger for an engine that runs in this process, if it has the parts that a ledger needs."""
    core = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    return Ledger(scheduler) if hasattr(scheduler, "update_from_output") else None
