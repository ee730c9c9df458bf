# ruff: noqa: S311  (reproducible draws, no secrets)
"""Warm-up of the tiny model by next-token loss: GRPO needs some correct completions to compare."""

from __future__ import annotations

import random
from typing import Any

import torch
from modeling.policy import Policy
from run.directory import RunDirectory
from transformers import PreTrainedTokenizerFast

IGNORED = -100  # label without a loss


def warm_up(policy: Policy, task: Any, settings: dict[str, Any], run: RunDirectory) -> None:
    """Train on the completions of the task's examples; prompt tokens have no loss."""
    model, tokenizer = policy.model, policy.tokenizer
    examples = task.warmup_examples(random.Random(settings["seed"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["sft_learning_rate"])
    model.train()
    for step in range(1, settings["sft_steps"] + 1):
        batch = collate([next(examples) for _ in range(settings["sft_batch_size"])], tokenizer)
        loss = model(**{key: tensor.to(model.device) for key, tensor in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        run.write_event("warmup", step=step, steps=settings["sft_steps"], loss=loss.item())


def collate(pairs: list[tuple[str, str]], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Left-padded input_ids, attention_mask and labels, each (batch, longest)."""
    rows = []
    for prompt, completion in pairs:
        prompt_ids = tokenizer(prompt)["input_ids"]
        completion_ids = [*tokenizer(completion)["input_ids"], tokenizer.eos_token_id]
        rows.append((prompt_ids + completion_ids, [IGNORED] * len(prompt_ids) + completion_ids))
    longest = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor([[pad] * (longest - len(ids)) + ids for ids, _ in rows]),
        "attention_mask": torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids, _ in rows]),
        "labels": torch.tensor([[IGNORED] * (longest - len(labels)) + labels for _, labels in rows]),
    }
