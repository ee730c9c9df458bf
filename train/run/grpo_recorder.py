"""Records the steps of GRPO: completions and their rewards, next to what run.recorder records."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from checks.batches import updates_per_generation
from run.directory import Table
from run.recorder import Recorder

# Columns of metrics.csv after the task's own. Empty are: `kl` at beta 0; the seconds of a part that does not run;
# `sampling_gap`, the difference between vLLM's and the model's log-probability of a token, without vLLM;
# `wait_seconds`, the wait for the slowest rank, with one rank.
TRAINING_FIELDS = [
    "reward_std", "loss", "grad_norm", "learning_rate", "entropy", "kl", "frac_reward_zero_std", "completion_length",
    "truncated", "sampling_gap", "tokens", "tokens_per_second", "seconds", "generate_seconds", "score_seconds",
    "update_seconds", "sync_seconds", "wait_seconds", "memory_gib",
]  # fmt: skip
# Names in TRL's log, the same from 0.22.2 to 1.16, and of vLLM's correction from 0.23 on.
LOGGED = (
    "completions/mean_length", "completions/clipped_ratio", "reward_std", "frac_reward_zero_std", "grad_norm",
    "learning_rate",
)  # fmt: skip
SAMPLING_GAP = "sampling/sampling_logp_difference/mean"


class GrpoRecorder(Recorder):
    """Also writes generations.csv; `reward` is TRL's reward function."""

    def __init__(self, run: Any, task: Any, settings: dict[str, Any], *, first_step: int, **arguments: Any) -> None:
        self.columns, self.smoothed = list(task.summarise([])), task.smoothed
        self.completions: list[dict[str, Any]] = []  # of this rank and step
        self.summary: dict[str, Any] = {}
        self.unscored_noted = False
        self.rows, self.evaluating = task.train, False
        super().__init__(run, task, settings, first_step=first_step, **arguments)
        if self.ranks.is_main:
            generated = ["step", "prompt", "completion", *task.generation_fields]
            self.generations = Table(run.path / "generations.csv", generated, first_step)

    @property
    def step_columns(self) -> Sequence[str]:
        """The columns of metrics.csv after the task's own."""
        return TRAINING_FIELDS

    def logged_names(self) -> Sequence[str]:
        """The names in TRL's log that metrics.csv and the alarms read."""
        trainer = self.trainer
        corrected = getattr(trainer, "use_vllm", False) and getattr(
            trainer, "vllm_importance_sampling_correction", False
        )
        return [*LOGGED, *(["kl"] if self.settings["beta"] else []), *([SAMPLING_GAP] if corrected else [])]

    def reward(
        self, prompts: Sequence[Any], completions: Sequence[Any], row: Sequence[int], **given: Any
    ) -> list[float | None]:
        """TRL's reward function; `row` is the dataset's column, one number per completion.

        The completions are gathered and written at the end of the step, while the GPU still works.
        """
        step = self.trainer.state.global_step + 1
        rows = [self.rows[number] for number in row]
        given |= {"evaluation": True} if self.evaluating else {}
        texts = [message_text(completion) for completion in completions]
        scores = self.task.score(rows, texts, step=step, prompts=prompts, completions=completions, **given)
        self.completions += [
            {"step": step, "prompt": message_text(prompt), "completion": text, **score}
            for prompt, text, score in zip(prompts, texts, scores, strict=True)
        ]
        return [score["reward"] for score in scores]

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[list[dict[str, Any]]]:
        """Score completions of held-out rows; they are in the yielded list, and not those of a step."""
        recorded, self.completions = self.completions, []
        self.rows, self.evaluating = self.task.held_out, True
        try:
            yield self.completions
        finally:
            self.rows, self.evaluating, self.completions = self.task.train, False, recorded

    def end_step(self, interrupted: bool) -> bool:
        """Gather the completions, and the wait for the slowest rank."""
        ranks = self.ranks.gather([(self.times["generate_seconds"], interrupted, self.completions)])
        self.completions = [completion for *_, completions in ranks for completion in completions]
        if self.ranks.world_size > 1:
            self.times = add_wait_seconds(self.times, max(seconds for seconds, *_ in ranks))
        return any(stopped for _, stopped, _ in ranks)

    def updates_left(self, step: int) -> int:
        """The later steps of the run that use the completions of this one again."""
        return -step % updates_per_generation(self.settings, self.ranks.world_size)

    def finish_step(self) -> None:
        """Summarise and write the completions of a step; none where num_iterations reuses the previous ones."""
        if not self.completions:
            return
        self.summary = self.task.summarise(self.completions)
        self._log_rewards()
        self._note_unscored(sum(completion["reward"] is None for completion in self.completions))
        if self.ranks.is_main:
            self.generations.append(self.completions)
        self.completions = []

    def _log_rewards(self) -> None:
        """Add each reward to the metrics that TRL logs next, by TRL's names: to TRL they are one function."""
        logged = getattr(self.trainer, "_metrics", {}).get("train", {})
        parts = [name for name in self.completions[0] if name.startswith("reward_")]
        for name in parts:
            values = [completion[name] for completion in self.completions if completion[name] is not None]
            numbers = {"mean": statistics.fmean, "std": statistics.stdev}
            for kind, compute in numbers.items() if len(values) > 1 else ():
                logged[f"rewards/{name.removeprefix('reward_')}/{kind}"] = [compute(values)]

    def _note_unscored(self, count: int) -> None:
        """Note the first step with completions to which no reward applies."""
        if not count or self.unscored_noted or not self.ranks.is_main:
            return
        self.unscored_noted = True
        self.run.note(
            f"no reward applies to {count} of {len(self.completions)} completions, for which every reward function "
            "returned None: TRL leaves them out (up to 1.5 it gives them a reward of 0), as the mean reward does"
        )

    def step_metrics(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """TRL's metrics of a step, the task's, and the seconds of its parts."""
        completions = self.settings["prompts_per_step"] * self.settings["num_generations"]
        length = logs.get("completions/mean_length")
        tokens = None if length is None else round(length * completions)
        return {
            **{name: logs.get(name) for name in TRAINING_FIELDS},
            **self.summary,
            **self.times,
            "completion_length": length,
            "truncated": logs.get("completions/clipped_ratio"),
            "sampling_gap": logs.get(SAMPLING_GAP),
            "tokens": tokens,
            "tokens_per_second": tokens / self.times["seconds"] if tokens and self.times else None,
            "memory_gib": self.memory(),
        }


def add_wait_seconds(times: dict[str, float], slowest: float) -> dict[str, float]:
    """Split the wait for the slowest rank from the update.

    TRL gathers after sampling, so all ranks wait for the slowest one, which sampled for `slowest` seconds.
    """
    wait = min(max(0.0, slowest - times["generate_seconds"]), times["update_seconds"])
    return times | {"wait_seconds": wait, "update_seconds": times["update_seconds"] - wait}


def message_text(messages: Any) -> str:
    """The text of a prompt or completion, which TRL gives as a text or as messages, with its tool calls."""
    if isinstance(messages, str):
        return messages
    return "\n".join(part for message in messages for part in _message_parts(message))


def _message_parts(message: Mapping[str, Any]) -> list[str]:
    calls = [json.dumps(call.get("function", call)) for call in message.get("tool_calls") or ()]
    return [str(message.get("content") or ""), *calls] if message.get("content") or not calls else calls
