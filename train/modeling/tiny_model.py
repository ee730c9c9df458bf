# ruff: noqa: S106  (tokens of a vocabulary, no secrets)
"""A tiny Qwen2 with random weights, and its tokenizer."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM


def make_tokenizer(symbols: list[str]) -> PreTrainedTokenizerFast:
    """One token per symbol. Prompts have spaces between symbols, decoded completions have none."""
    vocabulary = {symbol: number for number, symbol in enumerate(["<pad>", "<eos>", "<unk>", *symbols])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],  # without it TRL would get token_type_ids
    )


def make_model(
    settings: dict[str, Any], tokenizer: PreTrainedTokenizerFast, max_length: int, attention: str
) -> Qwen2ForCausalLM:
    """A model in float32: bfloat16 would lose small updates and gain no speed at this size."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings["hidden_size"],
        intermediate_size=settings["intermediate_size"],
        num_hidden_layers=settings["layers"],
        num_attention_heads=settings["heads"],
        num_key_value_heads=settings["heads"],
        max_position_embeddings=max_length,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention)
