"""Sampling with transformers' own model, the decoding step captured once as a CUDA graph and replayed.

`generate` of transformers runs Python for every layer of every token: ten times the time of the kernels with a small
model on a fast GPU. Here the forward pass, the sampling and all bookkeeping of a step are one launch. The weights are
the trainer's own in the compute type, so that there is no weight sync, and no importance-sampling correction.
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from checks.cuda_graphs import CACHE_ALIGNMENT
from checks.engines import WITHOUT_GRAPHS
from patches.context import PatchContext
from settings import BadInput
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AttentionInterface,
    MinPLogitsWarper,
    StaticCache,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward

ATTENTION = "grouped_sdpa"
UNSUPPORTED_ATTENTION = ("softcap", "position_bias", "s_aux")  # arguments beyond scale and mask
EOS_CHECK_INTERVAL = 16  # steps; each check whether all completions have ended waits for the GPU


def apply(context: PatchContext) -> None:
    """Make the sampler before TRL's trainer wraps the model's forward pass; install it afterwards."""
    if context.trainer is None:
        context.sampler = CudaGraphGenerate(
            context.model, autocast=context.autocast, longest_prompt=context.longest_prompt
        )
    else:
        context.model.generate = context.sampler


def grouped_sdpa(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, **more: Any
) -> tuple[torch.Tensor, None]:
    """SDPA of one new token (B, H, 1, D) with a cache (B, K, L, D), K key heads for H query heads.

    The H/K queries of a key head take the place of H/K positions, so that the keys are read once. A prompt
    (B, H, P, D) is the first entry of the cache, and attends to nothing after itself.
    """
    if unsupported := [name for name in UNSUPPORTED_ATTENTION if more.get(name) is not None]:
        raise BadInput(
            f"cuda_graph_decoding = true: this model's attention has {unsupported[0]}",
            expected="plain attention",
            hint=f"{WITHOUT_GRAPHS}, and --set use_vllm=true for vLLM",
        )
    batch, heads, tokens, width = query.shape
    if tokens > 1:
        key, value = key[:, :, :tokens], value[:, :, :tokens]
        return sdpa_attention_forward(module, query, key, value, mask, **more)
    grouped = query.reshape(batch, key.shape[1], -1, width)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=more.get("scaling"))
    return output.reshape(batch, 1, heads, -1), None


@dataclass(frozen=True)
class TokenSampler:
    """Samples the next token from the logits; temperature 0 is greedy."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    end_tokens: tuple[int, ...]
    pad_token: int

    @classmethod
    def from_generation_config(cls, config: Any) -> TokenSampler:
        """The sampling of a GenerationConfig; refuses a repetition penalty."""
        if (config.repetition_penalty or 1.0) != 1.0:
            raise BadInput(
                f"repetition_penalty = {config.repetition_penalty} with cuda_graph_decoding = true",
                expected="1.0: the captured step does not read earlier tokens",
                hint=WITHOUT_GRAPHS,
            )
        ends = config.eos_token_id
        ends = () if ends is None else tuple(ends) if isinstance(ends, (list, tuple)) else (int(ends),)
        temperature = (1.0 if config.temperature is None else config.temperature) if config.do_sample else 0.0
        pad = config.pad_token_id if config.pad_token_id is not None else ends[0] if ends else 0
        return cls(temperature, config.top_k or 0, config.top_p or 1.0, config.min_p or 0.0, ends, int(pad))

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        """One token per row (B,) of logits (B, V), without a GPU sync, so that it can be captured."""
        scores: Any = logits.float()
        if not self.temperature:
            return scores.argmax(-1)
        warpers: list[Any] = [TemperatureLogitsWarper(float(self.temperature))] if self.temperature != 1 else []
        warpers += [TopKLogitsWarper(self.top_k)] if self.top_k else []
        warpers += [TopPLogitsWarper(self.top_p)] if self.top_p < 1 else []
        warpers += [MinPLogitsWarper(self.min_p)] if self.min_p else []
        for warp in warpers:
            scores = warp(None, scores)
        # The largest of p / Exp(1) is a sample of p; torch.multinomial would check p on the CPU.
        probabilities = scores.softmax(-1)
        return (probabilities / torch.empty_like(probabilities).exponential_(1)).argmax(-1)


