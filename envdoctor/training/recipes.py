"""Recipes and settings of the trainers, and the trainer's own check of both."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor.core.decoding import convert, decode_toml
from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import BadInput, EnvdoctorError, unknown_name
from envdoctor.core.paths import exists, expand_home
from envdoctor.core.processes import CompletedProcess, run
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.training.launchers.records import LaunchOptions
from envdoctor.training.runs.directory import Engine

CHECK_INTERPRETER = sys.executable  # the trainer's checks and its planner need only the standard library
CHECK_SECONDS = 1800.0  # a million rows take minutes; the limit ends a check on a file system that does not respond
FILE_KIND = "a recipe in TOML"
HINT = "envdoctor recipes"
FIELD_GROUP = "Fields of TRL and transformers"

SettingValue = str | int | float | bool | list[str | int | float] | dict[str, Any]
SETTINGS_FILES: dict[Engine, str] = {"grpo": "settings.toml", "verl": "verl_settings.toml"}
PROGRAMS: dict[Engine, str] = {"grpo": "grpo.py", "verl": "verl_run.py"}


class Setting(Record, frozen=True):
    """A setting of a trainer: its default, its help text, its choices, and the tasks that use it (empty: all).

    A default of None is the default of the installed TRL.
    """

    name: str
    default: SettingValue | None
    help: str
    choices: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    group: str = ""
    trainers: tuple[str, ...] = ()  # that have the setting; empty: all


class EffectiveSetting(Record, frozen=True):
    """A setting as a run would have it: its value, and where the value comes from."""

    name: str
    value: SettingValue | None
    source: str
    help: str
    group: str = ""


class Recipe(Record, frozen=True):
    """A training recipe: the settings that differ from the trainer's defaults."""

    name: str = ""
    summary: str = ""
    settings: dict[str, SettingValue] = {}
    engine: Engine = "grpo"


class ResolvedRecipe(Record, frozen=True):
    """The result of the trainer's check: the recipe's name, every setting with its value, a summary of the data."""

    recipe: str
    settings: dict[str, Any]
    summary: dict[str, Any]
    sources: dict[str, str] = {}  # of each setting, where they were requested


def recipe_names() -> list[str]:
    """Return the names of the bundled recipes."""
    return sorted(path.stem for path in (bundled_directory("train") / "recipes").glob("*.toml"))


def read_recipe(name_or_file: str) -> Recipe:
    """Read a bundled recipe by name, or a recipe file of the user."""
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        path = expand_home(name_or_file)
        if _is_model(name_or_file, path):
            raise _model_for_recipe(name_or_file, name_or_file)
    elif name_or_file in recipe_names():
        path = bundled_directory("train") / "recipes" / f"{name_or_file}.toml"
    elif model := _known_model(name_or_file):
        raise _model_for_recipe(name_or_file, model)
    else:
        raise unknown_name("recipe", name_or_file, recipe_names(), hint=HINT)
    return convert(
        decode_toml(path, expected=FILE_KIND, hint=HINT), Recipe, source=str(path), expected=FILE_KIND, hint=HINT
    )


def _model_for_recipe(name: str, model: str) -> BadInput:
    return BadInput(
        f"{name} is a model; a recipe was expected",
        expected="a recipe, or a model as --model MODEL",
        hint=shell_command("envdoctor plan --model {}", model),
    )


def _known_model(name: str) -> str:
    """The full name of a model whose sizes are bundled, without regard to case; empty for another name."""
    models = decode_toml(bundled_directory("train") / "memory/known_models.toml", expected="model sizes", hint=HINT)
    names = (model for entry in models["model"] for model in entry["names"])
    return next((model for model in names if model.lower().rpartition("/")[2] == name.lower()), "")


def _is_model(name: str, path: Path) -> bool:
    """Whether a name is a model of the Hub or a directory with a model, and not a file."""
    if exists(path):
        return exists(path / "config.json")
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", name)) and not name.endswith(".toml")


def run_recipe_name(name_or_file: str) -> str:
    """Return the recipe name that runs record in run.json. For a recipe file: its `name`, else the file's stem."""
    path = expand_home(name_or_file)
    if path.suffix == ".toml" and path.is_file():
        return read_recipe(name_or_file).name or path.stem
    return name_or_file


def recipe_engine(recipe: str) -> Engine:
    """Return the trainer that a recipe is written for."""
    return read_recipe(recipe).engine


@cache
def read_settings(engine: Engine = "grpo", trainer: str = "grpo") -> tuple[Setting, ...]:
    """Read all settings from the settings file of an engine, as one of TRL's trainers has them."""
    path = bundled_directory("train") / SETTINGS_FILES[engine]
    table = decode_toml(path, expected="the trainer's settings", hint=HINT)
    return tuple(
        _setting(name, entry | entry.get(trainer, {}), group, has_default="type" not in entry.get(trainer, {}))
        for group, entries in table.items()
        for name, entry in entries.items()
    )


