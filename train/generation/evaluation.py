"""A look at the held-out rows: the model answers each prompt, greedily and by sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from data.lengths import encode
from modeling.fsdp import whole
from modeling.policy import Policy
from run.directory import RunDirectory
from run.ranks import Ranks
from transformers import GenerationConfig


class Evaluator:
    """Asks the model what it was not trained on, and writes down what came of it."""

    def __init__(self, run: RunDirectory, task: Any, policy: Policy, settings: dict[str, Any]) -> None:
        self.run, self.task, self.policy, self.settings = run, task, policy, settings
        self.samples, self.temperature = settings["eval_samples"], settings["temperature"]
        self.batch = settings["eval_batch"]
        self.engine: Any = None  # of `running.engines`: a vLLM that answers in the model's place

    def look(self, when: str, step: int, ranks: Ranks) -> dict[str, float]:
        """Greedy and sampled numbers; every rank answers its part."""
        if self.engine:
            self.engine.take_up()
            numbers = self._answer_all(ranks)
        else:
            with whole(self.policy.model):  # also on a rank that has no row to answer
                numbers = self._answer_all(ranks)
        self.run.write_event("eval", when=when, step=step, metrics=numbers)
        shown = ", ".join(f"{name} {numbers[name]:.3f}" for name in self.task.headline)
        self.run.log(f"held out, {when}, step {step}: {shown}")
        return numbers

    def _answer_all(self, ranks: Ranks) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for kind, rows, temperature in (
            ("greedy", self.task.held_out, 0.0),
            ("sampled", list(self.task.held_out) * self.samples, self.temperature),
        ):
            mine = ranks.local_items(rows)
            texts, ids = self._answer(mine, temperature, ranks.rank)
            scores = ranks.restore_order(ranks.gather(self.task.score(mine, texts, completion_ids=ids)), len(rows))
            numbers |= {f"{kind}_{name}": value for name, value in self.task.summarise(scores).items()}
        return numbers

    def _answer(self, rows: Sequence[Any], temperature: float, seed: int) -> tuple[list[str], list[list[int]]]:
        """Texts and tokens, one a row."""
        tokenizer = self.policy.tokenizer
        prompts = encode(rows, tokenizer, self.settings) if rows else []
        asked: dict[str, Any] = {"length": self.policy.completion, "temperature": temperature, "seed": seed}
        if not self.engine and not prompts:
            return [], []
        if not self.engine:
            return answer(self.policy.model, tokenizer, prompts, batch=self.batch, **asked)
        ids = [until(found, tokenizer.eos_token_id) for found in self.engine.answer(prompts, **asked)]
        return tokenizer.batch_decode(ids, skip_special_tokens=True), ids


@torch.no_grad()
def answer(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    *,
    length: int,
    temperature: float = 0.0,
    batch: int = 64,
    seed: int = 0,
) -> tuple[list[str], list[list[int]]]:
    """One answer a prompt (its tokens), as text and as tokens up to its end: greedy at temperature 0, else sampled.

    The training's random state is left as it was.
    """
    generation = GenerationConfig(
        max_new_tokens=length,
        do_sample=bool(temperature),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}),
    )
    was_training, cached = model.training, model.config.use_cache
    model.eval()
    model.config.use_cache = True  # gradient checkpointing switches it off
    answers: list[list[int]] = []
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        for start in range(0, len(prompts), batch):
            rows = prompts[start : start + batch]
            longest = max(map(len, rows))
            padding = [longest - len(ids) for ids in rows]  # on the left: what follows is generated
            asked = torch.tensor(
                [[generation.pad_token_id] * pad + ids for pad, ids in zip(padding, rows, strict=True)]
            )
            mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding])
            made = model.generate(
                input_ids=asked.to(model.device),
                attention_mask=mask.to(model.device),
                generation_config=generation,
            )
            answers += [until(ids, tokenizer.eos_token_id) for ids in made[:, longest:].tolist()]
    model.config.use_cache = cached
    model.train(was_training)
    return tokenizer.batch_decode(answers, skip_special_tokens=True), answers


def until(ids: list[int], end: int | None) -> list[int]:
    """The tokens up to the first end token, which is kept, as TRL does."""
    return ids[: ids.index(end) + 1] if end in ids else ids
