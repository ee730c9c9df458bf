"""Evaluation of conversations with tools and environments: TRL makes the completions, as in the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from checks.engines import sampling_engine
from generation.best_of import best_of_metrics
from run.grpo_recorder import GrpoRecorder
from trainers.parts import RunParts
from trainers.rollouts import example_columns


class RolloutEvaluator:
    """Evaluates the policy on the held-out rows with its tools, and writes the metrics to the run.

    Greedy completions need transformers' generation; vLLM and a rollout function only sample.
    """

    def __init__(self, parts: RunParts, recorder: GrpoRecorder, trainer: Any) -> None:
        self.parts, self.recorder, self.trainer = parts, recorder, trainer
        settings = parts.settings
        self.samples = settings["num_generations_eval"]
        self.is_greedy = sampling_engine(settings) == "transformers" and not settings["rollout_func"]
        kinds = ("greedy", "sampled") if self.is_greedy else ("sampled",)
        parts.task.headline = [name for name in parts.task.headline if name.startswith(kinds)]

    def evaluate(self, when: str, step: int) -> dict[str, float]:
        """Greedy and sampled metrics. `when` is "before", "during" or "after". All ranks call it."""
        task, run = self.parts.task, self.parts.run
        metrics: dict[str, float] = {}
        for kind, samples in (("greedy", 1), ("sampled", self.samples)):
            if kind == "greedy" and not self.is_greedy:
                continue
            scores = self._roll_out(samples, greedy=kind == "greedy")
            summary = task.summarise(scores)
            summary |= best_of_metrics(scores, prompts=len(task.held_out), correct=task.correct)
            metrics |= {f"{kind}_{name}": value for name, value in summary.items()}
        run.write_event("eval", when=when, step=step, metrics=metrics)
        shown = ", ".join(f"{name} {metrics[name]:.3f}" for name in task.headline)
        run.log(f"held out, {when}, step {step}: {shown}")
        return metrics

    def _roll_out(self, samples: int, *, greedy: bool) -> list[dict[str, Any]]:
        """The scores of `samples` completions of each held-out row: all first ones, then all second ones."""
        ranks, count = self.parts.ranks, len(self.parts.task.held_out)
        local = ranks.local_items(range(count))
        share = -(-count // ranks.world_size)
        padded = [*local, *range(share - len(local))]  # all ranks make the same calls, which gather
        rows = padded * samples
        size = self._environments() or self.parts.settings["per_device_eval_batch_size"]
        scores: list[dict[str, Any]] = []
        for start in range(0, len(rows), size):
            scores += self._generate(rows[start : start + size], greedy=greedy)
        by_sample = [scores[share * sample :][: len(local)] for sample in range(samples)]
        return [score for found in by_sample for score in ranks.restore_order(ranks.gather(found), count)]

    def _environments(self) -> int:
        """The environments that early releases, such as TRL 1.0, make once: a batch needs one row for each."""
        if not self.parts.settings["environment_factory"] or hasattr(self.trainer, "_environment_pool"):
            return 0
        return len(self.trainer.environments or ())

    def _generate(self, rows: Sequence[int], *, greedy: bool) -> list[dict[str, Any]]:
        """The scores of one completion of each row."""
        trainer, task = self.trainer, self.parts.task
        filled = [*rows, *[rows[0]] * (self._environments() - len(rows))]
        inputs = [
            example_columns(task.held_out[row], self.parts.settings)
            | {"prompt": task.held_out[row]["prompt"], "row": row}
            for row in filled
        ]
        model, config = trainer.model, getattr(trainer, "generation_config", None)
        was_training, former = model.training, (trainer.num_generations_eval, config and config.do_sample)
        devices = [model.device] if model.device.type == "cuda" else []
        model.eval()
        trainer.num_generations_eval = 1
        if greedy and config is not None:
            config.do_sample = False
        try:
            with torch.random.fork_rng(devices=devices), torch.no_grad(), self.recorder.evaluation() as scores:
                torch.manual_seed(self.parts.ranks.rank)
                trainer._generate_and_score_completions(inputs)  # noqa: SLF001  as TRL's own evaluation does
                return scores[: len(rows)]
        finally:
            trainer.num_generations_eval = former[0]
            if config is not None:
                config.do_sample = former[1]
            trainer._metrics["eval"].clear()  # noqa: SLF001  of no log
            model.train(was_training)
