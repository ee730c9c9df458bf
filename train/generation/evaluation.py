"""Evaluation on the held-out rows: one greedy completion per prompt, and several sampled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from data.lengths import encode
from generation.best_of import best_of_metrics
from modeling.policy import Policy
from patches.fsdp_generate import gathered_weights
from run.directory import RunDirectory
from run.ranks import Ranks
from transformers import GenerationConfig


class Evaluator:
    """Evaluates the policy on the task's held-out rows, and writes the metrics to the run."""

    def __init__(self, run: RunDirectory, task: Any, policy: Policy, settings: dict[str, Any], ranks: Ranks) -> None:
        self.run, self.task, self.policy, self.settings, self.ranks = run, task, policy, settings, ranks
        self.samples, self.temperature = settings["num_generations_eval"], settings["temperature"]
        self.batch_size = settings["per_device_eval_batch_size"]
        self.engine: Any = None  # a vLLM engine of `evaluation_engines`; none: the model itself
        self.trainer: Any = None  # TRL's, with the state that rewards read
        self.end_tokens: list[int] = []

    def use_trainer(self, trainer: Any, engine: Any) -> None:
        """Evaluate as this trainer samples: with its end tokens, and its vLLM engine where it has one.

        From 1.15 on TRL adds the end tokens of the model's generation_config to the tokenizer's.
        """
        self.trainer, self.engine = trainer, engine
        own = getattr(trainer, "eos_token_ids", None) or [self.policy.tokenizer.eos_token_id]
        self.end_tokens = [token for token in own if token is not None]

    def evaluate(self, when: str, step: int) -> dict[str, float]:
        """Greedy and sampled metrics. `when` is "before", "during" or "after". All ranks call it."""
        if self.engine:
            self.engine.sync_weights()
            metrics = self._compute_metrics()
        else:
            with gathered_weights(self.policy.model):  # also on a rank without rows
                metrics = self._compute_metrics()
        self.run.write_event("eval", when=when, step=step, metrics=metrics)
        shown = ", ".join(f"{name} {metrics[name]:.3f}" for name in self.task.headline)
        self.run.log(f"held out, {when}, step {step}: {shown}")
        return metrics

    def _compute_metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for kind, rows, temperature in (
            ("greedy", self.task.held_out, 0.0),
            ("sampled", list(self.task.held_out) * self.samples, self.temperature),
        ):
            local = self.ranks.local_items(rows)
            texts, ids = self._generate(local, temperature, self.ranks.rank)
            arguments = {"completion_ids": ids, "trainer_state": self.trainer.state, "evaluation": True}
            scores = self.ranks.gather(self.task.score(local, texts, **arguments))
            scores = self.ranks.restore_order(scores, len(rows))
            summary = self.task.summarise(scores)
            summary |= best_of_metrics(scores, prompts=len(self.task.held_out), correct=self.task.correct)
            metrics |= {f"{kind}_{name}": value for name, value in summary.items()}
        return metrics

    def _generate(self, rows: Sequence[Any], temperature: float, seed: int) -> tuple[list[str], list[list[int]]]:
        """Completions as texts and as tokens, one per row."""
        tokenizer = self.policy.tokenizer
        prompts = encode(rows, tokenizer, self.settings) if rows else []
        options: dict[str, Any] = {"length": self.policy.completion, "temperature": temperature, "seed": seed}
        if not self.engine and not prompts:
            return [], []
        if not self.engine:
            options |= {"batch_size": self.batch_size, "end_tokens": self.end_tokens}
            return generate(self.policy.model, tokenizer, prompts, **options)
        ids = [truncate_at(row, self.end_tokens) for row in self.engine.generate(prompts, **options)]
        return tokenizer.batch_decode(ids, skip_special_tokens=True), ids


@torch.no_grad()
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    *,
    length: int,
    temperature: float = 0.0,
    batch_size: int = 64,
    seed: int = 0,
    end_tokens: Sequence[int] | None = None,
) -> tuple[list[str], list[list[int]]]:
    """One completion per prompt (token ids), as text and as tokens up to an end token; greedy at temperature 0.

    The random state of the training is restored. `end_tokens` default to the tokenizer's own.
    """
    ends = list(end_tokens or [tokenizer.eos_token_id])
    generation = GenerationConfig(
        max_new_tokens=length,
        do_sample=bool(temperature),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=ends,
        bos_token_id=tokenizer.bos_token_id,
        **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}),
    )
    was_training, use_cache = model.training, model.config.use_cache
    model.eval()
    model.config.use_cache = True  # gradient checkpointing disables it
    completions: list[list[int]] = []
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        for start in range(0, len(prompts), batch_size):
            rows = prompts[start : start + batch_size]
            longest = max(map(len, rows))
            padding = [longest - len(ids) for ids in rows]  # on the left, where generation needs it
            input_ids = torch.tensor(
                [[generation.pad_token_id] * pad + ids for pad, ids in zip(padding, rows, strict=True)]
            )
            mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
            output = model.generate(
                input_ids=input_ids.to(model.device),
                attention_mask=mask.to(model.device),
                generation_config=generation,
            )
            completions += [truncate_at(ids, ends) for ids in output[:, longest:].tolist()]
    model.config.use_cache = use_cache
    model.train(was_training)
    return tokenizer.batch_decode(completions, skip_special_tokens=True), completions


def truncate_at(ids: list[int], ends: Sequence[int]) -> list[int]:
    """The tokens up to and including the first end token, as TRL counts them."""
    first = next((number for number, token in enumerate(ids) if token in ends), len(ids))
    return ids[: first + 1]
