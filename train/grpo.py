"""The bundled trainer: GRPO by TRL on a recipe, in a run directory that a killed run can be continued from.

    PYTHON -B train/grpo.py RUN_DIR [--resume latest|CHECKPOINT]     # RUN_DIR/run.json says what to train
    echo '{"recipe": "tes", "settings": {"data": "..."}}' | PYTHON -B train/grpo.py --check

It runs in the training stack's interpreter and imports nothing of the tool. `--check` needs the standard library
alone.
Exit status: 0 done, 1 crash, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from interrupt import Interrupt
from run_directory import RunDirectory, Table, choose_checkpoint, finite, mark_complete
from settings import BadInput, read_recipe, validate_settings
from sort_task import SortTask, check_sort
from tes_task import TesTask, check_tes

TASKS: dict[str, Any] = {"sort": (check_sort, SortTask), "tes": (check_tes, TesTask)}
# Columns of metrics.csv that TRL reports; `kl` stays empty at beta 0.
TRAINING_FIELDS = [
    "loss", "grad_norm", "learning_rate", "entropy", "kl", "frac_reward_zero_std", "completion_length", "seconds",
]  # fmt: skip


def check(recipe_name: str, settings: object, source: str = "settings") -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything about a run that can be checked without torch: (normalised settings, summary)."""
    recipe = read_recipe(recipe_name)
    return TASKS[recipe_name][0](validate_settings(recipe, settings, source))


def main() -> int:
    """Parse the command line, run, and turn every end into an exit status."""
    parser = argparse.ArgumentParser(prog="grpo.py", description=__doc__.splitlines()[0])
    parser.add_argument("run_dir", nargs="?", type=Path, help="directory that holds run.json")
    parser.add_argument("--resume", metavar="latest|CHECKPOINT", help="continue from a checkpoint of the run")
    parser.add_argument("--check", action="store_true", help="check settings given as JSON on standard input")
    arguments = parser.parse_args()
    if arguments.check:
        return answer_check(sys.stdin.buffer.read())
    if arguments.run_dir is None:
        parser.error("RUN_DIR is missing")
    run = RunDirectory(arguments.run_dir.resolve())
    try:
        return train(run, arguments.resume)
    except BadInput as error:
        print(f"error: {error.message}\nexpected: {error.expected}\nhint: {error.hint}", file=sys.stderr)
        if run.path.is_dir():
            run.event("error", kind="bad-input", **error.as_record())
        return 2
    except KeyboardInterrupt:
        run.event("interrupted", step=None)
        return 130
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):  # a full disk may be the very reason
            message = f"{type(error).__name__}: {error}"
            run.event("error", kind="crash", message=message, hint="the traceback is on stderr")
        return 1


