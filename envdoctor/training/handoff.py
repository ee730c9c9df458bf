"""Hand off to the bundled trainer: settings from a recipe, a run directory written first, then a watched process."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envdoctor import __version__
from envdoctor.core.bundled import bundled
from envdoctor.core.decoding import convert, decode_toml
from envdoctor.core.errors import BadInput, EnvdoctorError, unknown_name
from envdoctor.core.paths import expanded
from envdoctor.core.processes import Finished, run
from envdoctor.core.records import Record
from envdoctor.training.launchers import node
from envdoctor.training.launchers.plan import plan_launch
from envdoctor.training.launchers.records import Ask, Launch, Situation, Work
from envdoctor.training.launchers.start import raise_limits, submit, try_job, write_files
from envdoctor.training.run_directories import (
    LOG,
    REFUSED,
    Engine,
    refuse_a_trained_run,
    require_new,
    was_refused,
    writing_into,
)

CHECK_SECONDS = 1800.0  # a million rows take half a minute or several; a file system may hang for ever
SAVE_SECONDS = 60.0  # for the step that runs and a checkpoint, when it is interrupted
RUN_SECONDS = 30 * 24 * 3600.0  # a run is stopped by its user or its end, not by us
WHAT = "a recipe in TOML"
HINT = "envdoctor train --list"

Setting = str | int | float | bool | list[str | int | float]
Event = dict[str, Any]
VOCABULARIES: dict[Engine, str] = {"grpo": "settings.toml", "verl": "verl_settings.toml"}
PROGRAMS: dict[Engine, str] = {"grpo": "grpo.py", "verl": "verl_run.py"}


class Word(Record, frozen=True):
    """A setting of the trainer: its default, what it means, what it takes, and the tasks that it belongs to."""

    name: str
    default: Setting
    says: str
    choices: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


class Recipe(Record, frozen=True):
    """What to train and how: the settings that differ from the vocabulary's defaults."""

    name: str = ""
    summary: str = ""
    settings: dict[str, Setting] = {}
    engine: Engine = "grpo"


class Checked(Record, frozen=True):
    """What the trainer's own check says: the recipe's name, every setting as it will be, a summary of the data."""

    recipe: str
    settings: dict[str, Any]
    summary: dict[str, Any]


class Run(Record, frozen=True):
    """A run directory and how to start the trainer in it."""

    directory: str
    recipe: str
    settings: dict[str, Any]
    python: str
    command: tuple[str, ...]
    resume: str = ""
    engine: Engine = "grpo"
    launch: Launch | None = None


def recipe_names() -> list[str]:
    """The bundled recipes."""
    return sorted(path.stem for path in (bundled("train") / "recipes").glob("*.toml"))


def read_recipe(name_or_file: str) -> Recipe:
    """A bundled recipe by name, or the user's own from a file, which is looked at before any parser reads it."""
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        path = expanded(name_or_file)
    elif name_or_file in recipe_names():
        path = bundled("train") / "recipes" / f"{name_or_file}.toml"
    else:
        raise unknown_name("recipe", name_or_file, recipe_names(), hint=HINT)
    return convert(decode_toml(path, what=WHAT, hint=HINT), Recipe, where=str(path), what=WHAT, hint=HINT)


def recipe_name(name_or_file: str) -> str:
    """What a recipe's runs call it: a file of one's own says its name, or has one."""
    own = expanded(name_or_file)
    return read_recipe(name_or_file).name or own.stem if own.suffix == ".toml" and own.is_file() else name_or_file


def check_settings(recipe: str, assignments: Sequence[str] = ()) -> Checked:
    """Let the trainer settle a recipe with `key=value` assignments and look at the data; nothing is written.

    The trainer's vocabulary is the one place that knows what a setting may be.
    """
    request = json.dumps({"recipe": recipe, "assignments": list(assignments)}).encode()
    program = trainer(engine_of(recipe))
    result = run([sys.executable, "-B", program, "--check"], deadline=CHECK_SECONDS, stdin=request, cwd=Path.cwd())
    try:
        answer = json.loads(result.output)
    except ValueError as error:
        if result.timed_out:
            raise EnvdoctorError(
                f"settings and data of {recipe} were not looked through: the check {result.ending}",
                expected="data that can be read in that time",
                hint="--set data=PATH to fewer rows, or to a disk of this machine",
            ) from error
        raise EnvdoctorError(
            f"the trainer's check {result.ending} without an answer: {result.output.strip()[-300:]}",
            expected="one JSON object",
            hint="this is a fault of envdoctor: please report it",
        ) from error
    if not answer["ok"]:
        problem = answer["error"]
        raise BadInput(problem["message"], expected=problem.get("expected", ""), hint=problem.get("hint", ""))
    return Checked(answer["recipe"], answer["settings"], answer["summary"])


def vocabulary(engine: Engine = "grpo") -> tuple[Word, ...]:
    """Every setting of a trainer."""
    path = bundled("train") / VOCABULARIES[engine]
    table = decode_toml(path, what="the trainer's vocabulary", hint=HINT)
    return tuple(
        Word(name, word["default"], word["help"], tuple(word.get("choices", ())), tuple(word.get("tasks", ())))
        for name, word in table.items()
    )


