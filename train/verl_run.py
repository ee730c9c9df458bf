"""A run by verl: data, options, their check, the trainer, its numbers, the merged model, the hub.

    PYTHON -B train/verl_run.py RUN_DIR [--resume latest|CHECKPOINT] [--dry-run]     # RUN_DIR/run.json says what
    echo '{"recipe": "verl-sft", "settings": {"data": "..."}}' | PYTHON -B train/verl_run.py --check

It runs in the interpreter that has verl, imports nothing of the tool, and verl not either: verl's trainers are
started as processes. `--check` needs the standard library alone.
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
from settings import BadInput, Recipe, list_recipes, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts, find_reward
from verl_engine.dataset import check_data, check_held_out_count, count_steps

if TYPE_CHECKING:
    from verl_engine.process import Children
    from verl_engine.recorder import Recorder


def check(recipe: Recipe, settings: object, source: str = "settings") -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything about a run that can be checked without verl: (every setting, summary)."""
    settled = resolve_settings(recipe, settings, source, file=FILE, find_conflicts=find_conflicts)
    check_alarm_names(settled["stop_on"])
    paths = {name: resolve_local_folder(name, settled[name]) for name in ("model", "critic_model")}
    settled, summary = check_data(settled | paths | {"reward_function": find_reward(settled["reward_function"])})
    if "train_rows" in summary:
        summary["steps"] = count_steps(settled, summary["train_rows"])
        check_held_out_count(settled, summary["held_out_rows"])
    return settled, summary


def main() -> int:
    """Parse the command line, run, and turn every end into an exit status."""
    parser = make_parser("verl_run.py", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="check the options and print the commands, no more")
    arguments = parser.parse_args()
    if arguments.check:
        return run_check(sys.stdin.buffer.read(), check, recipe="verl-sft", settings_file=FILE)
    if arguments.run_dir is None:
        parser.error("RUN_DIR is missing")
    first = os.environ.get("NODE_RANK", "0") == "0"
    run = RunDirectory(arguments.run_dir.resolve(), is_writer=first and not arguments.dry_run)
    return run_to_exit_status(run, lambda: train(run, arguments.resume, dry=arguments.dry_run), tells=True)


