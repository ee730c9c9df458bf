"""Train with verl: prepare data and options, run the trainer, record its metrics, merge and push the model.

    PYTHON -B train/verl_run.py RUN_DIR [--resume latest|CHECKPOINT] [--dry-run]     # settings from RUN_DIR/run.json
    echo '{"recipe": "verl-sft", "settings": {"data": "..."}}' | PYTHON -B train/verl_run.py --check

It runs in the interpreter that has verl, and imports neither the tool nor verl: verl's trainers are child processes.
`--check` needs only the standard library.
Exit status: 0 done, 1 crash, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks.model_names import resolve_local_folder
from run.alarms import check_alarm_names
from run.directory import RunDirectory, replace_nonfinite
from run.program import make_parser, run_check, run_to_exit_status
from run.resumed_settings import record_settings
from settings import BadInput, Recipe, list_recipes, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts, resolve_reward_function
from verl_engine.dataset import check_data, check_held_out_count, count_steps

if TYPE_CHECKING:
    from verl_engine.process import Children
    from verl_engine.recorder import Recorder


def check(recipe: Recipe, settings: object, source: str = "settings") -> tuple[dict[str, Any], dict[str, Any]]:
    """Check everything that can be checked without verl. Return (every setting, summary)."""
    resolved = resolve_settings(recipe, settings, source, file=FILE, find_conflicts=find_conflicts)
    check_alarm_names(resolved["stop_on"])
    paths = {name: resolve_local_folder(name, resolved[name]) for name in ("model", "critic_model")}
    reward = {"reward_function": resolve_reward_function(resolved["reward_function"])}
    resolved, summary = check_data(resolved | paths | reward)
    if "train_rows" in summary:
        summary["steps"] = count_steps(resolved, summary["train_rows"])
        check_held_out_count(resolved, summary["held_out_rows"])
    return resolved, summary


def main() -> int:
    """Parse the command line, run, and return the exit status."""
    parser = make_parser("verl_run.py", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="check the options and print the commands only")
    arguments = parser.parse_args()
    if arguments.check:
        return run_check(sys.stdin.buffer.read(), check, recipe="verl-sft", settings_file=FILE)
    if arguments.run_dir is None:
        parser.error("RUN_DIR is missing")
    is_first_node = os.environ.get("NODE_RANK", "0") == "0"
    run = RunDirectory(arguments.run_dir.resolve(), is_writer=is_first_node and not arguments.dry_run)
    return run_to_exit_status(run, lambda: train(run, arguments.resume, dry_run=arguments.dry_run), print_errors=True)


def train(run: RunDirectory, resume: str | None, *, dry_run: bool) -> int:  # noqa: C901, PLR0912, PLR0915  (reads from top to bottom)
    """Execute one run, from run.json to result.json."""
    from verl_engine.alarms import alarm_notes
    from verl_engine.checkpoints import Checkpoints, step_of
    from verl_engine.commands import expand_variables, trainer_environment, training_commands
    from verl_engine.compose import compose_options, find_verl
    from verl_engine.config_options import trainer_module, verl_options
    from verl_engine.dataset import wait_for_data, write_data
    from verl_engine.inventory import detect_inventory
    from verl_engine.launch_context import ON_CPU, build_launch_context, check_gpus
    from verl_engine.merge import merge_checkpoint
    from verl_engine.options import TRACKED_SFT, format_overrides
    from verl_engine.process import Children
    from verl_engine.ray_cpus import check_ray_cpus
    from verl_engine.recorder import Recorder
    from verl_engine.reward_wrapper import needs_wrapper, wrapper_source

    # 1. The settings.
    run.lock()
    configuration = run.read_run_json()
    name = configuration["recipe"]
    # run.json contains every setting, so the recipe's file may be missing.
    recipe = read_recipe(name) if name in list_recipes() else Recipe(name, "", {})
    settings, summary = check(recipe, configuration.get("settings", {}), str(run.path / "run.json"))
    if run.is_writer and not resume:
        run.check_unused()

    # 2. The options of the installed verl, checked by its own configuration before any process is started.
    children = Children()
    run.start_phase("options", "composed by verl's own configuration")
    package, version = find_verl()
    checkpoints = Checkpoints(run.checkpoints, tracked=settings["task"] != "sft" or version >= TRACKED_SFT)
    checkpoint = checkpoints.choose(resume) if resume else None
    record_settings(run, settings, str(run.path / "run.json"), resumed=checkpoint is not None)
    first_step = step_of(checkpoint)
    inventory = detect_inventory(settings, children)
    context, context_notes = build_launch_context(run, settings, version, inventory, checkpoint, recipe=name)
    options, option_notes = verl_options(settings, version, context)
    module, config = trainer_module(settings["task"], version)
    overrides = format_overrides(options, [*settings["options"], "hydra.run.dir=verl"])
    composed = compose_options(package / "trainer/config", config, overrides, module)
    rollout_folder = composed["trainer"].get("rollout_data_dir")  # absent in sft; a user option may change it
    alarms = alarm_notes(settings["task"], has_completions=bool(rollout_folder))
    for note in [*context_notes, *option_notes, *alarms]:
        run.note(note)
        if dry_run:
            print(f"note: {note}", file=sys.stderr)
    metrics = Path(context.metrics)
    environment = trainer_environment(run.path, metrics)
    if context.nodes > 1 and "RAY_ADDRESS" in os.environ:
        environment["RAY_ADDRESS"] = os.environ["RAY_ADDRESS"]  # the Ray of this run; a node may run others
    commands = training_commands(
        settings, version, context.nodes, context.gpus,
        overrides=overrides, python=sys.executable, environment=environment,
    )  # fmt: skip
    if dry_run:
        for command in commands:
            print(f"# {command.where}: {command.purpose}\n{command.shell()}\n")
        return 0
    check_gpus(settings, inventory, context.gpus)
    if ON_CPU not in settings["options"]:
        check_ray_cpus(settings, version, cpus=context.cpus, gpus=context.gpus)
    # The launcher of several nodes has already started Ray.
    trainer = next(command for command in commands if command.argv[0] == sys.executable)

    # 3. The data in verl's format.
    run.start_phase("data", settings["data"])
    if run.is_writer:
        summary |= write_data(settings, run.path / "data")
        run.write_event("data", summary=summary, lengths=None)
    else:
        summary |= wait_for_data(run.path / "data")
    steps = count_steps(settings, summary["train_rows"])
    check_held_out_count(settings, summary["held_out_rows"])
    if first_step >= steps:
        raise BadInput(
            f"{checkpoint} is the last step of the run, {steps}", expected="an earlier checkpoint, or more epochs",
            hint="start a new run with more --set num_train_epochs=N",
        )  # fmt: skip
    (run.path / "verl").mkdir(exist_ok=True)
    (run.path / "verl" / "options.json").write_text(
        json.dumps(replace_nonfinite(composed), indent=1, default=str) + "\n"
    )
    if run.is_writer and needs_wrapper(settings["reward_function"], version):
        (run.path / "verl" / "reward.py").write_text(
            wrapper_source(settings["reward_function"]), encoding="utf-8"
        )  # fmt: skip
    lines = [f"# {command.where}: {command.purpose}\n{command.shell()}\n" for command in commands]
    (run.path / "verl" / "commands.sh").write_text("".join(lines))

    # 4. The training.
    recorder = Recorder(
        run,
        settings,
        version,
        metrics,
        steps=steps,
        first_step=first_step,
        gpus=context.nodes * context.gpus,
        checkpoints=checkpoints,
        held_out_rows=summary["held_out_rows"],
        rollout_folder=run.path / rollout_folder if rollout_folder else None,
    )
    one_node = f"{context.gpus} GPU{'s' * (context.gpus > 1)}"
    devices = f"{context.nodes} x {context.gpus} GPUs" if context.nodes > 1 else one_node
    run.start_phase("train", f"steps {first_step + 1} to {steps} by {module} of verl {version} on {devices}")
    status = follow(children, recorder, expand_variables(trainer.argv), trainer.environment)
    recorder.finish()
    last = checkpoints.latest()
    exit_code = report_end(run, recorder, status, last, interrupted=children.interrupted)
    if exit_code or not run.is_writer:
        return exit_code

    # 5. The result, the merged model, the upload.
    result = {
        "schema": 1,
        "recipe": name,
        "status": "stopped" if recorder.stopped_by else "done",
        "stopped_by": recorder.stopped_by or None,
        "before": recorder.evaluations.get("before"),
        "after": recorder.evaluations.get("after"),
        "data": summary,
        "seconds": recorder.seconds(),
        "gpus": context.nodes * context.gpus,
        "gpu": inventory.name or None,
        "versions": {"python": platform.python_version(), "verl": str(version), **inventory.versions},
        "steps": recorder.step,
        "resumed_from": first_step or None,
        "checkpoint": str(last.relative_to(run.path)) if last else None,
    }
    if settings["merge"] and (last is not None or not recorder.stopped_by):
        shards = checkpoints.shards(last, settings["task"])
        run.start_phase("merge", f"{shards.relative_to(run.path)} into model")
        result["merged"] = merge_checkpoint(
            run, children, shards, settings, version=version, environment=environment, result=result
        )
        if settings["hub_model_id"]:
            result["pushed"] = push(run, settings["hub_model_id"])
    run.write_result(result)
    run.write_event("done", result=result)
    return 0


def report_end(run: RunDirectory, recorder: Recorder, status: int, last: Path | None, *, interrupted: bool) -> int:
    """Log how the trainer ended. Return 0 for a complete or stopped run, else the exit status of this program."""
    from verl_engine.checkpoints import step_of

    if interrupted:
        run.write_event("interrupted", step=recorder.step)
        resume = f"--resume latest continues from step {step_of(last)}" if last else "no checkpoint was saved"
        run.log(f"interrupted after step {recorder.step}; {resume}")
        return 130
    if recorder.stopped_by:
        saved = f"the last checkpoint is of step {step_of(last)}" if last else "no checkpoint was saved"
        run.note(f"ended by stop_on: {recorder.stopped_by} at step {recorder.step}; {saved}")
    elif status:
        run.write_event("error", kind="crash", message=recorder.describe_end(status), hint="tail train.log")
        return 1
    elif run.is_writer and recorder.step < recorder.steps:
        # Resuming from a checkpoint at the end of an epoch restores an exhausted data loader, and verl ends.
        run.write_event(
            "error", kind="crash", message=f"verl's trainer ended after step {recorder.step} of {recorder.steps}",
            hint="if it was resumed at the end of an epoch: --resume with the checkpoint before it",
        )  # fmt: skip
        return 1
    return 0


def follow(children: Children, recorder: Recorder, argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the trainer until its end or an alarm of stop_on, and return its exit status."""

    def on_line(line: str) -> None:
        recorder.read_line(line)
        stop_on_alarm()

    def on_wait() -> None:
        recorder.on_wait()
        stop_on_alarm()

    def stop_on_alarm() -> None:
        if recorder.stopped_by:
            children.stop()

    return children.run(argv, environment, recorder.run.path, on_line, on_wait)


def push(run: RunDirectory, repository: str) -> str | None:
    """Push the merged model and return its URL. A failed upload is only noted, since the model is saved."""
    from modeling import saving

    run.start_phase("push", repository)
    try:
        return saving.push(run.path / "model", repository, os.environ.get("HF_TOKEN", ""))
    except BadInput as error:
        run.note(f"not pushed: {error.message}; {error.hint}")
        return None


if __name__ == "__main__":
    sys.exit(main())