def engine_of(recipe: str) -> Engine:
    """Which trainer a recipe is for."""
    return read_recipe(recipe).engine


def size_assignments(ask: Ask, engine: Engine, given: Sequence[str]) -> tuple[str, ...]:
    """--nodes and --gpus as verl's settings, since it starts its processes itself; what --set says counts."""
    if engine != "verl":
        return ()
    named = {assignment.partition("=")[0] for assignment in given}
    sizes = {"nodes": ask.nodes, "gpus": ask.gpus}
    return tuple(f"{name}={number}" for name, number in sizes.items() if number and name not in named)


def trainer(engine: Engine = "grpo") -> Path:
    """The trainer's program."""
    return bundled("train") / PROGRAMS[engine]


def prepare_run(planned: Run, provenance: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Make the run's folder and write the resolved configuration into it, before anything is started.

    `asked`: what the person gave, to begin or go on alike: {"recipe", "assignments", "options"}.
    """
    directory, launch = Path(planned.directory), planned.launch
    require_new(directory, planned.recipe)
    refused = was_refused(directory)
    if launch and launch.submits:
        try_job(launch)
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
        "asked": asked,
        **provenance,
    }
    with writing_into(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name in REFUSED if refused else ():
            (directory / name).unlink(missing_ok=True)
        (directory / "run.json").write_text(json.dumps(configuration, indent=1) + "\n")
        if launch:
            write_files(launch, directory)


def prepare_again(planned: Run) -> None:
    """What a run that is gone on with needs beside its configuration, which stays as it is."""
    directory = Path(planned.directory)
    refuse_a_trained_run(directory)
    if planned.launch and planned.launch.submits:
        try_job(planned.launch)
    with writing_into(directory):
        (directory / LOG).open("ab").close()
        if planned.launch:
            write_files(planned.launch, directory)


def plan_run(
    directory: Path,
    recipe: str,
    settings: Mapping[str, Any],
    python: Path,
    *,
    place: Situation,
    ask: Ask | None = None,
    resume: str = "",
    engine: Engine = "grpo",
    environment: Mapping[str, str] | None = None,
) -> Run:
    """What would be started, and by which launcher. `environment` is the profile's."""
    folders = (directory, *_environment_folders(python), bundled("train"), Path(node.__file__).parent)
    work = Work(
        directory=str(directory),
        recipe=recipe,
        engine=engine,
        settings=dict(settings),
        python=str(python),
        program=(str(trainer(engine)), str(directory)),
        node_program=node.__file__,
        resume=resume,
        environment=dict(environment or {}),
        folders=tuple(dict.fromkeys(map(str, folders))),
    )
    launch = plan_launch(ask or Ask(), work, place)
    return Run(str(directory), recipe, dict(settings), str(python), launch.command, resume, engine, launch)


def _environment_folders(python: Path) -> Iterator[Path]:
    """Where an interpreter's files lie: its environment, and the Python that it was made from unless that is the
    system's, which a container has of its own."""
    yield python.parent.parent
    base = python.resolve().parent.parent
    if base not in (Path("/usr"), Path("/usr/local"), Path("/")):
        yield base


def submit_run(planned: Run) -> str:
    """Hand a run's job to SLURM; its number."""
    assert planned.launch
    return submit(planned.launch)


def start_run(planned: Run, environment: Mapping[str, str], on_event: Callable[[Event], None]) -> Finished:
    """Run the trainer to its end, passing on its events as they come."""
    directory = Path(planned.directory)
    events = EventReader(directory / "events.jsonl")

    def poll(_: str) -> None:
        for event in events.read_new():
            on_event(event)

    # Bytecode is written, since the next start of torch and transformers is seconds faster with it.
    ours = {each.name: each.value for each in planned.launch.environment if each.value} if planned.launch else {}
    raise_limits()
    quiet = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
    return run(
        planned.command,
        deadline=RUN_SECONDS,
        env=quiet | ours | dict(environment),
        log=directory / LOG,
        poll=poll,
        grace=SAVE_SECONDS,
    )


def read_result(directory: Path) -> dict[str, Any]:
    """What the trainer wrote at its end; empty if it did not get there."""
    try:
        result = json.loads((directory / "result.json").read_text())
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def parse_refusal(output: str) -> BadInput | None:
    r"""What the trainer refused, by its last words: into a run that is another's it writes nothing.

    Sample: "error: steps = 0\nexpected: steps is at least 1\nhint: change --set steps=...\n"
    """
    told = re.findall(r"^error: (.*)\nexpected: (.*)\nhint: (.*)$", output, re.MULTILINE)
    return BadInput(told[-1][0], expected=told[-1][1], hint=told[-1][2]) if told else None


class EventReader:
    """New lines of a run's events.jsonl; a line that is half written is left for the next time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A resumed run appends: what is there already was shown before.
        self.offset = path.stat().st_size if path.exists() else 0

    def read_new(self) -> Iterator[Event]:
        """The events since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return
        complete, _, _ = data.rpartition(b"\n")
        self.offset += len(complete) + (1 if complete else 0)
        for line in complete.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
