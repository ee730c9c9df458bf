"""Many of vLLM's decoding steps from one plan of its scheduler.

While every request that runs only gets its next token, each plan is the last one a token further on. vLLM makes it
anew for each token, request by request in Python, and tells each request of each token by itself, which sets the
pace of a small model. Here its scheduler plans once and is told once in `STEPS` steps; the model runner gets the
same steps as before, so the tokens are the same. 64 answers of 512 tokens of a Qwen2 of 387 M parameters take 0.93 s
for 1.43, with the ledger 1.28 (an H200, driver 580.159.04, vLLM 0.26.0, 2026-11-22; benchmarks/sampling_gpu.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from packaging.version import Version

STEPS = 16  # planned at once: an answer that ends within them is sampled on to their end, and cut


class Bursts:
    """Stands before a scheduler: repeats its plan a token further on, and tells it of what came back all at once.

    vLLM plans a step while the one before runs. The last step of a burst is told by itself, so that the scheduler's
    next plan is made as ever: with one step under way that it has not been told of.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.plan, self.tell = scheduler.schedule, scheduler.update_from_output
        self.ahead: deque[Any] = deque()  # steps to be handed out
        self.behind: deque[Any] = deque()  # steps of the burst that have not come back, without its last
        self.held: list[Any] = []  # what came back, of which the scheduler does not know

    def schedule(self, *arguments: Any) -> Any:
        """The next step: of the burst, or a plan of the scheduler's own, from which a burst may begin."""
        if self.ahead:
            return self.ahead.popleft()
        space = self.scheduler.num_lookahead_tokens = STEPS if self._has_space() else 0
        planned = self.plan(*arguments)
        more = min(space, self._repeatable(planned))
        if more > 1:
            self._repeat(planned, more)
        return planned

    def update_from_output(self, planned: Any, output: Any) -> Any:
        """What the scheduler says of this step; nothing yet within a burst."""
        if not self.behind or planned is not self.behind[0]:
            return self.tell(planned, output)
        self.behind.popleft()
        self.held.append(output)
        if self.behind:
            return {}
        rows = zip(*(one.sampled_token_ids for one in self.held), strict=True)
        together = replace(output, sampled_token_ids=[list(chain(*row)) for row in rows])
        counts = dict.fromkeys(planned.num_scheduled_tokens, len(self.held))
        self.held = []
        return self.tell(replace(planned, num_scheduled_tokens=counts), together)

    def _has_space(self) -> bool:
        """Whether each running request can have the blocks of a burst, so that none is put aside for them."""
        manager = self.scheduler.kv_cache_manager
        groups = manager.coordinator.single_type_managers
        each = sum(STEPS // group.block_size + 2 for group in groups)
        return bool(manager.block_pool.get_num_free_blocks() > each * len(self.scheduler.running))

    def _repeatable(self, planned: Any) -> int:
        """How often a plan can be repeated: while nobody waits, and each running request decodes and has room."""
        scheduler = self.scheduler
        running, made = scheduler.running, planned.num_scheduled_tokens
        if (
            not running
            or scheduler.waiting
            or scheduler.skipped_waiting
            or planned.scheduled_new_reqs
            or not len(running) == len(made) == planned.total_num_scheduled_tokens
            or any(one.is_prefill_chunk or one.has_encoder_inputs for one in running)
        ):
            return 0
        return min(
            min(one.max_tokens, scheduler.max_model_len - one.num_prompt_tokens)
            - one.num_output_tokens
            - one.num_output_placeholders
            for one in running
        )

    def _repeat(self, planned: Any, more: int) -> None:
        """This many steps after `planned`, and every request's account as if the scheduler had planned them."""
        before = planned.scheduled_cached_reqs
        none: list[None] = [None] * len(before.req_ids)
        for further in range(1, more + 1):
            cached = replace(
                before,
                resumed_req_ids=set(),
                new_block_ids=none,
                num_computed_tokens=[count + further for count in before.num_computed_tokens],
                num_output_tokens=[count + further for count in before.num_output_tokens],
            )
            self.ahead.append(
                replace(
                    planned,
                    scheduled_cached_reqs=cached,
                    finished_req_ids=set(),
                    preempted_req_ids=set(),
                    new_block_ids_to_zero=None,
                    kv_cache_block_copies=None,
                )
            )
        self.behind.extend([planned, *self.ahead][:-1])
        for one in self.scheduler.running:
            one.num_computed_tokens += more
            one.num_output_placeholders += more
            one.num_in_flight_tokens += more


@contextmanager
def in_bursts(llm: Any, asked: Any) -> Iterator[bool]:
    """Let vLLM sample in bursts inside, where this engine and what is asked of it allow it; says whether they do."""
    core = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if not (_engine_fits(scheduler) and _request_fits(asked)):
        yield False
        return
    assert scheduler is not None
    bursts, lookahead = Bursts(scheduler), scheduler.num_lookahead_tokens
    scheduler.schedule, scheduler.update_from_output = bursts.schedule, bursts.update_from_output
    try:
        yield True
    finally:
        scheduler.schedule, scheduler.update_from_output = bursts.plan, bursts.tell
        scheduler.num_lookahead_tokens = lookahead


def _engine_fits(scheduler: Any) -> bool:
    """vLLM 0.26 as tried: plans ahead, its second model runner, and nothing that counts a scheduler's plans."""
    if scheduler is None or type(scheduler).__name__ != "AsyncScheduler":
        return False
    import vllm

    return (
        Version(vllm.__version__).release[:2] == (0, 26)
        and scheduler.use_v2_model_runner
        and not scheduler.use_pp
        and not scheduler.num_lookahead_tokens  # nothing is drafted
        and not scheduler.defer_block_free
        and not scheduler.need_mamba_block_aligned_split
        and scheduler.connector is None
        and scheduler.ec_connector is None
        and scheduler.perf_metrics is None
        and not scheduler.log_stats
    )


def _request_fits(asked: Any) -> bool:
    """Whether a token or its length alone ends an answer, and nothing but the GPU chooses its tokens."""
    return not (asked.stop or asked.structured_outputs or asked.n != 1)
