"""Training passes that compute each distinct prompt once, though a step has several completions of it.

A micro-batch of 64 completions of 512 tokens, 8 for each prompt of 256 tokens, has 49,152 tokens with its prompts,
and 34,816 with each prompt once. The tokens are packed into one row without padding: the distinct prompts, then the
completions. All layers but attention compute each token on its own. In attention a prompt attends to itself, and a
completion to its prompt and itself. In a causal model no token depends on later ones, so nothing else changes.
Completions of different lengths gain even where no prompt is shared.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from patches.context import PatchContext
from patches.unpadded import has_only_rows, is_supported
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# Dense decoders in which attention alone mixes tokens; each is tested.
MODEL_TYPES = ("llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3")
LEAST_SAVING = 0.1  # of the tokens; below it the passes stay as they are


def apply(context: PatchContext) -> bool:
    """Patch the trained model and, where TRL has one, the reference model; False where they do not support it."""
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:  # from torch 2.10
        return False
    return share_prompts(context.trainer)


def share_prompts(trainer: Any) -> bool:
    """Let the decoders of a trainer compute each distinct prompt of a micro-batch once."""
    models = [trainer.model, getattr(trainer, "ref_model", None)]
    decoders = [decoder for model in models if (decoder := _supported_decoder(model)) is not None]
    if not decoders:
        return False
    width = _PromptWidth()
    trainer._get_per_token_logps_and_entropies = width.record(trainer._get_per_token_logps_and_entropies)  # noqa: SLF001
    for decoder in decoders:
        decoder.forward = _pack_rows(decoder, width)
    return True


def _supported_decoder(model: Any) -> Any:
    """The decoder of a model of transformers, below an adapter; None where the patch does not support it."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder = getattr(base, "base_model", None)
    if decoder is None or not is_supported(base.config, decoder) or base.config.model_type not in MODEL_TYPES:
        return None
    kinds = getattr(base.config, "layer_types", None)
    window = getattr(base.config, "sliding_window", None) if kinds is None else set(kinds) != {"full_attention"}
    return None if window else decoder


class _PromptWidth:
    """The columns of the prompts in the rows of TRL's scoring or training pass; 0 outside of them."""

    columns = 0

    def record(self, score: Callable[..., Any]) -> Callable[..., Any]:
        """TRL's method, with the width set while it runs."""

        @functools.wraps(score)
        def recorded(model: Any, ids: Any, mask: Any, logits_to_keep: int, *more: Any, **named: Any) -> Any:
            self.columns = ids.shape[1] - logits_to_keep
            try:
                return score(model, ids, mask, logits_to_keep, *more, **named)
            finally:
                self.columns = 0

        return recorded


def _pack_rows(decoder: Any, width: _PromptWidth) -> Callable[..., Any]:
    """The decoder's forward pass, packed where that saves tokens."""
    forward, layers = decoder.forward, decoder.config.num_hidden_layers

    @functools.wraps(forward)
    def packed_forward(*arguments: Any, **named: Any) -> Any:
        packed = None
        if width.columns and not arguments and has_only_rows(named):
            packed = PackedRows.make(named["input_ids"], named["attention_mask"], width.columns)
        if packed is None:
            return forward(*arguments, **named)
        # transformers detects a mask of ones; without any mask it would build one for packed sequences.
        changed = {"input_ids": packed.ids, "position_ids": packed.positions}
        with _packed_attention(packed):
            output = forward(**named | changed | {"attention_mask": torch.ones_like(packed.ids)})
        if packed.calls != layers:
            raise RuntimeError(f"{packed.calls} of {layers} layers used the attention of packed rows")
        output.last_hidden_state = packed.unpack(output.last_hidden_state)
        return output

    return packed_forward


