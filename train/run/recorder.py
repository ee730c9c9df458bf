"""Records each training step: metrics, completions, alarms, evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from checks.batches import updates_per_generation
from run.alarms import Alarms, parse_row
from run.checkpoints import delete_old_checkpoints, mark_complete
from run.directory import RunDirectory, Table
from run.interrupt import Interrupt
from run.ranks import Ranks
from run.timers import StepTimer
from settings import BadInput
from transformers import TrainerCallback

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
GIB = 2**30


class TrainingComplete(Exception):  # noqa: N818  (not an error)
    """The checkpoint is of the last step: only the evaluation and the saving remain."""


class Recorder(TrainerCallback):
    """Writes metrics.csv, generations.csv and events.jsonl of a run; `reward` is TRL's reward function."""

    def __init__(
        self,
        run: RunDirectory,
        task: Any,
        settings: dict[str, Any],
        *,
        ranks: Ranks,
        interrupt: Interrupt,
        evaluate: Callable[[str, int], dict[str, float]],
        first_step: int,
    ) -> None:
        self.run, self.task, self.settings = run, task, settings
        self.ranks, self.interrupt, self.evaluate = ranks, interrupt, evaluate
        self.timer = StepTimer()
        self.alarms = Alarms(settings, len(task.held_out))
        self.stopped_by = ""
        self.trainer: Any = None
        self.completions: list[dict[str, Any]] = []  # of this rank and step
        self.summary: dict[str, Any] = {}
        self.times: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.peak = 0
        self.unscored_noted = False
        self.logged = False  # whether the first step was
        if not ranks.is_main:
            return
        smooth = [f"{name}_smooth" for name in task.smoothed]
        header = ["step", *task.summarise([]), *smooth, *TRAINING_FIELDS]
        self.metrics = Table(run.path / "metrics.csv", header, first_step)
        generated = ["step", "prompt", "completion", *task.generation_fields]
        self.generations = Table(run.path / "generations.csv", generated, first_step)
        self.smooth: dict[str, float] = {}
        for row in self.metrics.read():  # of a resumed run: state of the smoothed metrics and of the alarms
            self.smooth = {name: float(row[f"{name}_smooth"]) for name in task.smoothed if row[f"{name}_smooth"]}
            self.alarms.check_step(int(row["step"]), parse_row(row))

    def reward(
        self, prompts: Sequence[Any], completions: Sequence[Any], row: Sequence[int], **given: Any
    ) -> list[float | None]:
        """TRL's reward function; `row` is the dataset's column, one number per completion.

        The completions are gathered and written at the end of the step, while the GPU still works.
        """
        step = self.trainer.state.global_step + 1
        rows = [self.task.train[number] for number in row]
        texts = [message_text(completion) for completion in completions]
        scores = self.task.score(rows, texts, step=step, prompts=prompts, completions=completions, **given)
        self.completions += [
            {"step": step, "prompt": message_text(prompt), "completion": text, **score}
            for prompt, text, score in zip(prompts, texts, scores, strict=True)
        ]
        return [score["reward"] for score in scores]

    def on_train_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """End here with a checkpoint of the last step: the training loop would run one more step.

        Note when a killed run would lose its steps; by epochs the number of steps is known only here.
        """
        every, done, steps = self.settings["save_steps"], state.global_step, state.max_steps
        if done >= steps:
            raise TrainingComplete
        state.save_steps = every or state.save_steps  # transformers reads that of the checkpoint
        if self.ranks.is_main and (not every or (done // every + 1) * every >= steps):
            lost = f"resumes from step {done}" if done else "starts again from the beginning"
            self.run.note(f"save_steps = {every} of {steps} steps: no checkpoint before the end; a killed run {lost}")

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the timer."""
        self.timer.start_step()

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the timer, gather the completions, and save and stop after an interrupt."""
        self.times = self.timer.end_step()
        interrupted = self.interrupt.requested_at is not None
        ranks = self.ranks.gather([(self.times["generate_seconds"], interrupted, self.completions)])
        self.completions = [completion for *_, completions in ranks for completion in completions]
        if self.ranks.world_size > 1:
            self.times = add_wait_seconds(self.times, max(seconds for seconds, *_ in ranks))
        if any(interrupted for _, interrupted, _ in ranks):  # ranks that stop at different steps would deadlock
            self.interrupt.requested_at = self.interrupt.requested_at or time.monotonic()
            self._stop(state, control)
        self._write_completions()

    def _stop(self, state: Any, control: Any) -> None:
        """Save and stop after the last update with the present completions, which no checkpoint contains."""
        if not self._updates_left(state.global_step):
            control.should_save = control.should_training_stop = True

    def _updates_left(self, step: int) -> int:
        """The later steps of the run that use the completions of this one again."""
        return -step % updates_per_generation(self.settings, self.ranks.world_size)

    def _write_completions(self) -> None:
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

    def on_log(self, _args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write the metrics of a step, check the alarms, and evaluate when it is due."""
        if not logs or "loss" not in logs:  # the summary at the end of the training has no loss
            return
        step, every = state.global_step, self.settings["eval_steps"]
        if not self.logged:
            self.logged = True
            check_logged(logs, step, self.settings, self.trainer)
        metrics = self._metrics(logs)
        if self.ranks.is_main:
            self._write_metrics(step, state.max_steps, metrics)
            self._raise_alarms(self.alarms.check_step(step, metrics))
        if every and step % every == 0 and step < state.max_steps:
            self.record_evaluation("during", step, self.evaluate("during", step))
        if self.settings["stop_on"] and self.ranks.any(bool(self.stopped_by)):
            self._stop(state, control)

    def record_evaluation(self, when: str, step: int, metrics: dict[str, float]) -> None:
        """Check the alarms for an evaluation, and report it to the trackers."""
        if self.ranks.is_main:
            self._raise_alarms(self.alarms.check_evaluation(when, step, metrics))
        if self.settings["report_to"]:
            self.trainer.log({f"held_out/{name}": value for name, value in metrics.items()})

    def _metrics(self, logs: dict[str, Any]) -> dict[str, Any]:
        completions = self.settings["prompts_per_step"] * self.settings["num_generations"]
        length = logs.get("completions/mean_length")
        tokens = None if length is None else round(length * completions)
        for name, seconds in self.times.items():
            self.totals[name] = self.totals.get(name, 0.0) + seconds
        return {
            **{name: logs.get(name) for name in TRAINING_FIELDS},
            **self.summary,
            **self.times,
            "completion_length": length,
            "truncated": logs.get("completions/clipped_ratio"),
            "sampling_gap": logs.get(SAMPLING_GAP),
            "tokens": tokens,
            "tokens_per_second": tokens / self.times["seconds"] if tokens and self.times else None,
            "memory_gib": self._memory(),
        }

    def _memory(self) -> float | None:
        """The peak of torch's allocated memory on this GPU since the last step, in GiB."""
        if not torch.cuda.is_available() or self.trainer.args.use_cpu:
            return None
        peak = torch.cuda.max_memory_allocated()
        self.peak = max(self.peak, peak)
        torch.cuda.reset_peak_memory_stats()
        return peak / GIB

    def _write_metrics(self, step: int, steps: int, metrics: dict[str, Any]) -> None:
        keep = self.settings["smoothing"]
        for name in self.task.smoothed:
            value = self.summary[name]
            self.smooth[name] = keep * self.smooth.get(name, value) + (1 - keep) * value
        metrics |= {f"{name}_smooth": value for name, value in self.smooth.items()}
        self.metrics.append([{"step": step, **metrics}])
        self.run.write_event("step", step=step, steps=steps, metrics=metrics)
        if step % 10 == 0:
            shown = ", ".join(f"{name}_smooth {value:.3f}" for name, value in self.smooth.items())
            self.run.log(f"step {step}: {shown}")

    def _raise_alarms(self, alarms: Sequence[Any]) -> None:
        for alarm in alarms:
            self.run.write_event("alarm", **alarm.as_record())
            self.run.log(f"alarm: {alarm.name}: {alarm.message}; {alarm.hint}")
            if alarm.name in self.settings["stop_on"]:
                self.stopped_by = alarm.name

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Mark the new checkpoint complete, then delete older ones."""
        self.ranks.barrier()  # each rank writes a file of its own
        path = self.run.checkpoints / f"checkpoint-{state.global_step}"
        if not self.ranks.is_main:
            return
        mark_complete(path)
        delete_old_checkpoints(self.run.checkpoints, self.settings["save_total_limit"])
        self.run.write_event("checkpoint", step=state.global_step, path=str(path.relative_to(self.run.path)))

    def save_after_error(self) -> None:
        """Save a checkpoint of the last complete step after an exception (a reward function, out of memory)."""
        with contextlib.suppress(OSError):  # the first error is the one to report
            self._write_completions()
        state = self.trainer.state
        path = self.run.checkpoints / f"checkpoint-{state.global_step}"
        # With one rank only: other ranks may never reach the barriers of a checkpoint.
        if self.ranks.world_size > 1 or not state.global_step or path.exists():
            return
        try:
            self.trainer._save_checkpoint(self.trainer.model, trial=None)  # noqa: SLF001  no public method saves alone
            self.on_save(None, state, None)
        except Exception as error:  # here too
            self.run.note(f"step {state.global_step} could not be saved: {type(error).__name__}: {error}")
        else:
            left = self._updates_left(state.global_step)
            lost = (
                f", which samples other completions for the next {left} updates with the same completions"
                if left
                else ""
            )
            self.run.note(f"saved the state after step {state.global_step}; continue with --resume latest{lost}")

    def time_shares(self) -> dict[str, float]:
        """The share of each part in the time of all steps."""
        total = self.totals.get("seconds", 0.0)
        parts = {name.removesuffix("_seconds"): value for name, value in self.totals.items() if name != "seconds"}
        return {name: round(value / total, 4) for name, value in parts.items()} if total else {}


def check_logged(logs: Collection[str], step: int, settings: Mapping[str, Any], trainer: Any) -> None:
    """Refuse a TRL that does not log what the alarms and metrics.csv read: they would be blind without a word."""
    corrected = getattr(trainer, "use_vllm", False) and getattr(trainer, "vllm_importance_sampling_correction", False)
    needed = [*LOGGED, *(["kl"] if settings["beta"] else []), *([SAMPLING_GAP] if corrected else [])]
    missing = [name for name in needed if name not in logs]
    if missing:
        raise BadInput(
            f"TRL {importlib.metadata.version('trl')} logs no {', '.join(missing)} at step {step}; it logs "
            f"{', '.join(sorted(logs))}",
            expected="the metrics of TRL 0.22.2 to 1.16, which the alarms read",
            hint="envdoctor profiles",
        )


def add_wait_seconds(times: dict[str, float], slowest: float) -> dict[str, float]:
    """Split the wait for the slowest rank from the update.

    TRL gathers after sampling, so all ranks wait for the slowest one, which sampled for `slowest` seconds.
    """
    wait = min(max(0.0, slowest - times["generate_seconds"]), times["update_seconds"])
    return times | {"wait_seconds": wait, "update_seconds": times["update_seconds"] - wait}


def message_text(messages: Any) -> str:
    """The text of a prompt or completion, which TRL gives as a text or as messages."""
    if isinstance(messages, str):
        return messages
    return "\n".join(str(message.get("content") or "") for message in messages)
