"""vLLM's log-probabilities of the sampled tokens, stored as one list per step.

vLLM splits the array of every step into rows and adds each to an object per request, in Python. Without that, 64
completions of 512 tokens of a 387 M model take 0.83 to 0.87 of the time, with the same numbers
(tests/benchmarks/sampling_gpu.py; two H200, vLLM 0.26.0, 2026-11-22).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class LogprobStore:
    """Takes log-probabilities from the outputs of the model runner, before the scheduler reads them."""

    def __init__(self) -> None:
        # per step: request ids, new tokens of each request, their log-probabilities
        self._steps: list[tuple[list[str], list[Any], list[list[float]]]] = []

    def add(self, output: Any) -> None:
        """Move the log-probabilities out of a ModelRunnerOutput (vLLM 0.11.1 to 0.32)."""
        if output.logprobs is None:
            return
        tokens, logprobs = output.sampled_token_ids, output.logprobs.logprobs[:, 0].tolist()
        # One number per request, or the start of each request's numbers in a multi-token step.
        starts = output.logprobs.cu_num_generated_tokens or range(len(tokens))
        rows = [logprobs[start : start + len(row)] for start, row in zip(starts, tokens, strict=False)]
        self._steps.append((list(output.req_ids), tokens, rows))
        output.logprobs = None

    def read(self, completions: Iterable[tuple[str, list[int]]]) -> list[list[float] | None]:
        """The log-probabilities of each completion (request id, tokens); None where the stored tokens differ."""
        tokens, logprobs = defaultdict[str, list[int]](list), defaultdict[str, list[float]](list)
        for requests, sampled, rows in self._steps:
            for request, new, row in zip(requests, sampled, rows, strict=False):
                tokens[request] += map(int, new)  # empty during a chunked prefill
                logprobs[request] += row
        # From vLLM 0.14 on, internal request ids end in "-" and eight random characters.
        internal = {name: request for request in tokens for name in (request.rpartition("-")[0], request)}
        found: list[list[float] | None] = []
        for name, completion in completions:
            request, count = internal.get(name, ""), len(completion)
            same = tokens[request][:count] == list(completion)  # asynchronous scheduling may sample one more
            found.append(logprobs[request][:count] if same else None)
        return found


@contextmanager
def store_logprobs(llm: Any) -> Iterator[LogprobStore | None]:
    """Store the log-probabilities sampled within; None where the engine runs in another process."""
    core = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if scheduler is None:
        yield None
        return
    store, update = LogprobStore(), scheduler.update_from_output

    def store_and_update(scheduled: Any, output: Any) -> Any:
        store.add(output)
        return update(scheduled, output)

    scheduler.update_from_output = store_and_update
    try:
        yield store
    finally:
        scheduler.update_from_output = update