def _setting(name: str, entry: Mapping[str, Any], group: str, *, has_default: bool) -> Setting:
    tasks, trainers = (tuple(entry.get(key, ())) for key in ("tasks", "trainers"))
    default = entry.get("default") if has_default else None
    return Setting(name, default, entry["help"], _choices(entry), tasks, group, trainers)


def read_field_names() -> tuple[str, ...]:
    """Return the names of TRL's and transformers' fields, which are settings of the bundled trainer."""
    table = decode_toml(bundled_directory("train") / "trl_fields.toml", expected="the fields of TRL", hint=HINT)
    return tuple(dict.fromkeys(name for rows in ("transformers", *table["defaults"]) for name in table[rows]))


def _choices(entry: Mapping[str, Any]) -> tuple[str, ...]:
    is_switch = entry.get("type") == "bool" or isinstance(entry.get("default"), bool)
    return ("true", "false") if is_switch else tuple(entry.get("choices", ()))


def resolve_resumed(
    recipe: str, engine: Engine, settings: Mapping[str, Any], assignments: Sequence[str], versions: Mapping[str, str]
) -> ResolvedRecipe:
    """Change settings of a run that is resumed; raises BadInput for one that cannot change, with the reason."""
    request = {"recipe": recipe, "settings": dict(settings), "assignments": list(assignments), "resumed": True}
    return _check(recipe, engine, request | {"versions": dict(versions)})


def effective_settings(recipe: str, assignments: Sequence[str] = ()) -> tuple[str, list[EffectiveSetting], list[str]]:
    """Return the recipe's name, its settings with their sources, and the fields that are not set.

    Data and combinations of settings are not checked.
    """
    engine = recipe_engine(recipe)
    request = {"recipe": recipe, "assignments": list(assignments), "sources_only": True}
    resolved = _check(recipe, engine, request)
    task, trainer = resolved.settings["task"], resolved.settings.get("trainer", "")
    known = {setting.name: setting for setting in read_settings(engine, trainer)}
    names = [
        name
        for name, setting in known.items()
        if task in (setting.tasks or (task,)) and trainer in (setting.trainers or (trainer,))
    ]
    names += [name for name in resolved.settings if name not in known]
    rows = []
    for name in names:
        text, group = (known[name].help, known[name].group) if name in known else ("", FIELD_GROUP)
        rows.append(EffectiveSetting(name, resolved.settings[name], resolved.sources[name], text, group))
    return resolved.recipe, rows, resolved.summary["other_fields"]


def resolve_recipe(
    recipe: str, assignments: Sequence[str] = (), versions: Mapping[str, str] | None = None
) -> ResolvedRecipe:
    """Resolve a recipe with `key=value` assignments by the trainer's own check, which also reads the data.

    The trainer validates the settings, so that the rules exist once. The check writes no files. `versions` are those
    of TRL and transformers in the environment, if they are known: their fields are settings.
    """
    request = {"recipe": recipe, "assignments": list(assignments), "versions": dict(versions or {})}
    return _check(recipe, recipe_engine(recipe), request)


def _check(recipe: str, engine: Engine, request: Mapping[str, Any]) -> ResolvedRecipe:
    command: tuple[str | Path, ...] = (CHECK_INTERPRETER, "-B", trainer_program(engine), "--check")
    process = run(command, timeout=CHECK_SECONDS, stdin=json.dumps(request).encode(), cwd=Path.cwd())
    if process.timed_out:
        raise EnvdoctorError(
            f"settings and data of {recipe} were not checked: the check {process.ending}",
            expected=f"data that can be read within {CHECK_SECONDS:.0f} s",
            hint="--set data=PATH with fewer rows, or on a local disk",
        )
    reply = read_reply(process, "the trainer's check")
    return ResolvedRecipe(reply["recipe"], reply["settings"], reply["summary"], reply.get("sources", {}))


def read_reply(process: CompletedProcess, name: str) -> dict[str, Any]:
    """The JSON object that a program of the trainer printed; its error is raised as BadInput."""
    try:
        reply: dict[str, Any] = json.loads(process.output)
    except ValueError as error:
        raise EnvdoctorError(
            f"{name} {process.ending} without a result: {process.output.strip()[-300:]}",
            expected="one JSON object",
            hint="this is a bug in envdoctor: please report it",
        ) from error
    if not reply["ok"]:
        problem = reply["error"]
        raise BadInput(problem["message"], expected=problem.get("expected", ""), hint=problem.get("hint", ""))
    return reply


def launch_size_assignments(options: LaunchOptions, engine: Engine, assignments: Sequence[str]) -> tuple[str, ...]:
    """Return --nodes and --gpus as settings of verl, which starts its own processes; --set takes precedence."""
    if engine != "verl":
        return ()
    assigned = {assignment.partition("=")[0] for assignment in assignments}
    sizes = {"nodes": options.nodes, "gpus": options.gpus}
    return tuple(f"{name}={number}" for name, number in sizes.items() if number and name not in assigned)


def trainer_program(engine: Engine = "grpo") -> Path:
    """Return the path of a trainer's program."""
    return bundled_directory("train") / PROGRAMS[engine]
