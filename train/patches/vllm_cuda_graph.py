"""Decoding steps of vLLM's second model runner as CUDA graphs: one token of all completions is three launches.

vLLM captures the model alone. Its runner launches some 30 small kernels around the model for every token (positions,
cache slots, sampling), which takes longer than the GPU's work for a small model. While the batch stays the same, only
data on the GPU changes, so the same functions of vLLM are captured before and after the model, once per batch.

64 completions of 512 tokens of a 387 M Qwen2 take 0.74 s; 1.94 s without patches, 1.12 s with multi-step scheduling
alone (two H200, vLLM 0.26.0, 2026-11-22; tests/benchmarks/sampling_gpu.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from patches.cuda_graph import capture
from vllm import SamplingParams
from vllm.v1.outputs import AsyncModelRunnerOutput, LogprobsLists
from vllm.v1.worker.gpu.input_batch import combine_sampled_and_draft_tokens, prepare_pos_seq_lens

# Sampling with the defaults of these parameters was tested.
DEFAULT_PARAMETERS = (
    "top_p", "min_p", "min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
    "allowed_token_ids", "bad_words", "logprob_token_ids", "prompt_logprobs", "thinking_token_budget",
    "trace_decode_token_ids",
)  # fmt: skip
# Components of the runner that do more in a decoding step than what is captured; some exist in vLLM 0.31 alone.
COMPONENTS = (
    "rope_state", "prompt_embeds_state", "speculator", "pp_handler", "pcp_manager", "adaptive_verification",
    "fast_prefill", "batch_sharder", "ubatch_runner", "aux_output_connector", "trace_replay_state",
)  # fmt: skip


def is_supported(runner: Any, params: Any) -> bool:
    """Whether the captured functions are all that a decoding step of this runner does on the GPU."""
    default = SamplingParams()
    backends = {group.backend.get_name() for groups in runner.attn_groups for group in groups}
    return (
        runner.cudagraph_manager is not None
        and type(runner.model_state).__name__ == "DefaultModelState"
        and type(getattr(runner, "sampler", None)).__name__ in ("Sampler", "NoneType")
        and all(
            getattr(owner, name, None) is None
            for owner in (runner, runner.model_state, getattr(runner, "sampler", None))
            for name in COMPONENTS
        )
        and not runner.supports_mm_inputs
        and not runner.lora_config
        and not runner.use_dcp
        and runner.parallel_config.world_size == runner.dp_size == 1
        and not runner.parallel_config.enable_eplb
        and backends == {"FLASH_ATTN"}  # other backends plan each step on the CPU
        and all(getattr(params, name, None) == getattr(default, name, None) for name in DEFAULT_PARAMETERS)
        and params.top_k <= 0  # disabled
        and not params.logprobs  # none, or the sampled token's own
    )


@dataclass(frozen=True)
class Step:
    """The captured decoding step of a batch."""

    batch: Any
    shape: Any  # of vLLM's own graph of the model
    before: Callable[[], None]
    after: Callable[[], None]


class GraphRunner:
    """Wraps a model runner: samples `extra_tokens` more tokens per completion for a plan that requests them."""

    def __init__(self, runner: Any, steps: int) -> None:
        self.runner = runner
        self.execute, self.sample = runner.execute_model, runner.sample_tokens
        self.dispatch = runner.cudagraph_manager.dispatch
        # In vLLM 0.31 a graph may be limited to short queries.
        names = inspect.signature(self.dispatch).parameters
        self.longest_query = {"max_query_len": 1} if "max_query_len" in names else {}
        self.extra_tokens, self.state = 0, None  # of the current plan
        self.step: Step | None = None
        dtypes = torch.int64, torch.float32, torch.int64  # tokens, their log-probabilities, their ranks
        shape = steps, runner.max_num_reqs
        self.sampled = [torch.zeros(shape, dtype=dtype, device=runner.device) for dtype in dtypes]
        self.row = torch.zeros(1, dtype=torch.int64, device=runner.device)  # the next row of `sampled`
        self._store([rows[0].clone() for rows in self.sampled])  # loads the kernels, which a capture must not do

    def supports(self, count: int) -> bool:
        """Whether vLLM has a full CUDA graph of the model for a batch of `count` requests."""
        return count > 0 and self._shape(count).cg_mode.name == "FULL"

    def execute_model(self, planned: Any, *arguments: Any, **named: Any) -> Any:
        """Call the runner's method, and keep the plan's `extra_tokens`."""
        output = self.execute(planned, *arguments, **named)
        self.extra_tokens, self.state = getattr(planned, "extra_tokens", 0), self.runner.execute_model_state
        return output

    @torch.inference_mode()
    def sample_tokens(self, grammar: Any) -> Any:
        """Call the runner's method, then sample the extra tokens."""
        extra, state = self.extra_tokens, self.state
        self.extra_tokens, self.state = 0, None
        first = self.sample(grammar)
        if not extra:
            return first
        step = self._step(state)
        self.row.zero_()
        for _ in range(extra):
            step.before()
            self.runner.cudagraph_manager.run_fullgraph(step.shape)
            step.after()
        return MultiTokenOutput(first, [rows[:extra, : step.batch.num_reqs] for rows in self.sampled])

    def _shape(self, count: int) -> Any:
        """vLLM's own graph of the model for one token of each of `count` requests."""
        return self.dispatch(count, count, 1, 0, **self.longest_query)

    def _step(self, state: Any) -> Step:
        """The captured step of this batch; captured again when its requests change."""
        batch, shape = state.input_batch, self._shape(state.input_batch.num_reqs)
        if self.step is None or self.step.batch.req_ids != batch.req_ids:
            # A capture outlives the lengths of this step; FlashAttention's plan reads their maximum on the CPU.
            longest = torch.full_like(batch.seq_lens_cpu_upper_bound, self.runner.max_model_len)
            batch = replace(batch, seq_lens_cpu_upper_bound=longest)
            before = self._capture(lambda: self._before(batch, shape))
            self.step = Step(batch, shape, before, self._capture(lambda: self._after(batch, state.hidden_states)))
        return self.step

    def _capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A replay of `work`; `work` itself where it cannot be captured."""
        return capture(work, self.runner.device, self.runner.cudagraph_manager.pool) or work

    def _before(self, batch: Any, shape: Any) -> None:
        """The GPU work of the runner's prepare_inputs and prepare_attn for a batch that only decodes."""
        runner = self.runner
        buffers, states, tables = runner.input_buffers, runner.req_states, runner.block_tables
        starts, indices = batch.query_start_loc, batch.idx_mapping
        prepare_pos_seq_lens(indices, starts, states.num_computed_tokens.gpu, buffers.positions, buffers.seq_lens)
        combine_sampled_and_draft_tokens(
            buffers.input_ids,
            indices,
            states.last_sampled_tokens,
            starts,
            batch.seq_lens,
            states.prefill_len.gpu,
            states.draft_tokens,
            batch.cu_num_logits,
            batch.num_reqs,
            runner.model_state.num_new_sampled_tokens_per_step,
        )
        slots = tables.compute_slot_mappings(indices, starts, batch.positions, batch.num_tokens_after_padding)
        blocks = tuple(table[: batch.num_reqs_after_padding] for table in tables.input_block_tables)
        runner.model_state.prepare_attn(
            batch, shape.cg_mode, blocks, slots, runner.attn_groups, runner.kv_cache_config
        )

    def _after(self, batch: Any, hidden: torch.Tensor) -> None:
        """The GPU work of the runner's sample_tokens; stores the tokens."""
        output, sampled, rejected = self.runner.sample(hidden, batch, None)
        tokens = output.sampled_token_ids
        self.runner.postprocess_sampled(batch.idx_mapping, tokens, sampled, rejected, batch.query_start_loc)
        logprobs = output.logprobs_tensors
        rows = [] if logprobs is None else [logprobs.logprobs[:, 0], logprobs.selected_token_ranks]
        self._store([tokens.view(-1), *rows])

    def _store(self, rows: list[torch.Tensor]) -> None:
        for target, row in zip(self.sampled, rows, strict=False):
            target[:, : len(row)].index_copy_(0, self.row, row.view(1, -1))
        self.row.add_(1)


