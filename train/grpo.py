"""The bundled trainer: GRPO by TRL on a recipe, in a run directory that a killed run can be continued from.

    PYTHON -B train/grpo.py RUN_DIR [--resume latest|CHECKPOINT]     # RUN_DIR/run.json says what to train
    echo '{"recipe": "tes", "settings": {"data": "..."}}' | PYTHON -B train/grpo.py --check

It runs in the training stack's interpreter and imports nothing of the tool. `--check` needs the standard library
alone.
Exit status: 0 done, 1 crash, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import os
import platform
import sys
import time
from typing import Any

from checks.cuda_graphs import check_cuda_graphs
from checks.fsdp import check_fsdp_settings
from checks.model_names import resolve_local_folder
from data.checks import check_prompt_count
from generation.vllm_server import check_length, wait_for_server
from run.alarms import check_alarm_names
from run.checkpoints import checkpoint_step
from run.directory import RunDirectory
from run.interrupt import Interrupt
from run.program import end, make_parser, run_check, run_to_exit_status
from run.proven_kernels import check_failed_probes
from settings import SETTINGS_FILE, BadInput, Recipe, list_recipes, read_recipe, resolve_settings
from tasks.dataset import DatasetTask, check_dataset
from tasks.sort import SortTask, check_sort
from tasks.tes import TesTask, check_tes

TASKS: dict[str, Any] = {
    "sort": (check_sort, SortTask),
    "tes": (check_tes, TesTask),
    "dataset": (check_dataset, DatasetTask),
}


def check(recipe: Recipe, settings: object, source: str = "settings") -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything about a run that can be checked without torch: (every setting, summary)."""
    settled = resolve_settings(recipe, settings, source)
    settled |= {name: resolve_local_folder(name, settled[name]) for name in ("model", "tokenizer")}
    check_alarm_names(settled["stop_on"])
    check_fsdp_settings(settled)
    check_cuda_graphs(settled)
    return TASKS[settled["task"]][0](settled)


def main() -> int:
    """Parse the command line, run, and turn every end into an exit status."""
    parser = make_parser("grpo.py", __doc__)
    arguments = parser.parse_args()
    if arguments.check:
        return run_check(sys.stdin.buffer.read(), check, recipe="sort", settings_file=SETTINGS_FILE)
    if arguments.run_dir is None:
        parser.error("RUN_DIR is missing")
    run = RunDirectory(arguments.run_dir.resolve(), is_writer=os.environ.get("RANK", "0") == "0")
    return run_to_exit_status(run, lambda: train(run, arguments.resume), tells=run.is_writer)


