# ruff: noqa: S106, S311  (tokens of a vocabulary and reproducible draws: no secrets)
"""A tiny Qwen2 and its tokenizer, made on the spot; its warm-up by next-token loss."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

if TYPE_CHECKING:
    from modeling.policy import Policy
    from run.directory import RunDirectory

IGNORED = -100  # label that the loss leaves out


def make_tokenizer(symbols: list[str]) -> PreTrainedTokenizerFast:
    """One token a symbol; a prompt is symbols with spaces between, a decoded answer has none."""
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
        model_input_names=["input_ids", "attention_mask"],  # not a default: without it TRL gets token_type_ids
    )


def make_model(
    settings: dict[str, Any], tokenizer: PreTrainedTokenizerFast, longest: int, attention: str
) -> Qwen2ForCausalLM:
    """Random weights, float32: bfloat16 would gain nothing at this size and loses the small updates."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=settings["hidden_size"],
        intermediate_size=settings["intermediate_size"],
        num_hidden_layers=settings["layers"],
        num_attention_heads=settings["heads"],
        num_key_value_heads=settings["heads"],
        max_position_embeddings=longest,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def warm_up(policy: Policy, task: Any, settings: dict[str, Any], run: RunDirectory) -> None:
    """Next-token loss on the answers alone (prompt tokens are not learnt)."""
    model, tokenizer = policy.model, policy.tokenizer
    examples = task.warmup_examples(random.Random(settings["seed"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["warmup_learning_rate"])
    model.train()
    for step in range(1, settings["warmup_steps"] + 1):
        batch = collate([next(examples) for _ in range(settings["warmup_batch"])], tokenizer)
        loss = model(**{key: tensor.to(model.device) for key, tensor in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        run.write_event("warmup", step=step, steps=settings["warmup_steps"], loss=loss.item())


def collate(pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Left-padded input_ids, attention_mask and labels, each (batch, longest)."""
    rows = []
    for prompt, answer in pairs:
        asked = tokenizer(prompt)["input_ids"]
        answered = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
        rows.append((asked + answered, [IGNORED] * len(asked) + answered))
    longest = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor([[pad] * (longest - len(ids)) + ids for ids, _ in rows]),
        "attention_mask": torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids, _ in rows]),
        "labels": torch.tensor([[IGNORED] * (longest - len(labels)) + labels for _, labels in rows]),
    }
