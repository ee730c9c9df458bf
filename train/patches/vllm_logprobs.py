"""vLLM's log-probability of each sampled token, kept as it comes out of the model, a list a step.

vLLM cuts every step's array into a row a request and adds each to an object of its own, in Python, which sets the
pace of a small model: 64 answers of 512 tokens of a Qwen2 of 387 M parameters take 0.83 to 0.87 of the time without
that (medians of 24 pairs each, 2026-11-22, two H200s, driver 580.159.04, vLLM 0.26.0), and the numbers are vLLM's
own, all 4,096 of 64 greedy answers (tests/benchmarks/sampling_gpu.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class LogprobStore:
    """Takes the numbers off what the model runner hands to the scheduler, and finds those of an answer again."""

    def __init__(self) -> None:
        self._steps: list[tuple[list[str], list[Any], list[list[float]]]] = []  # requests, new tokens, their numbers

    def take(self, output: Any) -> None:
        """What one step of vLLM's made (its ModelRunnerOutput, as from 0.11.1 to 0.32)."""
        if output.logprobs is None:
            return
        new, numbers = output.sampled_token_ids, output.logprobs.logprobs[:, 0].tolist()
        # A number a request, or where each request's begin: from a step that makes several tokens of each.
        starts = output.logprobs.cu_num_generated_tokens or range(len(new))
        said = [numbers[start : start + len(row)] for start, row in zip(starts, new, strict=False)]
        self._steps.append((list(output.req_ids), new, said))
        output.logprobs = None

    def read(self, answers: Iterable[tuple[str, list[int]]]) -> list[list[float] | None]:
        """The numbers of these answers (request, its tokens), which are all that was sampled.

        None where the tokens are not those that were kept.
        """
        tokens, numbers = defaultdict[str, list[int]](list), defaultdict[str, list[float]](list)
        for requests, sampled, said in self._steps:
            for request, new, row in zip(requests, sampled, said, strict=False):
                tokens[request] += map(int, new)  # none while a long prompt is read
                numbers[request] += row
        # Inside, vLLM from 0.14 on adds "-" and eight random characters to the name that it gives back.
        kept = {name: request for request in tokens for name in (request.rpartition("-")[0], request)}
        found: list[list[float] | None] = []
        for name, answer in answers:
            request, count = kept.get(name, ""), len(answer)
            same = tokens[request][:count] == list(answer)  # with asynchronous scheduling one more may have been made
            found.append(numbers[request][:count] if same else None)
        return found


@contextmanager
def storing_logprobs(llm: Any) -> Iterator[LogprobStore | None]:
    """A store of what is sampled inside; none where the engine does not run in this process."""
    core = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if scheduler is None:
        yield None
        return
    store, update = LogprobStore(), scheduler.update_from_output

    def take_and_update(scheduled: Any, output: Any) -> Any:
        store.take(output)
        return update(scheduled, output)

    scheduler.update_from_output = take_and_update
    try:
        yield store
    finally:
        scheduler.update_from_output = update
