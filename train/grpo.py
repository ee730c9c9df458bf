"""The bundled trainer: GRPO, SFT or DPO with TRL, in a run directory from which a killed run can be resumed.

    PYTHON -B train/grpo.py RUN_DIR [--resume latest|CHECKPOINT]     # RUN_DIR/run.json has the recipe and settings
    PYTHON -B train/grpo.py RUN_DIR --dry-run --processes 2          # only the checks before the data and the model
    echo '{"recipe": "tes", "settings": {"data": "..."}}' | PYTHON -B train/grpo.py --check

It runs in the training stack's interpreter and does not import envdoctor. `--check` only needs the standard library.
Exit status: 0 completed, 1 crash, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from checks.batches import apply_accumulation
from checks.cuda_graphs import check_cuda_graphs
from checks.fsdp import check_fsdp_settings
from checks.model_names import resolve_local_folder
from data.checks import check_prompt_count
from generation.vllm_server import check_length, wait_for_server
from run.alarms import check_alarm_names
from run.checkpoints import checkpoint_step
from run.directory import RunDirectory
from run.interrupt import Interrupt
from run.process import PhaseTimer, check_requirements, choose_device, prepare_process
from run.program import exit_process, make_parser, run_check, run_to_exit_status
from run.proven_kernels import check_failed_probes
from run.resumed_settings import record_settings
from settings import SETTINGS_FILE, Recipe, list_recipes, read_recipe, resolve_settings
from tasks.dataset import DatasetTask, check_dataset
from tasks.examples import ExamplesTask, check_examples
from tasks.sort import SortTask, check_sort
from tasks.sort_examples import SortExamples, check_sort_examples
from tasks.tes import TesTask, check_tes

TASKS: dict[str, dict[str, Any]] = {
    "prompts": {
        "sort": (check_sort, SortTask),
        "tes": (check_tes, TesTask),
        "dataset": (check_dataset, DatasetTask),
    },
    "examples": {
        "sort": (check_sort_examples, SortExamples),
        "dataset": (check_examples, ExamplesTask),
    },
}


def tasks(settings: dict[str, Any]) -> tuple[Any, Any]:
    """The check and the class of a task: GRPO needs prompts, SFT and DPO examples."""
    data = "prompts" if settings["trainer"] == "grpo" else "examples"
    return TASKS[data][settings["task"]]


def check(recipe: Recipe, settings: object, source: str = "settings") -> tuple[dict[str, Any], dict[str, Any]]:
    """Check everything about a run that needs no torch; return every setting, and a summary of the data."""
    settled = resolve_settings(recipe, settings, source)
    if settled["trainer"] == "grpo":
        apply_accumulation(settled, dict(settings), int(os.environ.get("WORLD_SIZE", "1")))
    settled |= {name: resolve_local_folder(name, settled[name]) for name in ("model", "tokenizer")}
    check_alarm_names(settled["stop_on"])
    check_fsdp_settings(settled)
    check_cuda_graphs(settled)
    check_task, _ = tasks(settled)
    return check_task(settled)


def freeze_objects() -> None:
    """Exclude the present objects from garbage collection, which would walk them many times per step with vLLM."""
    gc.collect()
    gc.freeze()


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = make_parser("grpo.py", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="check settings, packages and GPUs, and stop")
    parser.add_argument("--processes", type=int, default=1, help="processes of the run that --dry-run checks")
    arguments = parser.parse_args()
    if arguments.check:
        return run_check(sys.stdin.buffer.read(), check, recipe="sort", settings_file=SETTINGS_FILE)
    if arguments.run_dir is None:
        parser.error("RUN_DIR is missing")
    is_main = os.environ.get("RANK", "0") == "0"
    run = RunDirectory(arguments.run_dir.resolve(), is_writer=is_main and not arguments.dry_run)
    dry_run = arguments.processes if arguments.dry_run else 0
    return run_to_exit_status(run, lambda: train(run, arguments.resume, dry_run=dry_run), print_errors=is_main)


def train(run: RunDirectory, resume: str | None, *, dry_run: int) -> int:  # noqa: C901, PLR0915  (a script: read from top to bottom)
    """One run, from run.json to result.json. `dry_run`: only check a run of that many processes."""
    interrupt, timer = Interrupt(), PhaseTimer()

    # 1. Settings. They are checked before the libraries are imported.
    run.lock()
    request = run.read_run_json()
    name = request["recipe"]
    # A recipe may have been deleted since: run.json contains every setting.
    recipe = read_recipe(name) if name in list_recipes() else Recipe(name, "", {})
    settings, summary = check(recipe, request.get("settings", {}), str(run.path / "run.json"))
    checkpoint = run.prepare_resume(resume)
    record_settings(run, settings, str(run.path / "run.json"), resumed=checkpoint is not None)
    first_step = checkpoint_step(checkpoint) if checkpoint else 0
    if checkpoint and run.is_finished(checkpoint, max(0, settings["max_steps"])):
        return 0
    proven = request.get("proven") or {}
    check_failed_probes(settings, proven)
    check_requirements(settings)

    # 2. Libraries.
    run.start_phase("load", "torch, transformers, TRL")
    gc.disable()  # while modules are loaded, it takes a quarter of the time and finds almost nothing
    prepare_process(settings, run)
    import torch
    from modeling import fsdp
    from modeling.loading import check_packages
    from modeling.policy import has_reference, make_policy, save_reference_model
    from modeling.saving import finish, save
    from modeling.warm_up import warm_up
    from patches.table import describe_untested, remove_patches
    from run.ranks import Ranks
    from run.recorder import TrainingComplete
    from run.result import draw_result, make_result
    from trainers.parts import RunParts
    from trainers.select import select_trainer
    from transformers import PrinterCallback
    from transformers.utils import logging as transformers_logging
    from trl_config.common import make_config
    from trl_config.defaults import changed_defaults
    from trl_config.versions import InstalledVersions, RunContext

    config_class, make_arguments, construct = select_trainer(settings["trainer"])

    transformers_logging.disable_progress_bar()
    device = choose_device(use_cpu=settings["use_cpu"])
    ranks = Ranks(device)
    installed = InstalledVersions.detect(config_class)
    context = RunContext(output=str(run.checkpoints), device=device, ranks=dry_run or ranks.world_size)
    make_arguments(settings, installed, context)  # refuses what this TRL lacks before the model is loaded
    fsdp.check_environment(settings, checkpoint)
    check_packages(settings, device)
    if dry_run:
        return 0
    server_length = wait_for_server(settings, run.note) if ranks.is_main else 0
    timer.end("load")

    # 3. Data, tokenizer, model.
    run.start_phase("data", ", ".join(f"{key} {value}" for key, value in summary.items() if isinstance(value, int)))
    torch.manual_seed(settings["seed"])
    task = tasks(settings)[1](settings)
    policy = make_policy(run, task, settings, device=device, proven=proven, ranks=ranks)
    check_prompt_count(len(task.train), settings)  # the tokenizer may have filtered long prompts
    run.record_dataset(task.train, task.held_out)
    timer.end("data")

    # 4. TRL's configuration.
    arguments, notes = make_arguments(settings, installed, policy.complete_context(context))
    run.note(*notes, *changed_defaults(config_class, arguments, installed.versions, settings["trainer"]))
    check_length(server_length, policy.longest_prompt + policy.completion, settings)
    config = make_config(config_class, arguments)
    if settings["fsdp"]:
        fsdp.configure_mixed_precision(config, policy.autocast)

    # 5. Warm-up of the tiny model: GRPO compares completions, so some must be correct from the start.
    if checkpoint is None and settings["sft_steps"] and not settings["model"]:
        run.start_phase("warmup", f"{settings['sft_steps']} steps of {settings['sft_batch_size']}")
        warm_up(policy, task, settings, run)
        timer.end("warmup")
    if has_reference(settings):
        save_reference_model(run, policy, fresh=checkpoint is None, ranks=ranks)
    if checkpoint:
        run.archive_files_after(checkpoint)

    # 6. TRL's trainer, with the patches of patches/table.py.
    parts = RunParts(run, task, policy, settings, ranks, device, installed, interrupt, first_step)
    training = construct(parts, config)
    trainer, recorder, patches = training.trainer, training.recorder, training.patches
    trainer.remove_callback(PrinterCallback)
    run.write_event("patches", active=patches.active)
    run.log(f"patches: {', '.join(patches.active)}")
    run.note(*describe_untested(patches))
    freeze_objects()
    gc.enable()
    timer.end("load")

    # 7. Baseline evaluation.
    if checkpoint is None:
        run.start_phase("evaluate", f"before {settings['trainer'].upper()}")
        baseline = training.evaluate("before", 0)
        timer.end("evaluate")
    else:
        baseline = run.read_baseline_evaluation()
    recorder.record_evaluation("before", 0, baseline)

    # 8. Training.
    epochs = f"on, {settings['num_train_epochs']:g} epochs"
    last = f"to {settings['max_steps']}" if settings["max_steps"] > 0 else epochs
    devices = f"{device} x {ranks.world_size}" if ranks.world_size > 1 else device
    run.start_phase("train", f"steps {first_step + 1} {last} on {devices}")
    interrupt.training = True
    freeze_objects()
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except TrainingComplete:
        run.note(f"step {first_step} was the last one: it is evaluated and saved")
    except Exception:
        recorder.save_after_error()
        raise
    interrupt.training = False
    timer.end("train")
    step = trainer.state.global_step
    if interrupt.requested_at is not None and step < trainer.state.max_steps:
        run.write_event("interrupted", step=step)
        run.log(f"interrupted after step {step}; continue with --resume latest")
        return 130

    # 9. Final evaluation.
    run.start_phase("evaluate", f"after {settings['trainer'].upper()}")
    final = training.evaluate("after", step)
    recorder.record_evaluation("after", step, final)
    timer.end("evaluate")

    # 10. Saving.
    remove_patches(patches)
    weights = fsdp.gather_state_dict(policy.model)
    if not ranks.is_main:
        ranks.shut_down(trainer)
        return 0
    run.start_phase("save", "model and tokenizer")
    save(policy.model, policy.tokenizer, run.path / "model", weights, autocast=policy.autocast)
    timer.end("save")
    plot_error = draw_result(run, task, f"{name}, seed {settings['seed']}", baseline, final)
    timer.end("plot")
    result = make_result(
        recipe=name,
        trainer=settings["trainer"],
        recorder=recorder,
        policy=policy,
        task=task,
        baseline=baseline,
        final=final,
        seconds=timer.seconds,
        device=device,
        ranks=ranks.world_size,
        patches=patches.active,
        steps=step,
        resumed_from=first_step,
        plot_error=plot_error,
    )
    run.write_result(result)  # before merging and pushing, which may fail
    result |= finish(run, policy, settings, result)
    run.write_result(result)
    run.write_event("done", result=result)
    ranks.shut_down(trainer)
    return 0


if __name__ == "__main__":
    exit_process(main())
