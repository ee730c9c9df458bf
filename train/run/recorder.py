"""What happens at each step of the training loop: write it down, look at the held-out rows, mark checkpoints, end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from run.alarms import Alarms, parse_row
from run.checkpoints import delete_old_checkpoints, mark_complete
from run.directory import RunDirectory, Table
from run.interrupt import Interrupt
from run.ranks import Ranks
from run.timers import StepTimer
from transformers import TrainerCallback

# Columns of metrics.csv after the task's own. `kl` stays empty at beta 0, a part's seconds where nobody works on it;
# `sampling_gap`, how far vLLM's log-probability of a token lies from the model's own, where vLLM does not sample;
# `wait_seconds`, for the process that samples slowest, where there is one process alone.
TRAINING_FIELDS = [
    "reward_std", "loss", "grad_norm", "learning_rate", "entropy", "kl", "frac_reward_zero_std", "completion_length",
    "truncated", "sampling_gap", "tokens", "tokens_per_second", "seconds", "generate_seconds", "score_seconds",
    "update_seconds", "sync_seconds", "wait_seconds", "memory_gib",
]  # fmt: skip
GIB = 2**30


class TrainingComplete(Exception):  # noqa: N818  (no error)
    """The last step is done: what is left is to look and to save."""


class Recorder(TrainerCallback):
    """Keeps metrics.csv, generations.csv and events.jsonl of a run; TRL's reward function is its method `reward`."""

    def __init__(
        self,
        run: RunDirectory,
        task: Any,
        settings: dict[str, Any],
        *,
        ranks: Ranks,
        interrupt: Interrupt,
        look: Callable[[str, int], dict[str, float]],
        first_step: int,
    ) -> None:
        self.run, self.task, self.settings = run, task, settings
        self.ranks, self.interrupt, self.look = ranks, interrupt, look
        self.watch = StepTimer()
        self.alarms = Alarms(settings, len(task.held_out))
        self.stopped_by = ""
        self.trainer: Any = None
        self.answers: list[dict[str, Any]] = []  # this process's, of this step
        self.current: dict[str, Any] = {}
        self.times: dict[str, float] = {}
        self.totals: dict[str, float] = {}
        self.peak = 0
        if not ranks.is_main:
            return
        smooth = [f"{name}_smooth" for name in task.smoothed]
        header = ["step", *task.summarise([]), *smooth, *TRAINING_FIELDS]
        self.metrics = Table(run.path / "metrics.csv", header, first_step)
        generated = ["step", "prompt", "completion", *task.generation_fields]
        self.generations = Table(run.path / "generations.csv", generated, first_step)
        self.smooth: dict[str, float] = {}
        for row in self.metrics.read():  # of a run that is gone on with: what the next numbers are compared with
            self.smooth = {name: float(row[f"{name}_smooth"]) for name in task.smoothed if row[f"{name}_smooth"]}
            self.alarms.check_step(int(row["step"]), parse_row(row))

    def attach(self, trainer: Any) -> None:
        """The trainer that calls this."""
        self.trainer = trainer
        self.watch.watch(trainer)

    def reward(
        self, prompts: Sequence[Any], completions: Sequence[Any], row: Sequence[int], **given: Any
    ) -> list[float | None]:
        """TRL's reward function: `row` is the dataset's column, one a completion.

        What it says is gathered and written when the step ends, while the GPU still works at it.
        """
        step = self.trainer.state.global_step + 1
        rows, texts = [self.task.train[number] for number in row], [text_of(completion) for completion in completions]
        scores = self.task.score(rows, texts, step=step, prompts=prompts, completions=completions, **given)
        self.answers += [
            {"step": step, "prompt": text_of(prompt), "completion": text, **score}
            for prompt, text, score in zip(prompts, texts, scores, strict=True)
        ]
        return [score["reward"] for score in scores]

    def on_train_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """A checkpoint of the last step is loaded by now: the loop would make one more before it looks.

        What would be lost is told while it can still be changed; by epochs, nobody knew the steps before.
        """
        every, done, steps = self.settings["save_every"], state.global_step, state.max_steps
        if done >= steps:
            raise TrainingComplete
        if self.ranks.is_main and (not every or (done // every + 1) * every >= steps):
            lost = f"goes on from step {done}" if done else "begins anew"
            self.run.note(f"save_every = {every} of {steps} steps: no checkpoint before the end; a killed run {lost}")

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The clock starts."""
        self.watch.start_step()

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        """The clock stops; who was asked to end saves first."""
        self.times = self.watch.end_step()
        asked = self.interrupt.requested_at is not None
        everybody = self.ranks.gather([(self.times["generate_seconds"], asked, self.answers)])
        self.answers = [answer for *_, answers in everybody for answer in answers]
        if self.ranks.world_size > 1:
            self.times = add_wait_seconds(self.times, max(seconds for seconds, *_ in everybody))
        if any(asked for _, asked, _ in everybody):  # ranks that stop at different steps would wait for each other
            self.interrupt.requested_at = self.interrupt.requested_at or time.monotonic()
            control.should_save = control.should_training_stop = True
        self._keep_answers()

    def _keep_answers(self) -> None:
        """What this process knows of a step's answers; none where a step learns once more from the last ones."""
        if not self.answers:
            return
        self.current = self.task.summarise(self.answers)
        if self.ranks.is_main:
            self.generations.append(self.answers)
        self.answers = []

    def on_log(self, _args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """One step's numbers; alarms; the held-out look when it is due."""
        if not logs or "loss" not in logs:  # the summary line at the end of the training has none
            return
        step, every = state.global_step, self.settings["eval_every"]
        numbers = self._numbers(logs)
        if self.ranks.is_main:
            self._write(step, state.max_steps, numbers)
            self._raise(self.alarms.check_step(step, numbers))
        if every and step % every == 0 and step < state.max_steps:
            self.saw("during", step, self.look("during", step))
        if self.settings["stop_on"] and self.ranks.any(bool(self.stopped_by)):
            control.should_save = control.should_training_stop = True

    def saw(self, when: str, step: int, numbers: dict[str, float]) -> None:
        """A look at the held-out rows, for the alarms."""
        if self.ranks.is_main:
            self._raise(self.alarms.check_evaluation(when, step, numbers))
        if self.settings["report_to"]:
            self.trainer.log({f"held_out/{name}": value for name, value in numbers.items()})

    def _numbers(self, logs: dict[str, Any]) -> dict[str, Any]:
        answers = self.settings["prompts_per_step"] * self.settings["num_generations"]
        length = logs.get("completions/mean_length")
        tokens = None if length is None else round(length * answers)
        for name, seconds in self.times.items():
            self.totals[name] = self.totals.get(name, 0.0) + seconds
        return {
            **{name: logs.get(name) for name in TRAINING_FIELDS},
            **self.current,
            **self.times,
            "completion_length": length,
            "truncated": logs.get("completions/clipped_ratio"),
            "sampling_gap": logs.get("sampling/sampling_logp_difference/mean"),
            "tokens": tokens,
            "tokens_per_second": tokens / self.times["seconds"] if tokens and self.times else None,
            "memory_gib": self._memory(),
        }

    def _memory(self) -> float | None:
        """GiB that torch held at most on this GPU since the last step."""
        if not torch.cuda.is_available() or self.trainer.args.use_cpu:
            return None
        held = torch.cuda.max_memory_allocated()
        self.peak = max(self.peak, held)
        torch.cuda.reset_peak_memory_stats()
        return held / GIB

    def _write(self, step: int, steps: int, numbers: dict[str, Any]) -> None:
        keep = self.settings["smoothing"]
        for name in self.task.smoothed:
            value = self.current[name]
            self.smooth[name] = keep * self.smooth.get(name, value) + (1 - keep) * value
        numbers |= {f"{name}_smooth": value for name, value in self.smooth.items()}
        self.metrics.append([{"step": step, **numbers}])
        self.run.write_event("step", step=step, steps=steps, metrics=numbers)
        if step % 10 == 0:
            shown = ", ".join(f"{name}_smooth {value:.3f}" for name, value in self.smooth.items())
            self.run.log(f"step {step}: {shown}")

    def _raise(self, alarms: Sequence[Any]) -> None:
        for alarm in alarms:
            self.run.write_event("alarm", **alarm.as_record())
            self.run.log(f"alarm: {alarm.name}: {alarm.message}; {alarm.hint}")
            if alarm.name in self.settings["stop_on"]:
                self.stopped_by = alarm.name

    def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """A checkpoint lies there: it is marked complete, and only then older ones go."""
        self.ranks.barrier()  # each rank writes a file of its own
        path = self.run.checkpoints / f"checkpoint-{state.global_step}"
        if not self.ranks.is_main:
            return
        mark_complete(path)
        delete_old_checkpoints(self.run.checkpoints, self.settings["keep_checkpoints"])
        self.run.write_event("checkpoint", step=state.global_step, path=str(path.relative_to(self.run.path)))

    def rescue(self) -> None:
        """Save what was learnt until something went wrong in a step: a reward that raised, memory that ran out."""
        with contextlib.suppress(OSError):  # the first error is the one to tell
            self._keep_answers()
        state = self.trainer.state
        saved = self.run.checkpoints / f"checkpoint-{state.global_step}"
        # Alone: the other ranks may never come to the points where they wait for each other.
        if self.ranks.world_size > 1 or not state.global_step or saved.exists():
            return
        try:
            self.trainer._save_checkpoint(self.trainer.model, trial=None)  # noqa: SLF001  no public name does this alone
            self.on_save(None, state, None)
        except Exception as error:  # here too
            self.run.note(f"step {state.global_step} could not be saved: {type(error).__name__}: {error}")
        else:
            self.run.note(f"saved as it was after step {state.global_step}; go on with --resume latest")

    def shares(self) -> dict[str, float]:
        """The parts' shares of all the time of the steps."""
        whole = self.totals.get("seconds", 0.0)
        parts = {name.removesuffix("_seconds"): value for name, value in self.totals.items() if name != "seconds"}
        return {name: round(value / whole, 4) for name, value in parts.items()} if whole else {}


def add_wait_seconds(times: dict[str, float], slowest: float) -> dict[str, float]:
    """A step's times with `wait_seconds`: TRL gathers among the ranks when each has sampled, so all wait for one.

    Without it that time would count as the update's. `slowest`: seconds that the slowest rank sampled for.
    """
    wait = max(0.0, slowest - times["generate_seconds"])
    return times | {"wait_seconds": wait, "update_seconds": max(0.0, times["update_seconds"] - wait)}


def text_of(messages: Any) -> str:
    """The text of a prompt or completion, which TRL gives as a text or as messages."""
    if isinstance(messages, str):
        return messages
    return "\n".join(str(message.get("content") or "") for message in messages)
