"""Sampling by transformers' own model whose decoding step is recorded once as a CUDA graph and replayed.

`generate` of transformers asks Python for every layer of every token: with a small model on a fast GPU that is ten
times what the kernels need, and vLLM's scheduler, Python too, is slower than they are. Here a step of all answers is
one launch: forward pass, choice of the tokens, and all bookkeeping lie in the graph. The weights are the trainer's
own, in the type that they are computed with: nothing has to be handed over, and nothing needs to be corrected.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
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

FOLDED = "folded_sdpa"
ALIGNED = 16  # tokens that the cache's length is a multiple of: SDPA copies a mask of another length
UNKNOWN = ("softcap", "position_bias", "s_aux")  # what some models tell their attention beyond scale and mask
LOOK_EVERY = 16  # steps between two looks at whether all answers have ended: a look waits for the GPU


def grouped_sdpa(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, **more: Any
) -> tuple[torch.Tensor, None]:
    """SDPA of one new token (B, H, 1, D) against the cache (B, K, L, D), K heads for H: keys are read once for all.

    The H/K queries that share a head of keys stand in the place of H/K positions, which see the same keys. Prompts
    (B, H, P, D) are the first that the cache holds, and see nothing behind them.
    """
    if more_than_these := [name for name in UNKNOWN if more.get(name) is not None]:
        raise BadInput(
            f"generation = transformers-graphs: this model's attention has {more_than_these[0]}",
            expected="plain attention",
            hint="--set generation=vllm-colocate, or transformers",
        )
    batch, heads, tokens, width = query.shape
    if tokens > 1:
        key, value = key[:, :, :tokens], value[:, :, :tokens]
        return sdpa_attention_forward(module, query, key, value, mask, **more)
    folded = query.reshape(batch, key.shape[1], -1, width)
    found = scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=more.get("scaling"))
    return found.reshape(batch, 1, heads, -1), None


@dataclass(frozen=True)
class TokenSampler:
    """How the next token is taken from the logits; temperature 0 takes the likeliest."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    ends: tuple[int, ...]
    pad: int

    @classmethod
    def of(cls, asked: Any) -> TokenSampler:
        """What a GenerationConfig says; what a graph cannot do is refused."""
        if (asked.repetition_penalty or 1.0) != 1.0:
            raise BadInput(
                f"repetition_penalty = {asked.repetition_penalty} with generation = transformers-graphs",
                expected="1.0: a graph does not look back at the tokens",
                hint="--set generation=transformers",
            )
        ends = asked.eos_token_id
        ends = () if ends is None else tuple(ends) if isinstance(ends, (list, tuple)) else (int(ends),)
        temperature = (1.0 if asked.temperature is None else asked.temperature) if asked.do_sample else 0.0
        pad = asked.pad_token_id if asked.pad_token_id is not None else ends[0] if ends else 0
        return cls(temperature, asked.top_k or 0, asked.top_p or 1.0, asked.min_p or 0.0, ends, int(pad))

    def take(self, logits: torch.Tensor) -> torch.Tensor:
        """One token a row (B,) of logits (B, V). No call here waits for the GPU, so a graph can hold it."""
        scores: Any = logits.float()
        if not self.temperature:
            return scores.argmax(-1)
        warpers: list[Any] = [TemperatureLogitsWarper(float(self.temperature))] if self.temperature != 1 else []
        warpers += [TopKLogitsWarper(self.top_k)] if self.top_k else []
        warpers += [TopPLogitsWarper(self.top_p)] if self.top_p < 1 else []
        warpers += [MinPLogitsWarper(self.min_p)] if self.min_p else []
        for warp in warpers:
            scores = warp(None, scores)
        # The largest of p / Exp(1) is a sample of p; torch.multinomial would ask the GPU whether p is sound.
        chances = scores.softmax(-1)
        return (chances / torch.empty_like(chances).exponential_(1)).argmax(-1)


