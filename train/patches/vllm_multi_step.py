"""Many of vLLM's decoding steps from one plan of its scheduler.

While every request that runs only gets its next token, each plan is the last one a token further on. vLLM makes it
anew for each token, request by request in Python, and tells each request of each token by itself, which sets the
pace of a small model. Here its scheduler plans once and is told once for several tokens of all answers.

Where `vllm_cuda_graph.GraphRunner` serves, the model runner makes them in one call. Elsewhere it gets the same
steps as ever, one after the other. The tokens are the same both ways (benchmarks/sampling_gpu.py has the times).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from packaging.version import Version

# How often a plan is repeated. An answer that ends meanwhile is sampled on to the end of it, and cut. With it, two
# plans are under way: the GPU works at one while the tokens of the other are read and told.
STEPS, RECORDED_STEPS = 16, 7


class MultiStepScheduler:
    """Stands before a scheduler: repeats its plan a token further on, and tells it of what came back all at once.

    vLLM plans a step while the one before runs. Its limits are right for one token that it has not been told of, so
    of steps that are handed out one by one the last is told by itself. While recorded ones are under way, a step is
    planned only where everybody gets a token more.
    """

    def __init__(self, scheduler: Any, recorded: Any = None) -> None:
        self.scheduler, self.recorded = scheduler, recorded
        self.plan, self.tell = scheduler.schedule, scheduler.update_from_output
        self.ahead: deque[Any] = deque()  # steps to be handed out
        self.behind: deque[Any] = deque()  # steps of the burst that have not come back, without its last
        self.held: list[Any] = []  # what came back, of which the scheduler does not know
        self.under_way: deque[Any] = deque()  # plans of several tokens each, which the runner makes in one call

    def schedule(self, *arguments: Any) -> Any:
        """The next step: of the burst, or a plan of the scheduler's own, from which a burst may begin."""
        if self.ahead:
            return self.ahead.popleft()
        if self.under_way and not self._goes_on():
            return type(self.under_way[0]).make_empty()  # vLLM waits for what is under way
        records = self.recorded is not None and self.recorded.serves(len(self.scheduler.running))
        steps = RECORDED_STEPS if records else STEPS
        space = self.scheduler.num_lookahead_tokens = steps if self._has_space() else 0
        planned = self.plan(*arguments)
        more = min(space, self._repeatable(planned))
        if more > 1:
            self._account(more)
            if records:
                planned.further = more  # tokens of each answer: for the runner
                self.under_way.append(planned)
            else:
                self._repeat(planned, more)
        return planned

    def update_from_output(self, planned: Any, output: Any) -> Any:
        """What the scheduler says of this step; nothing yet within a burst."""
        if self.under_way and planned is self.under_way[0]:
            self.under_way.popleft()
            return self._tell(planned, output, 1 + planned.further)
        if not self.behind or planned is not self.behind[0]:
            return self.tell(planned, output)
        self.behind.popleft()
        self.held.append(output)
        if self.behind:
            return {}
        rows = zip(*(one.sampled_token_ids for one in self.held), strict=True)
        together = replace(output, sampled_token_ids=[list(chain(*row)) for row in rows])
        count, self.held = len(self.held), []
        return self._tell(planned, together, count)

    def _tell(self, planned: Any, output: Any, count: int) -> Any:
        counts = dict.fromkeys(planned.num_scheduled_tokens, count)
        return self.tell(replace(planned, num_scheduled_tokens=counts), output)

    def _has_space(self) -> bool:
        """Whether each running request can have the blocks of a burst, so that none is put aside for them."""
        manager = self.scheduler.kv_cache_manager
        groups = manager.coordinator.single_type_managers
        each = sum(STEPS // group.block_size + 2 for group in groups)
        return bool(manager.block_pool.get_num_free_blocks() > each * len(self.scheduler.running))

    def _goes_on(self) -> bool:
        """Whether everybody just gets more tokens than are under way."""
        scheduler = self.scheduler
        waits = not scheduler.running or scheduler.waiting or scheduler.skipped_waiting
        return not waits and self._has_space() and self._room() > 0

    def _room(self) -> int:
        """Tokens that every running request may still have, beside those that are planned."""
        longest = self.scheduler.max_model_len
        return min(
            min(one.max_tokens, longest - one.num_prompt_tokens) - one.num_output_tokens - one.num_output_placeholders
            for one in self.scheduler.running
        )

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
        return self._room()

    def _repeat(self, planned: Any, more: int) -> None:
        """This many steps after `planned`."""
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

    def _account(self, more: int) -> None:
        """Every request's account as if the scheduler had planned this many more steps."""
        for one in self.scheduler.running:
            one.num_computed_tokens += more
            one.num_output_placeholders += more
            one.num_in_flight_tokens += more


@contextmanager
def multi_step_scheduling(llm: Any, asked: Any) -> Iterator[bool]:
    """Let vLLM sample in bursts inside, where this engine and what is asked of it allow it; says whether they do."""
    core = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if isinstance(getattr(getattr(scheduler, "schedule", None), "__self__", None), MultiStepScheduler):
        yield True  # within others: what is planned twice would be made twice
        return
    if not (_engine_fits(scheduler) and _request_fits(asked)):
        yield False
        return
    assert scheduler is not None
    with recording(core, asked) as recorded:
        bursts, lookahead = MultiStepScheduler(scheduler, recorded), scheduler.num_lookahead_tokens
        scheduler.schedule, scheduler.update_from_output = bursts.schedule, bursts.update_from_output
        try:
            yield True
        finally:
            scheduler.schedule, scheduler.update_from_output = bursts.plan, bursts.tell
            scheduler.num_lookahead_tokens = lookahead


@contextmanager
def recording(core: Any, asked: Any) -> Iterator[Any]:
    """What records steps of this engine's model runner inside; None where it cannot."""
    worker = getattr(getattr(core, "model_executor", None), "driver_worker", None)
    runner = getattr(worker, "model_runner", None)
    if runner is None:
        yield None
        return
    from patches.vllm_cuda_graph import GraphRunner, serves

    if not serves(runner, asked):
        yield None
        return
    recorded = GraphRunner(runner, RECORDED_STEPS)
    runner.execute_model, runner.sample_tokens = recorded.execute_model, recorded.sample_tokens
    try:
        yield recorded
    finally:
        del runner.execute_model, runner.sample_tokens  # the class's own are there again


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
