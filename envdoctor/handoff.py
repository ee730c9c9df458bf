"""Hand off to the bundled trainer: settings from a recipe, a run directory written first, then a watched process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envdoctor import __version__
from envdoctor.bundled import bundled
from envdoctor.errors import BadInput, EnvdoctorError, unknown_name
from envdoctor.model import Record
from envdoctor.process import Finished, run
from envdoctor.records import convert, decode_toml

CHECK_SECONDS = 30.0
SAVE_SECONDS = 60.0  # for the step that runs and a checkpoint, when it is interrupted
RUN_SECONDS = 30 * 24 * 3600.0  # a run is stopped by its user or its end, not by us
WHAT = "a recipe in TOML"
HINT = "envdoctor train --list"

Setting = str | int | float | bool
Event = dict[str, Any]


class Recipe(Record, frozen=True):
    """What to train and how. Its `settings` are all the settings there are: the recipe is the schema."""

    name: str
    summary: str
    settings: dict[str, Setting]


class Checked(Record, frozen=True):
    """What the trainer's own check says of settings: as they will be used, and a summary of the data."""

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


def recipe_names() -> list[str]:
    """The bundled recipes."""
    return sorted(path.stem for path in (bundled("train") / "recipes").glob("*.toml"))


def read_recipe(name_or_file: str) -> Recipe:
    """A bundled recipe by name, or the user's own from a file."""
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        path = Path(name_or_file)
    elif name_or_file in recipe_names():
        path = bundled("train") / "recipes" / f"{name_or_file}.toml"
    else:
        raise unknown_name("recipe", name_or_file, recipe_names(), hint=HINT)
    return convert(decode_toml(path, what=WHAT, hint=HINT), Recipe, where=str(path), what=WHAT, hint=HINT)


def apply_settings(recipe: Recipe, assignments: Sequence[str]) -> dict[str, Setting]:
    """The recipe's settings with `key=value` assignments in place, each of its default's type."""
    settings = dict(recipe.settings)
    hint = f"envdoctor train {recipe.name} --dry-run"
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(f"--set {assignment}", expected="key=value, as steps=100", hint=hint)
        if key not in settings:
            raise unknown_name(f"setting of recipe {recipe.name}:", key, list(settings), hint=hint)
        settings[key] = _parse(key, text, recipe.settings[key], hint)
    return settings


def _parse(key: str, text: str, default: Setting, hint: str) -> Setting:
    """The text as the default's type."""
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(default)(text)
    except (KeyError, ValueError) as error:
        expected = f"{kinds[type(default)]}, as the recipe's {default!r}"
        raise BadInput(f"--set {key}={text}", expected=expected, hint=hint) from error


def check_settings(recipe: Recipe, settings: Mapping[str, Setting]) -> Checked:
    """Let the trainer check the settings and the data, without torch and before anything is written."""
    request = json.dumps({"recipe": recipe.name, "settings": dict(settings)}).encode()
    result = run([sys.executable, "-B", trainer(), "--check"], deadline=CHECK_SECONDS, stdin=request, cwd=Path.cwd())
    try:
        answer = json.loads(result.output)
    except ValueError as error:
        raise EnvdoctorError(
            f"the trainer's check {result.ending} without an answer: {result.output.strip()[-300:]}",
            expected="one JSON object",
            hint="this is a fault of envdoctor: please report it",
        ) from error
    if not answer["ok"]:
        problem = answer["error"]
        raise BadInput(problem["message"], expected=problem.get("expected", ""), hint=problem.get("hint", ""))
    return Checked(answer["settings"], answer["summary"])


def trainer() -> Path:
    """The trainer's program."""
    return bundled("train") / "grpo.py"


def new_run_directory(recipe: str, base: Path) -> Path:
    """A name for a new run; nothing is made yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return base / f"{recipe}-{stamp}"


def newest_run(recipe: str, base: Path) -> Path:
    """The newest run of a recipe below `base`, to resume it."""
    runs = sorted(path.parent for path in base.glob(f"{recipe}-*/run.json"))
    if not runs:
        raise BadInput(
            f"there is no run of {recipe} below {base}", expected="a run to resume", hint=f"envdoctor train {recipe}"
        )
    return runs[-1]


def prepare_run(
    directory: Path, recipe: str, settings: Mapping[str, Any], python: Path, provenance: Mapping[str, str]
) -> Run:
    """Make the run directory and write the resolved configuration into it, before anything is started."""
    if directory.exists() and any(directory.iterdir()):
        raise BadInput(
            f"{directory} is not empty",
            expected="a new folder for the run",
            hint=f"envdoctor train {recipe} --run NEW_FOLDER, or --resume latest",
        )
    planned = plan_run(directory, recipe, settings, python)
    directory.mkdir(parents=True, exist_ok=True)
    configuration = {
        "schema": 1,
        "recipe": recipe,
        "settings": dict(settings),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "envdoctor": __version__,
        "python": str(python),
        "command": list(planned.command),
        **provenance,
    }
    (directory / "run.json").write_text(json.dumps(configuration, indent=1) + "\n")
    return planned


def read_run(directory: Path) -> tuple[str, dict[str, Any]]:
    """Recipe and settings of a run that is there, to be gone on with."""
    try:
        configuration = json.loads((directory / "run.json").read_text())
        return str(configuration["recipe"]), dict(configuration["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{directory} holds no run.json that can be read ({error})",
            expected="the folder of a run",
            hint="envdoctor train RECIPE --run FOLDER --resume latest",
        ) from error


def plan_run(directory: Path, recipe: str, settings: Mapping[str, Any], python: Path, resume: str = "") -> Run:
    """What would be started."""
    command = [str(python), str(trainer()), str(directory), *(["--resume", resume] if resume else [])]
    return Run(str(directory), recipe, dict(settings), str(python), tuple(command), resume)


def start_run(planned: Run, environment: Mapping[str, str], on_event: Callable[[Event], None]) -> Finished:
    """Run the trainer to its end, passing on its events as they come."""
    directory = Path(planned.directory)
    events = EventReader(directory / "events.jsonl")

    def poll(_: str) -> None:
        for event in events.read_new():
            on_event(event)

    # Bytecode is written, since the next start of torch and transformers is seconds faster with it.
    quiet = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": ""}
    return run(
        planned.command,
        deadline=RUN_SECONDS,
        env=quiet | dict(environment),
        log=directory / "train.log",
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