class MultiTokenOutput(AsyncModelRunnerOutput):  # type: ignore[misc]  (vLLM is missing where types are checked)
    """Several tokens of each completion, copied from the GPU asynchronously, in vLLM's own form."""

    def __init__(self, first: Any, sampled: list[torch.Tensor]) -> None:
        self.first = first
        self.sampled = [rows.to("cpu", non_blocking=True) for rows in sampled]
        self.ready = torch.cuda.Event(blocking=True)  # waits without keeping a CPU core busy
        self.ready.record()

    def get_output(self) -> Any:
        """The output of a step that samples several tokens, as the scheduler reads it."""
        output = self.first.get_output()
        self.ready.synchronize()
        tokens, logprobs, ranks = (rows.numpy().T for rows in self.sampled)
        tokens = np.concatenate([np.array(output.sampled_token_ids), tokens], 1)
        output.sampled_token_ids = tokens.tolist()
        if output.logprobs is not None:
            logprobs = np.concatenate([output.logprobs.logprobs[:, :1], logprobs], 1)
            ranks = np.concatenate([output.logprobs.sampled_token_ranks[:, None], ranks], 1)
            starts = list(range(0, tokens.size, tokens.shape[1]))
            output.logprobs = LogprobsLists(tokens.reshape(-1, 1), logprobs.reshape(-1, 1), ranks.reshape(-1), starts)
        return output
