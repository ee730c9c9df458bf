"""Multi-step scheduling: several decoding steps of vLLM from one plan of its scheduler.

While every running request only gets its next token, each plan is the previous one, one token further on. vLLM makes
it again for each token, request by request in Python, which limits the sampling rate of a small model. Here the
scheduler plans once, and gets the output once, for several tokens of all requests.

Where `vllm_cuda_graph.is_supported`, the model runner samples them in one call. Elsewhere it gets the same steps as
without the patch. The tokens are the same both ways (tests/benchmarks/sampling_gpu.py measures the times).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from patches.context import PatchContext

# How often a plan is repeated. A completion that stops earlier is sampled to the end of the plan, and cut. With CUDA
# graphs two plans are in flight: the GPU works on one while the tokens of the other are processed.
STEPS, GRAPH_STEPS = 16, 7

# Attributes of vLLM's scheduler and of its plans in the releases that the patch is tested with; an attribute of one
# release alone is skipped in the others (0.26: `skipped_waiting`; 0.31: the next two, and the last of ONE_TIME).
WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
COMPONENTS = ("connector", "ec_connector", "perf_metrics", "aux_output_connector")  # which count or change plans
ONE_TIME = ("new_block_ids_to_zero", "kv_cache_block_copies", "block_table_updates")  # not part of a repeated plan


def apply(context: PatchContext) -> None:
    """Enable multi-step scheduling in `vllm_generate` and in the evaluation."""
    context.multi_step = True


class MultiStepScheduler:
    """Wraps a vLLM scheduler: repeats its plan, and passes the outputs of the repeated steps to it at once.

    vLLM plans a step while the previous one runs, and its limits allow one unreported token. So the last of several
    single steps is reported on its own; and while a multi-token plan is in flight, a step is planned only where
    every running request gets another token.
    """

    def __init__(self, scheduler: Any, graph_runner: Any = None) -> None:
        self.scheduler, self.graph_runner = scheduler, graph_runner
        self.plan, self.update = scheduler.schedule, scheduler.update_from_output
        self.queued: deque[Any] = deque()  # repeated steps that `schedule` has not returned yet
        self.in_flight: deque[Any] = deque()  # steps without an output yet, except the last one
        self.outputs: list[Any] = []  # not passed to the scheduler yet
        self.graph_plans: deque[Any] = deque()  # multi-token plans in flight, each one call of the runner

    def schedule(self, *arguments: Any) -> Any:
        """Return the next step: a repeated one, or a plan of the scheduler that may be repeated."""
        if self.queued:
            return self.queued.popleft()
        if self.graph_plans and not self._can_continue():
            return type(self.graph_plans[0]).make_empty()  # vLLM waits for the plans in flight
        uses_graph = self.graph_runner is not None and self.graph_runner.supports(len(self.scheduler.running))
        steps = GRAPH_STEPS if uses_graph else STEPS
        lookahead = self.scheduler.num_lookahead_tokens = steps if self._has_free_blocks() else 0
        planned = self.plan(*arguments)
        extra = min(lookahead, self._repeat_limit(planned))
        if extra > 1:
            self._advance(extra)
            if uses_graph:
                planned.extra_tokens = extra  # per request; read by the runner
                self.graph_plans.append(planned)
            else:
                self._repeat(planned, extra)
        return planned

    def update_from_output(self, planned: Any, output: Any) -> Any:
        """Return the scheduler's result for this output; empty within repeated steps."""
        if self.graph_plans and planned is self.graph_plans[0]:
            self.graph_plans.popleft()
            return self._update(planned, output, 1 + planned.extra_tokens)
        if not self.in_flight or planned is not self.in_flight[0]:
            return self.update(planned, output)
        self.in_flight.popleft()
        self.outputs.append(output)
        if self.in_flight:
            return {}
        rows = zip(*(step.sampled_token_ids for step in self.outputs), strict=True)
        joined = replace(output, sampled_token_ids=[list(chain(*row)) for row in rows])
        count, self.outputs = len(self.outputs), []
        return self._update(planned, joined, count)

    def _update(self, planned: Any, output: Any, count: int) -> Any:
        counts = dict.fromkeys(planned.num_scheduled_tokens, count)
        return self.update(replace(planned, num_scheduled_tokens=counts), output)

    def _has_free_blocks(self) -> bool:
        """Whether each running request can get the blocks of all repeated steps, so that none is preempted."""
        manager = self.scheduler.kv_cache_manager
        groups = manager.coordinator.single_type_managers
        per_request = sum(STEPS // group.block_size + 2 for group in groups)
        return bool(manager.block_pool.get_num_free_blocks() > per_request * len(self.scheduler.running))

    def _can_continue(self) -> bool:
        """Whether every running request only gets more tokens after those in flight."""
        scheduler = self.scheduler
        waits = not scheduler.running or self._has_waiting()
        return not waits and self._has_free_blocks() and self._remaining_tokens() > 0

    def _has_waiting(self) -> bool:
        """Whether a request waits to be scheduled."""
        return any(getattr(self.scheduler, name, ()) for name in WAITING_QUEUES)

    def _remaining_tokens(self) -> int:
        """Tokens that every running request may still get, beyond the planned ones."""
        longest = self.scheduler.max_model_len
        return min(
            min(request.max_tokens, longest - request.num_prompt_tokens)
            - request.num_output_tokens
            - request.num_output_placeholders
            for request in self.scheduler.running
        )

    def _repeat_limit(self, planned: Any) -> int:
        """How often a plan can be repeated; 0 unless no request waits and every running one decodes."""
        scheduler = self.scheduler
        running, scheduled = scheduler.running, planned.num_scheduled_tokens
        if (
            not running
            or self._has_waiting()
            or planned.scheduled_new_reqs
            or not len(running) == len(scheduled) == planned.total_num_scheduled_tokens
            or any(request.is_prefill_chunk or request.has_encoder_inputs for request in running)
        ):
            return 0
        return self._remaining_tokens()

    def _repeat(self, planned: Any, count: int) -> None:
        """Queue `count` steps after `planned`."""
        first = planned.scheduled_cached_reqs
        none: list[None] = [None] * len(first.req_ids)
        removed = {name: None for name in ONE_TIME if hasattr(planned, name)}
        for offset in range(1, count + 1):
            cached = replace(
                first,
                resumed_req_ids=set(),
                new_block_ids=none,
                num_computed_tokens=[tokens + offset for tokens in first.num_computed_tokens],
                num_output_tokens=[tokens + offset for tokens in first.num_output_tokens],
            )
            self.queued.append(
                replace(
                    planned,
                    scheduled_cached_reqs=cached,
                    finished_req_ids=set(),
                    preempted_req_ids=set(),
                    **removed,
                )
            )
        self.in_flight.extend([planned, *self.queued][:-1])

    def _advance(self, count: int) -> None:
        """Update the counters of every request as if the scheduler had planned `count` more steps."""
        for request in self.scheduler.running:
            request.num_computed_tokens += count
            request.num_output_placeholders += count
            request.num_in_flight_tokens += count


@contextmanager
def multi_step_scheduling(llm: Any, params: Any) -> Iterator[bool]:
    """Enable multi-step scheduling where engine and sampling parameters allow it; yields whether they do."""
    core = getattr(getattr(getattr(llm, "llm_engine", None), "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if isinstance(getattr(getattr(scheduler, "schedule", None), "__self__", None), MultiStepScheduler):
        yield True  # a nested call must not repeat the repeated steps
        return
    if not (_engine_supported(scheduler) and _params_supported(params)):
        yield False
        return
    assert scheduler is not None
    with graph_decoding(core, params) as graph_runner:
        wrapper, lookahead = MultiStepScheduler(scheduler, graph_runner), scheduler.num_lookahead_tokens
        scheduler.schedule, scheduler.update_from_output = wrapper.schedule, wrapper.update_from_output
        try:
            yield True
        finally:
            scheduler.schedule, scheduler.update_from_output = wrapper.plan, wrapper.update
            scheduler.num_lookahead_tokens = lookahead


@contextmanager
def graph_decoding(core: Any, params: Any) -> Iterator[Any]:
    """Replay decoding steps of the engine's model runner from CUDA graphs within; yields None where unsupported."""
    worker = getattr(getattr(core, "model_executor", None), "driver_worker", None)
    runner = getattr(worker, "model_runner", None)
    if runner is None:
        yield None
        return
    from patches.vllm_cuda_graph import GraphRunner, is_supported

    if not is_supported(runner, params):
        yield None
        return
    graph_runner = GraphRunner(runner, GRAPH_STEPS)
    runner.execute_model, runner.sample_tokens = graph_runner.execute_model, graph_runner.sample_tokens
    try:
        yield graph_runner
    finally:
        del runner.execute_model, runner.sample_tokens  # restores the methods of the class


def _engine_supported(scheduler: Any) -> bool:
    """Whether the scheduler plans ahead for vLLM's second model runner, and no component counts its plans."""
    return (
        scheduler is not None
        and type(scheduler).__name__ == "AsyncScheduler"
        and scheduler.use_v2_model_runner
        and not scheduler.use_pp
        and not scheduler.num_lookahead_tokens  # speculative decoding
        and not scheduler.defer_block_free
        and not scheduler.need_mamba_block_aligned_split
        and all(getattr(scheduler, name, None) is None for name in COMPONENTS)
        and not getattr(scheduler, "return_sampling_mask", False)
        and not scheduler.log_stats
    )


def _params_supported(params: Any) -> bool:
    """Whether only a stop token or the length ends a completion, and only the GPU chooses its tokens."""
    return not (params.stop or params.structured_outputs or params.n != 1)