def train(run: RunDirectory, resume: str | None) -> int:  # noqa: C901, PLR0915  (read from top to bottom)
    """One run, from run.json to result.json."""
    interrupt, laps = Interrupt(), Laps()

    # 1. What to do. Nothing heavy is imported before the input is known to be good.
    run.lock()
    configuration = run.read()
    name = configuration["recipe"]
    # A run outlives its recipe's file: run.json holds every setting, a bundled recipe's may be left out.
    recipe = read_recipe(name) if name in list_recipes() else Recipe(name, "", {})
    settings, summary = check(recipe, configuration.get("settings", {}), str(run.path / "run.json"))
    checkpoint = run.prepare_resume(resume)
    first_step = checkpoint_step(checkpoint) if checkpoint else 0
    if checkpoint and run.is_finished(checkpoint, settings["steps"]):
        return 0
    proven = configuration.get("proven") or {}
    check_failed_probes(settings, proven)
    check_surroundings(settings)

    # 2. The libraries.
    run.start_phase("load", "torch, transformers, TRL")
    prepare_process(settings, run)
    import torch
    from datasets import Dataset
    from generation.evaluation import Evaluator
    from generation.evaluation_engines import choose_evaluation_engine
    from modeling import fsdp as sharding
    from modeling import saving as after_training
    from modeling.policy import make_policy, save_reference_model
    from modeling.tiny_model import warm_up
    from patches import transformers_cuda_graphs as graphs
    from patches.trl_tokenization import tokenize_distinct_prompts
    from patches.trl_trainer import choose_trainer_class, patch_generate
    from patches.unpadded import remove_padding
    from patches.weight_sync import sync_weights_in_one_call
    from run.ranks import Ranks
    from run.recorder import Recorder, TrainingComplete
    from transformers import PrinterCallback
    from transformers.utils import logging as transformers_logging
    from trl import GRPOConfig
    from trl_config.arguments import InstalledVersions, RunContext, make_grpo_arguments

    transformers_logging.disable_progress_bar()
    device = choose_device(settings["device"])
    ranks = Ranks(device)
    installed = InstalledVersions.here(GRPOConfig)
    situation = RunContext(output=str(run.checkpoints), device=device, ranks=ranks.world_size)
    make_grpo_arguments(settings, installed, situation)  # what this TRL refuses is known before a model is loaded
    sharding.check_surroundings(settings, checkpoint)
    most_tokens = wait_for_server(settings, run.note) if ranks.is_main else 0
    laps.end("load")

    # 3. Task, tokenizer, model.
    run.start_phase("data", ", ".join(f"{key} {value}" for key, value in summary.items() if isinstance(value, int)))
    torch.manual_seed(settings["seed"])
    task = TASKS[settings["task"]][1](settings)
    policy = make_policy(run, task, settings, device=device, proven=proven, ranks=ranks)
    check_prompt_count(len(task.train), settings)  # some may have been too long
    run.record_dataset(task.train, task.held_out)
    held_out = Evaluator(run, task, policy, settings)
    laps.end("data")

    # 4. What this TRL is told.
    arguments, notes = make_grpo_arguments(settings, installed, policy.add_to(situation))
    for note in notes:
        run.note(note)
    check_length(most_tokens, policy.longest_prompt + policy.completion, settings)
    config = make_config(GRPOConfig, arguments)
    if settings["sharding"] == "fsdp":
        sharding.configure_mixed_precision(config, policy.autocast)
        sharding.gather_for_generate(policy.model)

    # 5. Warm-up of a model made on the spot: GRPO compares answers, so some have to be right from the start.
    if checkpoint is None and settings["warmup_steps"] and not settings["model"]:
        run.start_phase("warmup", f"{settings['warmup_steps']} steps of {settings['warmup_batch']}")
        warm_up(policy, task, settings, run)
        laps.end("warmup")
    if settings["beta"] > 0:
        save_reference_model(run, policy, fresh=checkpoint is None, ranks=ranks)

    if checkpoint:
        run.archive_files_after(checkpoint)

    # 6. GRPO. A twin that samples is made of the model before TRL's trainer wraps its forward pass.
    sampler = graphs.make(policy, settings)
    recorder = Recorder(
        run,
        task,
        settings,
        ranks=ranks,
        interrupt=interrupt,
        look=lambda when, step: held_out.look(when, step, ranks),
        first_step=first_step,
    )
    rows = [{"prompt": row["prompt"], "row": number} for number, row in enumerate(task.train)]
    with policy.trl_compatibility(settings):
        trainer = choose_trainer_class(settings, installed)(
            model=policy.model,
            processing_class=policy.tokenizer,
            reward_funcs=recorder.reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[recorder],
        )
    trainer.remove_callback(PrinterCallback)
    remove_padding(trainer, device=device, compiled=settings["compile"])
    ranks.lend(sys.modules["trl.trainer.grpo_trainer"])
    ranks.prepare(trainer.accelerator)
    tokenize_distinct_prompts(trainer)
    sync_weights_in_one_call(trainer)
    patch_generate(trainer, settings)
    graphs.put(sampler, policy.model)
    recorder.attach(trainer)
    held_out.engine = choose_evaluation_engine(trainer, settings, ranks)
    laps.end("load")
    if checkpoint is None:
        run.start_phase("evaluate", "before GRPO")
        before = held_out.look("before", 0, ranks)
        laps.end("evaluate")
    else:
        before = run.read_baseline_evaluation()
    recorder.saw("before", 0, before)
    to = f"to {settings['steps']}" if settings["steps"] else f"on, {settings['epochs']:g} epochs"
    run.start_phase(
        "train", f"steps {first_step + 1} {to} on {device}{f' x {ranks.world_size}' if ranks.world_size > 1 else ''}"
    )
    interrupt.training = True
    gc.collect()
    gc.freeze()  # what is loaded stays: each later collection would walk it all, many times a step of vLLM's objects
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except TrainingComplete:
        run.note(f"step {first_step} was the last one: it is looked at and saved")
    except Exception:
        recorder.rescue()
        raise
    interrupt.training = False
    laps.end("train")
    step = trainer.state.global_step
    if interrupt.requested_at is not None and step < trainer.state.max_steps:
        run.write_event("interrupted", step=step)
        run.log(f"interrupted after step {step}; continue with --resume latest")
        return 130

    # 7. What came of it.
    run.start_phase("evaluate", "after GRPO")
    after = held_out.look("after", step, ranks)
    recorder.saw("after", step, after)
    laps.end("evaluate")
    graphs.take_away(policy.model)
    weights = sharding.gather_weights(policy.model)
    if not ranks.is_main:
        ranks.shut_down()
        return 0
    run.start_phase("save", "model and tokenizer")
    after_training.save(policy.model, policy.tokenizer, run.path / "model", weights)
    laps.end("save")
    title = f"{name}, seed {settings['seed']}: " + ", ".join(
        f"{metric} {before[metric]:.2f} -> {after[metric]:.2f}" for metric in task.headline
    )
    no_curves = plot(run, run.read_evaluations(), task.curves, title)
    laps.end("plot")
    result = {
        "schema": 1,
        "recipe": name,
        "status": "stopped" if recorder.stopped_by else "done",
        "stopped_by": recorder.stopped_by or None,
        "before": before,
        "after": after,
        "baselines": task.baselines(),
        "data": task.describe(),
        "seconds": laps.seconds,
        "shares": recorder.shares(),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "ranks": ranks.world_size,
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in ("torch", "transformers", "trl", "peft", "datasets")},
        **policy.describe(recorder.peak),
        "steps": step,
        "resumed_from": first_step or None,
        "curves": None if no_curves else "curves.png",
        "no_curves": no_curves or None,
    }
    run.write_result(result)  # what comes now may fail, and the run is done all the same
    result |= after_training.finish(run, policy, settings, result)
    run.write_result(result)
    run.write_event("done", result=result)
    ranks.shut_down()
    return 0


