"""Planning a training run, writing its run directory, and starting the trainer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envdoctor import __version__
from envdoctor.core.directories import PACKAGE, bundled_directory
from envdoctor.core.errors import BadInput
from envdoctor.core.files import read_file
from envdoctor.core.processes import CompletedProcess, run
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import CONTROL
from envdoctor.redact.output import without_secrets
from envdoctor.training.launchers import node
from envdoctor.training.launchers.plan import plan_launch
from envdoctor.training.launchers.records import Launch, LaunchContext, LaunchOptions, RunSpec
from envdoctor.training.launchers.start import check_job, raise_limits, submit, write_files
from envdoctor.training.recipes import trainer_program
from envdoctor.training.runs.directory import (
    LOG_FILE,
    REJECTED_RUN_FILES,
    RUN_FILE,
    Engine,
    is_rejected_run,
    report_write_errors,
    require_empty_directory,
    require_no_trainer,
)
from envdoctor.training.runs.events import EVENTS_FILE, Event, EventReader

SAVE_SECONDS = 60.0  # after an interrupt: the current step and a checkpoint
RUN_SECONDS = 30 * 24 * 3600.0  # in practice unlimited: a run ends by itself or by its user


class Run(Record, frozen=True):
    """A planned run: its directory and the command that starts the trainer in it."""

    directory: str
    recipe: str
    settings: dict[str, Any]
    python: str
    command: tuple[str, ...]
    resume: str = ""
    engine: Engine = "grpo"
    launch: Launch | None = None


def plan_run(
    directory: Path,
    recipe: str,
    settings: Mapping[str, Any],
    python: Path,
    *,
    context: LaunchContext,
    options: LaunchOptions | None = None,
    resume: str = "",
    engine: Engine = "grpo",
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Plan a run and its launch. `environment`: the variables of the environment's profile."""
    _require_one_line(directory, python)
    folders = (directory, *_environment_folders(python), bundled_directory("train"), PACKAGE)
    spec = RunSpec(
        directory=str(directory),
        recipe=recipe,
        engine=engine,
        settings=dict(settings),
        python=str(python),
        program=(str(trainer_program(engine)), str(directory)),
        node_program=node.__file__,
        resume=resume,
        environment=dict(environment or {}),
        folders=tuple(dict.fromkeys(map(str, folders))),
    )
    launch = plan_launch(options or LaunchOptions(), spec, context)
    return Run(str(directory), recipe, dict(settings), str(python), launch.command, resume, engine, launch)


def _require_one_line(*paths: Path) -> None:
    """Raise BadInput for a path with control characters: a newline in a job file would begin another command."""
    for path in paths:
        if CONTROL.search(str(path)):
            raise BadInput(
                f"{str(path)!a} has control characters",
                expected="a path of one line",
                hint="envdoctor train RECIPE --run runs/NAME",
            )


def _environment_folders(python: Path) -> Iterator[Path]:
    """Yield the environment's directory and its base Python's. A container has its own system Python."""
    yield python.parent.parent
    base = python.resolve().parent.parent
    if base not in (Path("/usr"), Path("/usr/local"), Path("/")):
        yield base


def prepare_run(planned: Run, provenance: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Create the run directory and write run.json and the launcher's files into it.

    `arguments`: the user's command line, to start or resume the run with the same options:
    {"recipe", "assignments", "options"}.
    """
    directory, launch = Path(planned.directory), planned.launch
    require_empty_directory(directory, planned.recipe)
    rejected = is_rejected_run(directory)
    if launch and launch.submits:
        check_job(launch)
    configuration = {
        "schema": 1,
        "recipe": planned.recipe,
        "engine": planned.engine,
        "settings": planned.settings,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "envdoctor": __version__,
        "python": planned.python,
        "command": list(planned.command),
        "launcher": launch.launcher if launch else "local",
        "asked": arguments,
        **provenance,
    }
    with report_write_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name in REJECTED_RUN_FILES if rejected else ():
            (directory / name).unlink(missing_ok=True)
        (directory / "run.json").write_text(json.dumps(configuration, indent=1) + "\n")
        if launch:
            write_files(launch, directory)


def prepare_resume(planned: Run) -> None:
    """Write changed settings of a run that is resumed into its run.json, and the launcher's files."""
    directory = Path(planned.directory)
    require_no_trainer(directory)
    if planned.launch and planned.launch.submits:
        check_job(planned.launch)
    with report_write_errors(directory):
        _write_changed_settings(directory / RUN_FILE, planned.settings)
        (directory / LOG_FILE).open("ab").close()
        if planned.launch:
            write_files(planned.launch, directory)


def _write_changed_settings(file: Path, settings: Mapping[str, Any]) -> None:
    configuration = json.loads(file.read_text(encoding="utf-8"))
    changed = {name: value for name, value in settings.items() if configuration["settings"].get(name) != value}
    if not changed:
        return
    change = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "settings": changed}
    configuration["settings"] |= changed
    configuration["resumed_with"] = [*configuration.get("resumed_with", ()), change]
    temporary = file.with_suffix(".json.part")
    temporary.write_text(json.dumps(configuration, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)


def submit_run(planned: Run) -> str:
    """Submit a run's job to SLURM and return the job's number."""
    assert planned.launch
    return submit(planned.launch)


def start_run(
    planned: Run,
    environment: Mapping[str, str],
    on_event: Callable[[Event], None],
    *,
    pass_fds: Sequence[int] = (),
) -> CompletedProcess:
    """Run the trainer until it ends and pass each of its events to `on_event`. It inherits the files `pass_fds`."""
    directory = Path(planned.directory)
    events = EventReader(directory / EVENTS_FILE, from_end=True)  # the events of earlier starts were shown before

    def poll(_: str) -> None:
        for event in events.read_new():
            on_event(event)

    variables = planned.launch.environment if planned.launch else ()
    launch_environment = {variable.name: variable.value for variable in variables if variable.value}
    # An empty PYTHONDONTWRITEBYTECODE lets Python cache bytecode: torch and transformers then start faster next time.
    defaults = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
    raise_limits()
    return run(
        planned.command,
        timeout=RUN_SECONDS,
        env=defaults | launch_environment | dict(environment),
        log=directory / LOG_FILE,
        on_output=poll,
        grace=SAVE_SECONDS,
        pass_fds=pass_fds,
        redact=without_secrets,  # the trainer redacts what Python prints, and no library's output from C
    )


def read_result(directory: Path) -> dict[str, Any]:
    """Read the trainer's result.json; empty where the run did not complete."""
    try:
        result = json.loads(read_file(directory / "result.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def parse_trainer_error(output: str) -> BadInput | None:
    r"""Parse the last error that the trainer printed.

    The trainer writes no events into a run that belongs to another process.
    Sample: "error: steps = 0\nexpected: steps is at least 1\nhint: --set max_steps=100\n"
    """
    errors = re.findall(r"^error: (.*)\nexpected: (.*)\nhint: (.*)$", output, re.MULTILINE)
    return BadInput(errors[-1][0], expected=errors[-1][1], hint=errors[-1][2]) if errors else None
