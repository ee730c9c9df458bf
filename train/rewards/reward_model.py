"""A reward model: a sequence classification model of one label that scores prompts with completions, as TRL does."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any


class RewardModel:
    """A model that is loaded before the training. Its tokenizer is its own, or `tokenizer`."""

    def __init__(self, name: str, tokenizer: str, settings: dict[str, Any]) -> None:
        self.name, self.tokenizer_name, self.settings = name, tokenizer or name, settings
        self.model: Any = None
        self.tokenizer: Any = None
        self.autocast = ""

    def use(self, model: Any, tokenizer: Any, autocast: str) -> None:
        """Score with this model; `autocast` is the data type of its computation, empty for that of its weights."""
        self.model, self.tokenizer, self.autocast = model, tokenizer, autocast

    def compute(self, rows: Sequence[dict[str, Any]], texts: Sequence[str], passed: dict[str, Any]) -> list[float]:
        """The score of each prompt with its completion; `passed` are the arguments from TRL."""
        import torch

        prompts = passed.get("prompts") or [row["prompt"] for row in rows]
        whole = [self._render(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
        device, size = self.model.device, self.settings["per_device_eval_batch_size"]
        mixed = torch.autocast(device.type, getattr(torch, self.autocast)) if self.autocast else None
        scores: list[float] = []
        with torch.inference_mode(), mixed or contextlib.nullcontext():
            for start in range(0, len(whole), size):
                inputs = self.tokenizer(
                    text=whole[start : start + size], return_tensors="pt", padding=True, padding_side="right",
                    add_special_tokens=False,
                )  # fmt: skip
                scores += self.model(**inputs.to(device)).logits[:, 0].float().tolist()
        return scores

    def _render(self, prompt: Any, text: str) -> str:
        if isinstance(prompt, str):
            return prompt + text
        messages = [*prompt, {"role": "assistant", "content": text}]
        options = self.settings.get("chat_template_kwargs") or {}
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, **options))
