"""A decoding step of vLLM's second model runner, recorded: each token of all answers is three launches.

vLLM records the model alone. What its runner does around it (positions, places in the cache, the choice of tokens)
are some 30 small kernels that Python launches one by one, again for each token, and for a small model that takes
longer than the GPU works. While a batch stays the same nothing of it changes but what lies on the GPU, so the same
functions of vLLM's are recorded before and after the model, once for each batch, and replayed.

64 answers of 512 tokens of a Qwen2 of 387 M parameters take 0.74 s for 1.94, and 1.12 in bursts alone (two H200s at
once, driver 580.159.04, vLLM 0.26.0, 2026-11-22; benchmarks/sampling_gpu.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from patches.cuda_graph import capture
from vllm import SamplingParams
from vllm.v1.outputs import AsyncModelRunnerOutput, LogprobsLists
from vllm.v1.worker.gpu.input_batch import combine_sampled_and_draft_tokens, prepare_pos_seq_lens

# As vLLM has them when nobody asks for anything else: how tokens are chosen then was tried.
USUAL = (
    "top_p", "min_p", "min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
    "allowed_token_ids", "bad_words", "logprob_token_ids", "prompt_logprobs",
)  # fmt: skip


def serves(runner: Any, asked: Any) -> bool:
    """Whether a step of this runner is what is recorded here, and nothing but the GPU has a say in its tokens."""
    usual = SamplingParams()
    backends = {group.backend.get_name() for groups in runner.attn_groups for group in groups}
    return (
        runner.cudagraph_manager is not None
        and type(runner.model_state).__name__ == "DefaultModelState"
        and runner.model_state.rope_state is None
        and not runner.supports_mm_inputs
        and not runner.lora_config
        and runner.speculator is None
        and runner.pp_handler is None
        and runner.pcp_manager is None
        and not runner.use_dcp
        and runner.parallel_config.world_size == runner.dp_size == 1
        and not runner.parallel_config.enable_eplb
        and backends == {"FLASH_ATTN"}  # others ask the CPU for each step
        and all(getattr(asked, name) == getattr(usual, name) for name in USUAL)
        and asked.top_k <= 0  # all
        and not asked.logprobs  # none, or the token's own
    )


@dataclass(frozen=True)
class Step:
    """One token of each answer of a batch."""

    batch: Any
    shape: Any  # of vLLM's own recording
    before: Callable[[], None]
    after: Callable[[], None]


class GraphRunner:
    """Stands before a model runner: of a plan with `further` it makes that many more tokens of each answer."""

    def __init__(self, runner: Any, steps: int) -> None:
        self.runner = runner
        self.execute, self.sample = runner.execute_model, runner.sample_tokens
        self.further, self.state = 0, None  # of the plan that is executed
        self.step: Step | None = None
        kinds = torch.int64, torch.float32, torch.int64  # tokens, their log-probabilities, their ranks
        self.made = [torch.zeros(steps, runner.max_num_reqs, dtype=kind, device=runner.device) for kind in kinds]
        self.at = torch.zeros(1, dtype=torch.int64, device=runner.device)  # the row that comes next
        self._keep([rows[0].clone() for rows in self.made])  # loads the kernels, which must not happen in a recording

    def serves(self, count: int) -> bool:
        """Whether vLLM holds a recorded model for so many answers."""
        return count > 0 and self._shape(count).cg_mode.name == "FULL"

    def execute_model(self, planned: Any, *arguments: Any, **named: Any) -> Any:
        """As the runner's own."""
        found = self.execute(planned, *arguments, **named)
        self.further, self.state = getattr(planned, "further", 0), self.runner.execute_model_state
        return found

    @torch.inference_mode()
    def sample_tokens(self, grammar: Any) -> Any:
        """As the runner's own, and then the further tokens."""
        further, state = self.further, self.state
        self.further, self.state = 0, None
        first = self.sample(grammar)
        if not further:
            return first
        step = self._step(state)
        self.at.zero_()
        for _ in range(further):
            step.before()
            self.runner.cudagraph_manager.run_fullgraph(step.shape)
            step.after()
        return Tokens(first, [rows[:further, : step.batch.num_reqs] for rows in self.made])

    def _shape(self, count: int) -> Any:
        return self.runner.cudagraph_manager.dispatch(count, count, 1, 0)

    def _step(self, state: Any) -> Step:
        """The recording for this batch: the last one while the same requests are in it."""
        batch, shape = state.input_batch, self._shape(state.input_batch.num_reqs)
        if self.step is None or self.step.batch.req_ids != batch.req_ids:
            # A recording outlives the lengths of this step; FlashAttention's plan takes a limit of them from the CPU.
            longest = torch.full_like(batch.seq_lens_cpu_upper_bound, self.runner.max_model_len)
            batch = replace(batch, seq_lens_cpu_upper_bound=longest)
            before = self._record(lambda: self._before(batch, shape))
            self.step = Step(batch, shape, before, self._record(lambda: self._after(batch, state.hidden_states)))
        return self.step

    def _record(self, work: Callable[[], None]) -> Callable[[], None]:
        """`work`, to be replayed. What cannot be recorded is launched each time: it does the same."""
        return capture(work, self.runner.device, self.runner.cudagraph_manager.pool) or work

    def _before(self, batch: Any, shape: Any) -> None:
        """What the runner's prepare_inputs and prepare_attn do on the GPU for a batch that only decodes."""
        runner = self.runner
        buffers, states, tables = runner.input_buffers, runner.req_states, runner.block_tables
        starts, which = batch.query_start_loc, batch.idx_mapping
        prepare_pos_seq_lens(which, starts, states.num_computed_tokens.gpu, buffers.positions, buffers.seq_lens)
        combine_sampled_and_draft_tokens(
            buffers.input_ids,
            which,
            states.last_sampled_tokens,
            starts,
            batch.seq_lens,
            states.prefill_len.gpu,
            states.draft_tokens,
            batch.cu_num_logits,
            batch.num_reqs,
            runner.model_state.num_new_sampled_tokens_per_step,
        )
        places = tables.compute_slot_mappings(which, starts, batch.positions, batch.num_tokens_after_padding)
        blocks = tuple(table[: batch.num_reqs_after_padding] for table in tables.input_block_tables)
        runner.model_state.prepare_attn(
            batch, shape.cg_mode, blocks, places, runner.attn_groups, runner.kv_cache_config
        )

    def _after(self, batch: Any, hidden: torch.Tensor) -> None:
        """What the runner's sample_tokens does on the GPU; the tokens are kept."""
        found, sampled, rejected = self.runner.sample(hidden, batch, None)
        tokens = found.sampled_token_ids
        self.runner.postprocess_sampled(batch.idx_mapping, tokens, sampled, rejected, batch.query_start_loc)
        numbers = found.logprobs_tensors
        said = [] if numbers is None else [numbers.logprobs[:, 0], numbers.selected_token_ranks]
        self._keep([tokens.view(-1), *said])

    def _keep(self, rows: list[torch.Tensor]) -> None:
        for kept, row in zip(self.made, rows, strict=False):
            kept[:, : len(row)].index_copy_(0, self.at, row.view(1, -1))
        self.at.add_(1)