class Decoder:
    """Cache, state and captured step for `batch_size` prompts of `prompt_length` tokens."""

    def __init__(
        self, model: Any, sampler: TokenSampler, *, batch_size: int, prompt_length: int, completion_length: int
    ) -> None:
        self.model, self.sampler, self.batch_size = model, sampler, batch_size
        self.prompt_length, self.completion_length = prompt_length, completion_length
        config, device = model.config.get_text_config(), model.device
        length = -(-(prompt_length + completion_length) // CACHE_ALIGNMENT) * CACHE_ALIGNMENT
        groups = config.num_attention_heads // (config.num_key_value_heads or config.num_attention_heads)
        self.cache = StaticCache(config=model.config, max_cache_len=length)
        self.token = torch.zeros(batch_size, 1, dtype=torch.long, device=device)  # the last one of each completion
        self.position = torch.zeros(batch_size, 1, dtype=torch.long, device=device)  # of the token, without padding
        self.slot = torch.zeros(1, dtype=torch.long, device=device)  # of the token in the cache
        self.count = torch.zeros(1, dtype=torch.long, device=device)  # tokens of each completion so far
        # Additive mask: 0 attended, -inf not.
        self.mask = torch.zeros(batch_size, 1, groups, length, dtype=model.dtype, device=device)
        self.ended = torch.zeros(batch_size, dtype=torch.bool, device=device)
        self.completions = torch.zeros(batch_size, completion_length, dtype=torch.long, device=device)
        self.end_tokens = torch.tensor(sampler.end_tokens, dtype=torch.long, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        base = model.get_base_model() if hasattr(model, "get_base_model") else model  # under PEFT
        parameters = inspect.signature(base.forward).parameters
        self.takes_cache_position = "cache_position" in parameters  # transformers 4; from 5 on the cache counts
        self.last_logits_only = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}

    def supports(self, sampler: TokenSampler, *, rows: int, prompt_length: int, completion_length: int) -> bool:
        """Whether this decoder fits a batch; missing rows are filled, unless they would be the larger part."""
        own = (self.sampler, self.prompt_length, self.completion_length)
        return own == (sampler, prompt_length, completion_length) and rows <= self.batch_size <= 2 * rows

    def run(self, prompts: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Completions (B, completion_length), padded on the right; prompts and mask (B, P), padded on the left."""
        if self.graph is None and self.completion_length > 1 and prompts.device.type == "cuda":
            with torch.random.fork_rng(devices=[prompts.device]):  # the same seed gives the same completions
                self._prefill(prompts, mask)
                self._capture()
        self._prefill(prompts, mask)  # the capture advanced the state
        step = self._step if self.graph is None else self.graph.replay
        for number in range(1, self.completion_length):
            if number % EOS_CHECK_INTERVAL == 0 and bool(self.ended.all()):
                break
            step()
        return self.completions

    def _capture(self) -> None:
        """Capture one step, after two steps in which libraries initialise what they use."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step()
                self._rewind()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        # CUDA calls of other threads (a data loader's, say) do not invalidate the capture.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self._step()

    def _prefill(self, prompts: torch.Tensor, mask: torch.Tensor) -> None:
        """Run the prompts through the model, and sample the first token of each completion."""
        real, length = mask.bool(), self.prompt_length
        positions = (real.long().cumsum(-1) - 1).clamp(min=0)
        causal = torch.ones(length, length, dtype=torch.bool, device=prompts.device).tril()
        # Padding attends to itself: a row without any key would be NaN, and spread.
        attended = (causal & real[:, None, None, :]) | torch.eye(length, device=prompts.device).bool()
        self.cache.reset()
        slots = torch.arange(length, device=prompts.device)
        logits = self._forward(prompts, attended, positions, slots, **self.last_logits_only)
        self.position.copy_(positions[:, -1:])
        self.mask.fill_(-torch.inf)
        self.mask[..., :length].masked_fill_(real[:, None, None, :], 0.0)
        self.ended.zero_()
        self.completions.fill_(self.sampler.pad_token)
        self._rewind()
        self.count.zero_()
        self._sample(logits)

    def _rewind(self) -> None:
        """Set the state to the first step after the prompts."""
        self.slot.fill_(self.prompt_length)
        self.count.fill_(1)
        for layer in self.cache.layers:
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                layer.cumulative_length.fill_(self.prompt_length)
            if hasattr(layer, "cumulative_length_int"):  # a sliding window compares it with its size
                layer.cumulative_length_int = self.prompt_length

    def _step(self) -> None:
        """Run the last token through the model, and sample the next one."""
        self.position.add_(1)
        self.mask.index_fill_(3, self.slot, 0.0)
        logits = self._forward(self.token, self.mask, self.position, self.slot)
        self.slot.add_(1)
        self._sample(logits)

    def _forward(
        self, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, **more: Any
    ) -> torch.Tensor:
        if self.takes_cache_position:
            more["cache_position"] = slots
        inputs = {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
        return self.model(**inputs, past_key_values=self.cache, use_cache=True, **more).logits[:, -1]

    def _sample(self, logits: torch.Tensor) -> None:
        """Store each completion's next token; padding after its end."""
        token = self.sampler.sample(logits).masked_fill(self.ended, self.sampler.pad_token)
        self.completions.index_copy_(1, self.count, token[:, None])
        self.token.copy_(token[:, None])
        self.ended |= (token[:, None] == self.end_tokens).any(-1)
        self.count.add_(1)


class CudaGraphGenerate:
    """`generate` for TRL and for the evaluation. Construct it before TRL's trainer, which wraps `forward`."""

    def __init__(self, model: Any, *, autocast: str, longest_prompt: int) -> None:
        check_model(model)
        AttentionInterface.register(ATTENTION, grouped_sdpa)
        self.longest_prompt = longest_prompt
        self.copy, self.pairs = make_sampling_copy(model, getattr(torch, autocast) if autocast else model.dtype)
        self.decoder: Decoder | None = None

    @torch.no_grad()
    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, generation_config: Any, **_: Any
    ) -> torch.Tensor:
        """Prompts (B, P), padded on the left, followed by their completions: (B, P + max_new_tokens)."""
        if self.pairs:
            torch._foreach_copy_([copied for copied, _ in self.pairs], [own for _, own in self.pairs])
        sampler = TokenSampler.from_generation_config(generation_config)
        rows, length = input_ids.shape
        lengths = {
            "prompt_length": max(length, self.longest_prompt, 2),  # a single token would be taken for a step
            "completion_length": generation_config.max_new_tokens,
        }
        if self.decoder is None or not self.decoder.supports(sampler, rows=rows, **lengths):
            self.decoder = None  # frees its memory first
            self.decoder = Decoder(self.copy, sampler, batch_size=rows, **lengths)
        padding = (lengths["prompt_length"] - length, 0)
        prompts = nn.functional.pad(input_ids, padding, value=sampler.pad_token)
        mask = nn.functional.pad(attention_mask, padding)
        filled = [*range(rows), *[rows - 1] * (self.decoder.batch_size - rows)]
        completions = self.decoder.run(prompts[filled], mask[filled])[:rows]
        return torch.cat([input_ids, completions], dim=1)


def make_sampling_copy(model: Any, dtype: torch.dtype) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    """A copy of the model in another type that shares tensors of that type; (copied, own) tensors to update."""
    memo: dict[int, Any] = {}
    pairs = []
    for own in model.parameters():
        if own.dtype == dtype or not own.is_floating_point():
            memo[id(own)] = own
        else:
            memo[id(own)] = nn.Parameter(own.detach().to(dtype), requires_grad=False)
            pairs.append((memo[id(own)], own))
    copied = copy.deepcopy(model, memo)
    copied.eval()
    if copied.is_gradient_checkpointing:
        copied.gradient_checkpointing_disable()
    copied.config._attn_implementation = ATTENTION  # noqa: SLF001
    return copied, pairs


def check_model(model: Any) -> None:
    """Refuse a model by properties that its configuration does not show (checks.cuda_graphs reads that)."""
    config = model.config.get_text_config()
    obstacle = (
        "it has attention sinks" if any(name.endswith(".sinks") for name, _ in model.named_parameters())
        else "its weights are quantized" if getattr(model, "is_quantized", False)
        else "transformers has no SDPA for it" if not getattr(model, "_supports_sdpa", False)
        else ""
    )  # fmt: skip
    if obstacle:
        raise BadInput(
            f"cuda_graph_decoding = true with a model of type {config.model_type}: {obstacle}",
            expected="a decoder with full attention in every layer, its weights in 16 or 32 bits",
            hint=f"{WITHOUT_GRAPHS}, and --set use_vllm=true for vLLM",
        )