class Laps:
    """Seconds of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def end(self, phase: str) -> None:
        """What was done since the last end was this."""
        now = time.monotonic()
        self.seconds[phase] = round(self.seconds.get(phase, 0.0) + now - self._began, 2)
        self._began = now


def make_config(kind: Any, arguments: dict[str, Any]) -> Any:
    """GRPOConfig; what it refuses is a setting of ours that nothing here refused."""
    try:
        return kind(**arguments)
    except ValueError as error:
        raise BadInput(
            f"{kind.__name__} refuses the settings: {error}",
            expected="settings that TRL and transformers take",
            hint="envdoctor train --settings",
        ) from error


def check_surroundings(settings: dict[str, Any]) -> None:
    """Nobody should learn after hours that a package or a token is missing."""
    if settings["push_to"] and not os.environ.get("HF_TOKEN"):
        raise BadInput(
            f"push_to = {settings['push_to']}, but HF_TOKEN is not set",
            expected="a token that may write there, in the environment alone",
            hint="export HF_TOKEN, or --set push_to=",
        )
    for name in settings["report_to"]:
        if importlib.util.find_spec(name) is None:
            raise BadInput(
                f"report_to = {name}, but {name} is not installed in {sys.prefix}",
                expected=f"the package {name} beside torch and TRL",
                hint=f"uv pip install --python {sys.executable} {name}",
            )


def prepare_process(settings: dict[str, Any], run: RunDirectory) -> None:
    """The environment variables that the libraries read when they are imported."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))  # read by transformers 5
    os.environ.setdefault("WANDB_DIR", str(run.path))
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not settings["model"]:
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")  # nothing here has a name on any hub
    if not settings["model"] and settings["hidden_size"] <= 128:
        # Two threads take 27 s for `sort` on two idle cores and 196 s beside another busy process, since they spin at
        # every barrier; one thread takes 34 s either way (200 steps).
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    elif "LOCAL_WORLD_SIZE" in os.environ:
        cores = (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores)))
    if "WORLD_SIZE" not in os.environ and not settings["device_map"]:
        # Several GPUs in one process would make transformers wrap the model in DataParallel, which cannot generate.
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


def choose_device(wanted: str) -> str:
    """cpu or cuda; this process's own GPU among several."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadInput(
            f"device = cuda, but torch {torch.__version__} sees no GPU", expected="a GPU", hint="--set device=cpu"
        )
    if wanted == "cpu" or not torch.cuda.is_available():
        return "cpu"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return "cuda"


def plot(run: RunDirectory, looks: list[dict[str, Any]], panels: list[tuple[str, list[str]]], title: str) -> str:
    """Draw curves.png; why not, when it cannot be."""
    run.start_phase("plot", "curves.png")
    try:
        from run.curves import draw_curves

        draw_curves(run.path / "metrics.csv", looks, panels, title, run.path / "curves.png")
    except Exception as error:  # no matplotlib, no room, a font that is damaged: the training is worth more
        return f"curves.png was not drawn: {error}"
    return ""


if __name__ == "__main__":
    end(main())