class Tokens(AsyncModelRunnerOutput):  # type: ignore[misc]  (vLLM is not there where types are checked)
    """Several tokens of each answer on their way from the GPU, in vLLM's own form."""

    def __init__(self, first: Any, made: list[torch.Tensor]) -> None:
        self.first = first
        self.made = [rows.to("cpu", non_blocking=True) for rows in made]
        self.ready = torch.cuda.Event(blocking=True)  # no processor is kept busy by waiting
        self.ready.record()

    def get_output(self) -> Any:
        """As the scheduler takes it from a step that makes several tokens."""
        output = self.first.get_output()
        self.ready.synchronize()
        tokens, numbers, ranks = (rows.numpy().T for rows in self.made)
        own = np.array(output.sampled_token_ids)
        tokens = np.concatenate([own, tokens], 1)
        output.sampled_token_ids = tokens.tolist()
        if output.logprobs is not None:
            numbers = np.concatenate([output.logprobs.logprobs[:, :1], numbers], 1)
            ranks = np.concatenate([output.logprobs.sampled_token_ranks[:, None], ranks], 1)
            starts = list(range(0, tokens.size, tokens.shape[1]))
            output.logprobs = LogprobsLists(tokens.reshape(-1, 1), numbers.reshape(-1, 1), ranks.reshape(-1), starts)
        return output