@dataclass
class PackedRows:
    """Rows as sequences of one packed row: their distinct prompts, then their completions."""

    ids: torch.Tensor  # (1, N)
    positions: torch.Tensor  # (1, N), of each token in its row
    rows: torch.Tensor  # (B, W): the packed token at each position of the rows; arbitrary in the padding
    keys: torch.Tensor  # (K): the packed tokens that each sequence attends to, one sequence after the other
    query_starts: torch.Tensor  # (sequences + 1)
    key_starts: torch.Tensor  # (sequences + 1)
    longest_query: int
    longest_key: int
    calls: int = 0  # of the attention

    @classmethod
    def make(cls, ids: torch.Tensor, mask: torch.Tensor, width: int) -> PackedRows | None:
        """Pack rows whose first `width` columns are a prompt, padded on its left; the rest is padded on its right.

        None for other rows, and where this saves less than LEAST_SAVING of the tokens.
        """
        tokens, real = ids.cpu().numpy(), mask.cpu().numpy().astype(bool)
        prompts, completions = real[:, :width].sum(1), real[:, width:].sum(1)
        lengths = prompts + completions
        offsets = np.arange(tokens.shape[1]) - (width - prompts)[:, None]  # of each column in its row
        if not prompts.all() or ((offsets >= 0) & (offsets < lengths[:, None]) != real).any():
            return None
        padded = np.where(real[:, :width], tokens[:, :width], -1)
        _, first, group = np.unique(padded, axis=0, return_index=True, return_inverse=True)
        sequences = np.concatenate([prompts[first], completions])
        starts = np.concatenate([[0], sequences.cumsum()])
        if starts[-1] > (1 - LEAST_SAVING) * len(tokens) * lengths.max():
            return None
        offsets = offsets.clip(0, lengths[:, None] - 1)
        prompt_starts = starts[group.reshape(-1)][:, None]
        completion_starts = starts[len(first) : -1, None]
        in_prompt = offsets < prompts[:, None]
        rows = offsets + np.where(in_prompt, prompt_starts, completion_starts - prompts[:, None])
        packed, positions = np.zeros((2, starts[-1]), np.int64)
        packed[rows[real]], positions[rows[real]] = tokens[real], offsets[real]
        keys = [rows[row][real[row]] for row in range(len(rows))]
        keys = [keys[row][: prompts[row]] for row in first] + keys
        key_lengths = np.array([len(sequence) for sequence in keys])

        def put(numbers: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.from_numpy(numbers).to(ids.device, dtype)

        return cls(
            put(packed)[None],
            put(positions)[None],
            put(rows),
            put(np.concatenate(keys)),
            put(starts, torch.int32),
            put(np.concatenate([[0], key_lengths.cumsum()]), torch.int32),
            int(sequences.max()),
            int(key_lengths.max()),
        )

    def unpack(self, hidden: torch.Tensor) -> torch.Tensor:
        """(1, N, H) -> (B, W, H)."""
        return hidden[0].index_select(0, self.rows.flatten()).unflatten(0, self.rows.shape)

    def attend(
        self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **named: Any
    ) -> tuple[torch.Tensor, None]:
        """transformers' attention function: (1, heads, N, D) -> (1, N, heads, D)."""
        if mask is not None or named.get("dropout") or named.get("sliding_window"):
            raise RuntimeError(f"{type(module).__name__} does not only use causal attention")
        self.calls += 1
        device = query.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype
        query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
        # Not in 16 bits: the gradient of a prompt's key is the sum over the completions.
        exact = torch.promote_types(key.dtype, torch.float32)
        key, value = (states.to(exact).index_select(0, self.keys).to(dtype) for states in (key, value))
        return attention_of_sequences(query.to(dtype), key, value, self, named.get("scaling"))[None], None


def attention_of_sequences(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packed: PackedRows, scale: float | None
) -> torch.Tensor:
    """FlashAttention, causal from the last query and the last key of each sequence; (N, heads, D)."""
    from torch.nn.attention.varlen import varlen_attn

    grouped = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}
    starts = packed.query_starts, packed.key_starts, packed.longest_query, packed.longest_key
    return varlen_attn(query, key, value, *starts, scale=scale, window_size=(-1, 0), **grouped)


@contextmanager
def _packed_attention(packed: PackedRows) -> Iterator[None]:
    """Replace transformers' scaled_dot_product_attention within."""
    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]
    ALL_ATTENTION_FUNCTIONS["sdpa"] = packed.attend
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = plain