def train(run: RunDirectory, resume: str | None, *, dry: bool) -> int:  # noqa: C901, PLR0912, PLR0915  (a story)
    """One run, from run.json to result.json."""
    from verl_engine.alarms import untold
    from verl_engine.commands import adapter_command, commands, fill_in, merge_command, trainer_environment
    from verl_engine.compose import compose_options, find_verl
    from verl_engine.config_options import trainer_module, verl_options
    from verl_engine.dataset import wait_for_data, write_data
    from verl_engine.launch_context import ON_CPU, Checkpoints, look_at_machine, refuse_missing_gpus, situation
    from verl_engine.merge import merge, model_card
    from verl_engine.merge_adapter import readable_shards
    from verl_engine.options import TRACKED_SFT, overrides
    from verl_engine.process import Children
    from verl_engine.ray_cpus import check_ray_cpus
    from verl_engine.recorder import Recorder
    from verl_engine.reward_wrapper import needs_plain_numbers, reward_text

    # 1. What to do.
    run.lock()
    configuration = run.read()
    name = configuration["recipe"]
    # A run outlives its recipe's file: run.json holds every setting, a bundled recipe's may be left out.
    recipe = read_recipe(name) if name in list_recipes() else Recipe(name, "", {})
    settings, summary = check(recipe, configuration.get("settings", {}), str(run.path / "run.json"))
    if run.is_writer and not resume:
        run.check_unused()

    # 2. verl as it is installed, and its options. Composed and checked by its own configuration before anything runs.
    children = Children()
    run.start_phase("options", "composed by verl's own configuration")
    package, version = find_verl()
    checkpoints = Checkpoints(run.checkpoints, tracked=settings["task"] != "sft" or version >= TRACKED_SFT)
    checkpoint = checkpoints.choose(resume) if resume else None
    machine = look_at_machine(settings, children)
    at, told = situation(run, settings, version, machine, checkpoint)
    options, notes = verl_options(settings, version, at)
    module, config = trainer_module(settings["task"], version)
    given = overrides(options, [*settings["options"], "hydra.run.dir=verl"])
    composed = compose_options(package / "trainer/config", config, given, module)
    dumps = composed["trainer"].get("rollout_data_dir")  # none in sft; a person's own options may say another
    for note in [*told, *notes, *untold(settings["task"], dumped=bool(dumps))]:
        run.note(note)
        if dry:
            print(f"note: {note}", file=sys.stderr)
    first_step = checkpoints.step(checkpoint) if checkpoint else 0
    metrics = Path(at.metrics)
    environment = trainer_environment(run.path, metrics)
    if (
        at.nodes > 1 and "RAY_ADDRESS" in os.environ
    ):  # of the Ray that was started for this run: a node may have others
        environment["RAY_ADDRESS"] = os.environ["RAY_ADDRESS"]
    planned = commands(
        settings, version, at.nodes, at.gpus, options=given, python=sys.executable, environment=environment
    )
    if dry:
        for command in planned:
            print(f"# {command.where}: {command.why}\n{command.shell()}\n")
        return 0
    refuse_missing_gpus(settings, machine, at.gpus)
    if ON_CPU not in settings["options"]:
        check_ray_cpus(settings, version, cpus=at.cpus, gpus=at.gpus)
    started = next(command for command in planned if command.argv[0] == sys.executable)  # a Ray of several nodes runs

    # 3. The rows in verl's form.
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
            f"{checkpoint} is at the run's end, step {steps}", expected="an earlier one, or more epochs",
            hint="start a new run with more --set epochs=N",
        )  # fmt: skip
    (run.path / "verl").mkdir(exist_ok=True)
    (run.path / "verl" / "options.json").write_text(
        json.dumps(replace_nonfinite(composed), indent=1, default=str) + "\n"
    )
    if run.is_writer and needs_plain_numbers(settings["reward_function"], version):
        (run.path / "verl" / "reward.py").write_text(reward_text(settings["reward_function"]), encoding="utf-8")
    (run.path / "verl" / "commands.sh").write_text("".join(f"# {c.where}: {c.why}\n{c.shell()}\n" for c in planned))

    # 4. verl trains.
    recorder = Recorder(
        run,
        settings,
        version,
        metrics,
        steps=steps,
        first_step=first_step,
        gpus=at.nodes * at.gpus,
        checkpoints=checkpoints,
        held_out_rows=summary["held_out_rows"],
        dumps=run.path / dumps if dumps else None,
    )

    where = f"{at.nodes} x {at.gpus} GPUs" if at.nodes > 1 else f"{at.gpus} GPU{'s' * (at.gpus > 1)}"
    run.start_phase("train", f"steps {first_step + 1} to {steps} by {module} of verl {version} on {where}")
    status = follow(children, recorder, fill_in(started.argv), started.environment)
    recorder.finish()
    last = checkpoints.newest()
    if children.asked:
        run.write_event("interrupted", step=recorder.step)
        go_on = f"--resume latest goes on from step {checkpoints.step(last)}" if last else "no checkpoint was saved"
        run.log(f"interrupted after step {recorder.step}; {go_on}")
        return 130
    if recorder.stopped_by:
        saved = f"the last checkpoint is of step {checkpoints.step(last)}" if last else "no checkpoint was saved"
        run.note(f"ended by stop_on: {recorder.stopped_by} at step {recorder.step}; {saved}")
    elif status:
        run.write_event(
            "error", kind="crash", message=recorder.describe_end(status), hint="read the end of train.log"
        )
        return 1
    elif run.is_writer and recorder.step < recorder.steps:
        # A checkpoint at the end of an epoch: the data loader that verl takes up has nothing left, and verl ends.
        run.write_event(
            "error", kind="crash", message=f"verl's trainer ended after step {recorder.step} of {recorder.steps}",
            hint="where it was resumed at the end of an epoch: --resume with the checkpoint before it",
        )  # fmt: skip
        return 1
    if not run.is_writer:
        return 0

    # 5. What came of it.
    result = {
        "schema": 1,
        "recipe": name,
        "status": "stopped" if recorder.stopped_by else "done",
        "stopped_by": recorder.stopped_by or None,
        "before": recorder.looks.get("before"),
        "after": recorder.looks.get("after"),
        "data": summary,
        "seconds": recorder.seconds(),
        "gpus": at.nodes * at.gpus,
        "gpu": machine.name or None,
        "versions": {"python": platform.python_version(), "verl": str(version), **machine.versions},
        "steps": recorder.step,
        "resumed_from": first_step or None,
        "checkpoint": str(last.relative_to(run.path)) if last else None,
    }
    merging = settings["merge"] and (last is not None or not recorder.stopped_by)
    if merging:
        shards = checkpoints.shards(last, settings["task"])
        run.start_phase("merge", f"{shards.relative_to(run.path)} into model")
        readable = readable_shards(shards, run.path / "verl/shards")
        model = run.path / "model"
        merging_by = [merge_command(sys.executable, readable, model, settings["trust_remote_code"], version)]
        merging_by += [adapter_command(sys.executable, model, settings)] if settings["lora_rank"] else []
        result["merged"] = merge(run, children, merging_by, shards, environment)
        (run.path / "model" / "README.md").write_text(model_card(result, settings), encoding="utf-8")
    if merging and settings["push_to"]:
        result["pushed"] = push(run, settings["push_to"])
    run.write_result(result)
    run.write_event("done", result=result)
    return 0


def follow(children: Children, recorder: Recorder, argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """The trainer to its end, or to that by an alarm of stop_on: its exit status."""

    def take(line: str) -> None:
        recorder.take(line)
        end_if_stopped()

    def wait() -> None:
        recorder.wait()
        end_if_stopped()

    def end_if_stopped() -> None:
        if recorder.stopped_by:
            children.stop()

    return children.run(argv, environment, recorder.run.path, take, wait)


def push(run: RunDirectory, repository: str) -> str | None:
    """The merged model's address on the hub; none where it was not taken: the run is done and saved all the same."""
    from modeling import saving as after

    run.start_phase("push", repository)
    try:
        return after.push(run.path / "model", repository, os.environ.get("HF_TOKEN", ""))
    except BadInput as error:
        run.note(f"not pushed: {error.message}; {error.hint}")
        return None


if __name__ == "__main__":
    sys.exit(main())