class Decoder:
    """Answers of `answer` tokens to `batch` prompts of `prompt` tokens: cache, state, and the recorded step."""

    def __init__(self, model: Any, choice: TokenSampler, *, batch: int, prompt: int, answer: int) -> None:
        self.model, self.choice, self.batch, self.prompt, self.answer = model, choice, batch, prompt, answer
        config, device = model.config.get_text_config(), model.device
        length = -(-(prompt + answer) // ALIGNED) * ALIGNED
        sharing = config.num_attention_heads // (config.num_key_value_heads or config.num_attention_heads)
        self.cache = StaticCache(config=model.config, max_cache_len=length)
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=device)  # the last one of each answer
        self.position = torch.zeros(batch, 1, dtype=torch.long, device=device)  # its place, padding not counted
        self.slot = torch.zeros(1, dtype=torch.long, device=device)  # its place in the cache
        self.count = torch.zeros(1, dtype=torch.long, device=device)  # tokens of each answer so far
        self.unseen = torch.zeros(batch, 1, sharing, length, dtype=model.dtype, device=device)  # 0 seen, -inf not
        self.ended = torch.zeros(batch, dtype=torch.bool, device=device)
        self.answers = torch.zeros(batch, answer, dtype=torch.long, device=device)
        self.ends = torch.tensor(choice.ends, dtype=torch.long, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        base = model.get_base_model() if hasattr(model, "get_base_model") else model  # under PEFT
        takes = inspect.signature(base.forward).parameters
        self.takes_slot = "cache_position" in takes  # transformers 4; from 5 on the cache counts itself
        self.last_alone = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    def serves(self, choice: TokenSampler, *, rows: int, prompt: int, answer: int) -> bool:
        """Whether this one can answer these; fewer rows are filled up, unless that would be most of them."""
        same = (self.choice, self.prompt, self.answer) == (choice, prompt, answer)
        return same and rows <= self.batch <= 2 * rows

    def run(self, prompts: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Answers (B, answer), padded after their end; prompts and mask (B, prompt), padded on the left."""
        if self.graph is None and self.answer > 1 and prompts.device.type == "cuda":
            with torch.random.fork_rng(devices=[prompts.device]):  # the same seed, the same answers
                self._read(prompts, mask)
                self._record()
        self._read(prompts, mask)  # recording stepped on: from the start once more
        step = self._step if self.graph is None else self.graph.replay
        for number in range(1, self.answer):
            if number % LOOK_EVERY == 0 and bool(self.ended.all()):
                break
            step()
        return self.answers

    def _record(self) -> None:
        """One step as a graph, after two that let libraries set up what they set up at first use."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._step()
                self._rewind()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        # Calls of other threads (a loader's, a watcher's) do not end the recording.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self._step()

    def _read(self, prompts: torch.Tensor, mask: torch.Tensor) -> None:
        """Run the prompts through the model, and take each answer's first token."""
        there, length = mask.bool(), self.prompt
        places = (there.long().cumsum(-1) - 1).clamp(min=0)
        everything = torch.ones(length, length, dtype=torch.bool, device=prompts.device)
        # Padding sees itself: a row without a key would be no number, and spread.
        seen = (everything.tril() & there[:, None, None, :]) | torch.eye(length, device=prompts.device).bool()
        self.cache.reset()
        slots = torch.arange(length, device=prompts.device)
        logits = self._forward(prompts, seen, places, slots, **self.last_alone)
        self.position.copy_(places[:, -1:])
        self.unseen.fill_(-torch.inf)
        self.unseen[..., :length].masked_fill_(there[:, None, None, :], 0.0)
        self.ended.zero_()
        self.answers.fill_(self.choice.pad)
        self._rewind()
        self.count.zero_()
        self._take(logits)

    def _rewind(self) -> None:
        """The next step is the one after the prompts."""
        self.slot.fill_(self.prompt)
        self.count.fill_(1)
        for layer in self.cache.layers:
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                layer.cumulative_length.fill_(self.prompt)

    def _step(self) -> None:
        """The token before goes through the model, and the next is taken."""
        self.position.add_(1)
        self.unseen.index_fill_(3, self.slot, 0.0)
        logits = self._forward(self.token, self.unseen, self.position, self.slot)
        self.slot.add_(1)
        self._take(logits)

    def _forward(
        self, tokens: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, slots: torch.Tensor, **more: Any
    ) -> torch.Tensor:
        if self.takes_slot:
            more["cache_position"] = slots
        given = {"input_ids": tokens, "attention_mask": mask, "position_ids": places, "past_key_values": self.cache}
        return self.model(**given, use_cache=True, **more).logits[:, -1]

    def _take(self, logits: torch.Tensor) -> None:
        """Write each answer's next token; an answer that has ended gets padding."""
        token = self.choice.take(logits).masked_fill(self.ended, self.choice.pad)
        self.answers.index_copy_(1, self.count, token[:, None])
        self.token.copy_(token[:, None])
        self.ended |= (token[:, None] == self.ends).any(-1)
        self.count.add_(1)


def make(policy: Any, settings: Mapping[str, Any]) -> CudaGraphGenerate | None:
    """What samples with these settings; none where another does."""
    if settings["generation"] != "transformers-graphs":
        return None
    return CudaGraphGenerate(policy.model, autocast=policy.autocast, longest_prompt=policy.longest_prompt)


def put(sampler: CudaGraphGenerate | None, model: Any) -> None:
    """Let it answer where TRL and looks call `model.generate`."""
    if sampler:
        model.generate = sampler


def take_away(model: Any) -> None:
    """The model's own `generate` again: what stood in its place is no part of what is saved or copied."""
    vars(model).pop("generate", None)


class CudaGraphGenerate:
    """`generate` for TRL and for looks. Make it before TRL's trainer, which wraps the model's forward."""

    def __init__(self, model: Any, *, autocast: str, longest_prompt: int) -> None:
        check_model(model)
        AttentionInterface.register(FOLDED, grouped_sdpa)
        self.longest = longest_prompt
        self.twin, self.pairs = make_sampling_copy(model, getattr(torch, autocast) if autocast else model.dtype)
        self.decoder: Decoder | None = None

    @torch.no_grad()
    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, generation_config: Any, **_: Any
    ) -> torch.Tensor:
        """Prompts (B, P), padded on the left, and the answers after them (B, P + max_new_tokens)."""
        if self.pairs:
            torch._foreach_copy_([twin for twin, _ in self.pairs], [own for _, own in self.pairs])
        choice = TokenSampler.of(generation_config)
        rows, length = input_ids.shape
        prompt, answer = max(length, self.longest, 2), generation_config.max_new_tokens  # one token is a step
        if self.decoder is None or not self.decoder.serves(choice, rows=rows, prompt=prompt, answer=answer):
            self.decoder = None  # its memory goes first
            self.decoder = Decoder(self.twin, choice, batch=rows, prompt=prompt, answer=answer)
        batch = self.decoder.batch
        before = (prompt - length, 0)
        prompts = nn.functional.pad(input_ids, before, value=choice.pad)
        mask = nn.functional.pad(attention_mask, before)
        filled = [*range(rows), *[rows - 1] * (batch - rows)]
        answers = self.decoder.run(prompts[filled], mask[filled])[:rows]
        return torch.cat([input_ids, answers], dim=1)


def make_sampling_copy(model: Any, dtype: torch.dtype) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The model once more in another type, sharing what has it already; (twin's, own) tensors to copy at each use."""
    memo: dict[int, Any] = {}
    pairs = []
    for own in model.parameters():
        if own.dtype == dtype or not own.is_floating_point():
            memo[id(own)] = own
        else:
            memo[id(own)] = nn.Parameter(own.detach().to(dtype), requires_grad=False)
            pairs.append((memo[id(own)], own))
    twin = copy.deepcopy(model, memo)
    twin.eval()
    if twin.is_gradient_checkpointing:
        twin.gradient_checkpointing_disable()
    twin.config._attn_implementation = FOLDED  # noqa: SLF001
    return twin, pairs


def check_model(model: Any) -> None:
    """Refuse what graph_fields cannot see in a configuration."""
    config = model.config.get_text_config()
    why_not = (
        "it has attention sinks" if any(name.endswith(".sinks") for name, _ in model.named_parameters())
        else "its weights are quantised" if getattr(model, "is_quantized", False)
        else "transformers has no SDPA for it" if not getattr(model, "_supports_sdpa", False)
        else ""
    )  # fmt: skip
    if why_not:
        raise BadInput(
            f"generation = transformers-graphs with a model of type {config.model_type}: {why_not}",
            expected="a decoder with full attention in every layer, its weights in 16 or 32 bits",
            hint="--set generation=vllm-colocate, or transformers",
        )