def answer_check(request: bytes) -> int:
    """The `--check` mode: one JSON object in, one out."""
    try:
        try:
            asked = json.loads(request)
            recipe, settings = asked["recipe"], asked.get("settings", {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"standard input: {type(error).__name__}: {error}",
                expected='{"recipe": "sort", "settings": {}}',
                hint="pipe one JSON object in",
            ) from None
        settings, summary = check(recipe, settings)
    except BadInput as error:
        print(json.dumps({"ok": False, "error": error.as_record()}))
        return 2
    print(json.dumps(finite({"ok": True, "settings": settings, "summary": summary})))
    return 0


def train(run: RunDirectory, resume: str | None) -> int:  # noqa: C901, PLR0912, PLR0915  (read from top to bottom)
    """One run, from run.json to result.json."""
    interrupt = Interrupt()
    started = time.monotonic()
    seconds: dict[str, float] = {}

    def clock(phase: str) -> None:
        nonlocal started
        seconds[phase] = round(seconds.get(phase, 0.0) + time.monotonic() - started, 2)
        started = time.monotonic()

    # 1. What to do. Nothing heavy is imported before the input is known to be good.
    recipe_name, given = run.read_settings()
    settings, summary = check(recipe_name, given, str(run.path / "run.json"))
    run.hold()
    checkpoint, skipped = choose_checkpoint(run.checkpoints, resume) if resume else (None, [])
    if checkpoint is None:
        run.refuse_a_used_directory()
    first_step = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    for path, defect in skipped:
        run.event("checkpoint_skipped", path=str(path.relative_to(run.path)), reason=defect)
    if first_step > settings["steps"]:
        raise BadInput(
            f"{checkpoint} is past steps = {settings['steps']}", expected="an earlier one", hint="--resume latest"
        )

    # 2. The libraries. No network: nothing here has a name on any hub.
    run.phase("load", "torch, transformers, TRL")
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "WORLD_SIZE" not in os.environ:
        # Several GPUs in one process would make transformers wrap the model in DataParallel, which cannot generate.
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    import tiny_model
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from transformers.utils import logging as transformers_logging
    from trl import GRPOConfig, GRPOTrainer

    transformers_logging.disable_progress_bar()
    device = settings["device"]
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput(
            f"device = cuda, but torch {torch.__version__} sees no GPU", expected="a GPU", hint="--set device=cpu"
        )
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if device == "cpu" and settings["hidden_size"] <= 128 and "OMP_NUM_THREADS" not in os.environ:
        # Two threads take 27 s for `sort` on two idle cores and 196 s beside another busy process, since they spin at
        # every barrier; one thread takes 34 s either way.
        torch.set_num_threads(1)
    clock("load")

    # 3. Task, tokenizer, model.
    run.phase("data", ", ".join(f"{key} {value}" for key, value in summary.items() if isinstance(value, int)))
    task = TASKS[recipe_name][1](settings)
    rng = tiny_model.seed_everything(settings["seed"])
    tokenizer = tiny_model.make_tokenizer(task.symbols)
    longest = max(len(row["prompt"].split()) for row in (*task.train, *task.held_out))
    # An environment in which no wheel of FlashAttention could be had names what stands in for it.
    attention, instead = tiny_model.choose_attention(os.environ.get("ATTN_IMPL", ""))
    if instead:
        run.phase("attention", instead)
    model = tiny_model.make_model(settings, tokenizer, longest + settings["max_completion_length"], attention)
    model = model.to(device)
    clock("data")

    def look(when: str, step: int) -> dict[str, float]:
        """Ask the model every held-out prompt, greedily and by sampling."""
        length = settings["max_completion_length"]
        greedy_rows, sampled_rows = task.held_out, task.held_out * settings["eval_samples"]
        greedy = tiny_model.answer(model, tokenizer, [row["prompt"] for row in greedy_rows], length=length)
        sampled = tiny_model.answer(
            model,
            tokenizer,
            [row["prompt"] for row in sampled_rows],
            length=length,
            temperature=settings["temperature"],
        )
        numbers = {}
        for kind, rows, answers in (("greedy", greedy_rows, greedy), ("sampled", sampled_rows, sampled)):
            scores = [task.score(row, text) for row, text in zip(rows, answers, strict=True)]
            numbers |= {f"{kind}_{name}": value for name, value in task.summarise(scores).items()}
        run.event("eval", when=when, step=step, metrics=numbers)
        print(
            f"held out, {when}, step {step}: " + ", ".join(f"{k} {numbers[k]:.3f}" for k in task.headline), flush=True
        )
        return numbers

    # 4. Warm-up: GRPO compares answers, so some of them have to be right from the start.
    if checkpoint is None:
        run.phase("warmup", f"{settings['warmup_steps']} steps of {settings['warmup_batch']}")
        tiny_model.warm_up(
            model,
            tokenizer,
            task.warmup_examples(rng),
            settings,
            lambda step, loss: run.event("warmup", step=step, steps=settings["warmup_steps"], loss=loss),
        )
        clock("warmup")
        run.phase("evaluate", "before GRPO")
        before = look("before", 0)
        clock("evaluate")
    else:
        looks = run.read_events("eval", when="before")
        if not looks:
            raise BadInput(
                f"{run.path / 'events.jsonl'} does not tell the held-out numbers before GRPO",
                expected="the events of the run that wrote the checkpoint",
                hint="start the run again in a new directory, without --resume",
            )
        before = looks[-1]["metrics"]

    # 5. The tables, whole over a resume: what came after the checkpoint is dropped and made again.
    metric_fields = [*task.summarise([]), "reward_std"]
    smooth_fields = [f"{name}_smooth" for name in task.smoothed]
    metrics = Table(run.path / "metrics.csv", ["step", *metric_fields, *smooth_fields, *TRAINING_FIELDS], first_step)
    generations = Table(
        run.path / "generations.csv", ["step", "prompt", "completion", *task.generation_fields], first_step
    )
    smooth = {name: float(metrics.last[f"{name}_smooth"]) for name in task.smoothed if metrics.last}
    current: dict[str, Any] = {}

    def reward(prompts: list[str], completions: list[str], row: list[int], **_: Any) -> list[float]:
        """TRL's reward function: `row` is the dataset's column, aligned with the completions."""
        step = trainer.state.global_step + 1
        scores = [task.score(task.train[number], text) for number, text in zip(row, completions, strict=True)]
        generations.append(
            [{"step": step, "prompt": prompt, "completion": text, **score}
             for prompt, text, score in zip(prompts, completions, scores, strict=True)]
        )  # fmt: skip
        current.update(task.summarise(scores))
        return [score["reward"] for score in scores]

    class Record(TrainerCallback):
        """Writes the step down, looks at the held-out set when due, marks checkpoints, obeys an interrupt."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.monotonic()

        def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
            if interrupt.asked_at is not None:
                control.should_save = control.should_training_stop = True

        def on_log(self, _args: Any, state: Any, _control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            if not logs or "loss" not in logs:  # the summary line at the end of the training has none
                return
            step, keep = state.global_step, settings["smoothing"]
            for name in task.smoothed:
                smooth[name] = keep * smooth.get(name, current[name]) + (1 - keep) * current[name]
            numbers = {
                **{name: logs.get(name) for name in TRAINING_FIELDS},
                **current,
                **{f"{name}_smooth": value for name, value in smooth.items()},
                "reward_std": logs.get("reward_std"),
                "completion_length": logs.get("completions/mean_length"),
                "seconds": time.monotonic() - self.began,
            }
            metrics.append([{"step": step, **numbers}])
            run.event("step", step=step, steps=settings["steps"], metrics=numbers)
            if step % 10 == 0:
                print(f"step {step}: " + ", ".join(f"{key} {numbers[key]:.3f}" for key in smooth_fields), flush=True)
            if settings["eval_every"] and step % settings["eval_every"] == 0 and step < settings["steps"]:
                look("during", step)

        def on_save(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
            path = run.checkpoints / f"checkpoint-{state.global_step}"
            mark_complete(path)
            run.event("checkpoint", step=state.global_step, path=str(path.relative_to(run.path)))

    # 6. GRPO.
    save_every = settings["save_every"]
    arguments = GRPOConfig(
        output_dir=str(run.checkpoints),
        seed=settings["seed"],
        max_steps=settings["steps"],
        per_device_train_batch_size=settings["prompts_per_step"] * settings["num_generations"],
        num_generations=settings["num_generations"],
        max_completion_length=settings["max_completion_length"],
        temperature=settings["temperature"],
        learning_rate=settings["learning_rate"],
        lr_scheduler_type="constant",  # a decay to 0 would make the end depend on the number of steps asked for
        beta=settings["beta"],
        epsilon=settings["epsilon"],
        loss_type=settings["loss_type"],
        scale_rewards=settings["scale_rewards"],
        bf16=False,  # see make_model; TRL would turn it on
        gradient_checkpointing=False,  # TRL would turn it on, to save memory that is not short here
        use_cpu=device == "cpu",
        save_strategy="steps" if save_every else "no",
        save_steps=save_every or 1,
        save_total_limit=3,
        logging_steps=1,
        logging_nan_inf_filter=False,  # a loss that is not a number must be seen
        report_to="none",
        disable_tqdm=True,
    )
    if settings["beta"] > 0:
        # TRL loads the reference model by its name: the warmed-up model gets one, a directory of this run.
        reference = run.path / "reference"
        if checkpoint is None:
            model.save_pretrained(reference)
        model.config._name_or_path = str(reference)  # noqa: SLF001
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": row["prompt"], "row": n} for n, row in enumerate(task.train)]),
        callbacks=[Record()],
    )
    trainer.remove_callback(PrinterCallback)
    run.phase("train", f"steps {first_step + 1} to {settings['steps']} on {device}")
    interrupt.training = True
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    interrupt.training = False
    clock("train")
    if trainer.state.global_step < settings["steps"]:
        run.event("interrupted", step=trainer.state.global_step)
        print(f"interrupted after step {trainer.state.global_step}; continue with --resume latest", file=sys.stderr)
        return 130

    # 7. What came of it.
    run.phase("evaluate", "after GRPO")
    after = look("after", settings["steps"])
    clock("evaluate")
    run.phase("save", "model and tokenizer")
    model.save_pretrained(run.path / "model")
    tokenizer.save_pretrained(run.path / "model")
    clock("save")
    by_step = {event["step"]: event for event in run.read_events("eval")}  # a repeated step's last look counts
    title = f"{recipe_name}, seed {settings['seed']}: " + ", ".join(
        f"{name} {before[name]:.2f} -> {after[name]:.2f}" for name in task.headline
    )
    no_curves = plot(run, [by_step[step] for step in sorted(by_step)], task.curves, title)
    clock("plot")
    result = {
        "schema": 1,
        "recipe": recipe_name,
        "status": "done",
        "before": before,
        "after": after,
        "baselines": task.baselines(),
        "data": task.describe(),
        "seconds": seconds,
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl", "peft", "datasets")},
        "parameters": model.num_parameters(),
        "attention": attention or "transformers' own choice",
        "steps": settings["steps"],
        "resumed_from": first_step or None,
        "curves": None if no_curves else "curves.png",
        "no_curves": no_curves or None,
    }
    run.write_result(result)
    run.event("done", result=result)
    return 0


def plot(run: RunDirectory, looks: list[dict[str, Any]], panels: list[tuple[str, list[str]]], title: str) -> str:
    """Draw curves.png; why not, when it cannot be."""
    run.phase("plot", "curves.png")
    try:
        from curves import draw_curves
    except ImportError as error:
        return f"curves.png was not drawn: {error}"
    draw_curves(run.path / "metrics.csv", looks, panels, title, run.path / "curves.png")
    return ""


if __name__ == "__main__":
    sys.exit(main())
