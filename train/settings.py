"""Settings of a run: their definitions, recipes, and the checks that need neither torch nor the model.

Standard library only.
"""

from __future__ import annotations

import functools
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conflicts import find_conflicts as find_grpo_conflicts
from conflicts import repository_conflicts
from messages import BadInput, Conflict, describe, format_value, shorten, suggest
from renamed_settings import check_renamed, suggest_setting

HERE = Path(__file__).parent
RECIPES = HERE / "recipes"
SETTINGS_FILE = "settings.toml"  # the settings of verl runs are in verl_settings.toml
TYPE_NAMES = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list, as a,b",
}  # fmt: skip
UNBOUNDED = 1e9  # the maximum of a setting that defines none
KINDS: dict[str, type] = {"bool": bool, "int": int, "number": float, "text": str, "list": list}

__all__ = ["BadInput", "format_value", "shorten", "suggest"]  # of messages, for every module of the trainer


@dataclass(frozen=True)
class Setting:
    """The definition of a setting. A default of None: the field of TRL keeps the default of the installed version."""

    name: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float = 0.0
    maximum: float = UNBOUNDED
    tasks: tuple[str, ...] = ()  # the tasks that have the setting; empty: every task
    requires: tuple[str, ...] = ()  # the settings that this one depends on: NAME (set) or NAME=one,of,these
    example: Any = None  # a typical value, for hints
    note: str = ""  # added to the error where the setting has no effect


@dataclass(frozen=True)
class Recipe:
    """A recipe: its name, a one-line summary, and the settings that differ from the defaults."""

    name: str
    summary: str
    settings: dict[str, Any]


@functools.cache
def setting_definitions(file: str = SETTINGS_FILE) -> dict[str, Setting]:
    """Every setting of a definitions file, in the order of the file."""
    table = tomllib.loads((HERE / file).read_text(encoding="utf-8"))
    return {
        name: Setting(
            name,
            KINDS[row["type"]] if "type" in row else type(row["default"]),
            row.get("default"),
            row["help"],
            tuple(row.get("choices", ())),
            row.get("minimum", 0.0),
            row.get("maximum", UNBOUNDED),
            tuple(row.get("tasks", ())),
            (requires,) if isinstance(requires := row.get("requires", ()), str) else tuple(requires),
            row.get("example"),
            row.get("note", ""),
        )
        for name, row in table.items()
    }


def list_recipes() -> list[str]:
    """Names of the bundled recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read_recipe(name: str) -> Recipe:
    """A bundled recipe by its name, or a recipe file by its path."""
    is_file = name.endswith(".toml") or "/" in name
    if not is_file and name not in list_recipes():
        raise BadInput(
            f"unknown recipe {name!r}{suggest(name, list_recipes())}",
            expected=f"one of {', '.join(list_recipes())}, or the path of a TOML file",
            hint="envdoctor recipes",
        )
    path = expand_user(name) if is_file else RECIPES / f"{name}.toml"
    form = "name, summary, engine, and a table [settings]"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}", expected="a recipe in TOML", hint="envdoctor recipes") from None
    except (ValueError, RecursionError) as error:  # also an integer of more than 4300 digits, and deep nesting
        raise BadInput(f"{path} is not TOML: {error}", expected=form, hint=f"correct {path}") from None
    keys = ["name", "summary", "engine", "settings"]
    extra = [key for key in table if key not in keys]
    if extra or not isinstance(table.get("settings", {}), dict):
        seen = f"unknown key {extra[0]!r}{suggest(extra[0], keys)}" if extra else "settings is not a table"
        raise BadInput(f"{path}: {seen}", expected=form, hint=f"correct {path}")
    return Recipe(str(table.get("name", path.stem)), str(table.get("summary", "")), table.get("settings", {}))


def expand_user(path: str) -> Path:
    """Expand `~` and `~name` as the shell does; an unknown user stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib's raises RuntimeError for an unknown user


def parse_assignments(assignments: Sequence[str], file: str = SETTINGS_FILE) -> dict[str, Any]:
    """Parse `--set KEY=VALUE` by the types of the defaults. Sample: ["steps=5", "report_to=wandb"]."""
    given: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(
                f"--set {assignment}", expected="KEY=VALUE, as steps=100", hint="envdoctor train --settings"
            )
        given[key] = _parse(_find_setting(key, "--set", file, text), text)
    return given


def _parse(setting: Setting, text: str) -> Any:
    kind = setting.kind
    try:
        if setting.default is None and text.lower() == "none":
            return None
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is list and text.startswith("["):  # JSON, for elements with a comma: rewards=["format:a{1,2}"]
            return [str(part) for part in json.loads(text)]
        if kind is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        return kind(text)
    except (KeyError, ValueError, RecursionError):
        raise _type_error(setting, f"--set {setting.name}={shorten(text)}") from None


def _find_setting(key: str, source: str, file: str, value: object) -> Setting:
    known = setting_definitions(file)
    if key not in known:
        check_renamed(key, value, source, known)
        raise BadInput(
            f"{source}: unknown setting {key!r}{suggest_setting(key, list(known))}",
            expected="a setting of the trainer",
            hint="envdoctor train --settings",
        )
    return known[key]


def resolve_settings(
    recipe: Recipe,
    given: object,
    source: str = "settings",
    *,
    file: str = SETTINGS_FILE,
    find_conflicts: Callable[[Mapping[str, Any]], list[Conflict]] | None = None,
) -> dict[str, Any]:
    """Every setting, checked. Order of precedence: `given`, the recipe, the defaults."""
    if not isinstance(given, dict):
        raise BadInput(f"{source} is {describe(given)}", expected="an object of settings", hint="use --set key=value")
    settings = {name: setting.default for name, setting in setting_definitions(file).items()}
    for origin, changes in ((f"recipe {recipe.name}", recipe.settings), (source, given)):
        for key, value in changes.items():
            setting = _find_setting(key, origin, file, value)
            settings[key] = _coerce(setting, value, origin)
            _check_value(setting, settings[key], origin)
    settings = _reset_deselected(settings, given, file)
    _check_ineffective(settings, given, recipe.settings, source, file)
    for observed, expected, hint in (
        *repository_conflicts(settings),
        *(find_conflicts or find_grpo_conflicts)(settings),
    ):
        raise BadInput(f"{source}: {observed}", expected=expected, hint=hint)
    return settings


def _type_error(setting: Setting, message: str) -> BadInput:
    default = format_value(setting.default)
    return BadInput(
        message,
        expected=f"{setting.name} is {TYPE_NAMES[setting.kind]} (default {default})",
        hint=f"--set {setting.name}={_example(setting)}",
    )


def _coerce(setting: Setting, value: object, source: str) -> Any:
    kind = setting.kind
    if value is None and setting.default is None:
        return None
    if kind is float and type(value) is int:
        return float(value) if abs(value) <= UNBOUNDED else value  # float() may overflow; the range check refuses it
    if kind is list and type(value) is list:
        return [str(part) for part in value]
    if type(value) is not kind:  # `is`, since True is an int for isinstance
        raise _type_error(setting, f"{source}: {setting.name} = {describe(value)}")
    return value


def _check_value(setting: Setting, value: Any, source: str) -> None:
    low, high = setting.minimum, setting.maximum
    if setting.choices and value is not None and value not in setting.choices:
        raise BadInput(
            f"{source}: {setting.name} = {value!r}{suggest(value, setting.choices)}",
            expected=f"{setting.name} is one of {', '.join(choice or 'nothing' for choice in setting.choices)}",
            hint=f"--set {setting.name}={_example(setting)}",
        )
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        one_sided = high >= UNBOUNDED and value < low
        limit = f"at least {low:g}" if one_sided else f"from {low:g} to {high:.10g}"
        raise BadInput(
            f"{source}: {setting.name} = {shorten(str(value))}",  # also NaN, which is in no range
            expected=f"{setting.name} is {limit}",
            hint=f"--set {setting.name}={_example(setting)}",
        )


def _example(setting: Setting) -> str:
    """A valid value for a hint."""
    values = (setting.default, setting.example, *setting.choices, "true" if setting.kind is bool else "none")
    return next(format_value(value) for value in values if value is not None)


def _unmet_requirement(setting: Setting, settings: Mapping[str, Any]) -> str:
    """The first of `requires` that does not hold; empty if all do."""
    for requirement in setting.requires:
        name, _, values = requirement.partition("=")
        if not (format_value(settings[name]) in values.split(",") if values else settings[name]):
            return requirement
    return ""


def _reset_deselected(settings: Mapping[str, Any], given: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The settings, with the recipe's values reset where `given` deselects the alternative that they belong to.

    Sample: the recipe sets use_vllm and vllm_gpu_memory_utilization, and `given` sets use_vllm = false.
    """
    found = dict(settings)
    for setting in setting_definitions(file).values():
        deselected = _unmet_requirement(setting, found).partition("=")[0] in given
        if deselected and setting.name not in given and (not setting.tasks or found["task"] in setting.tasks):
            found[setting.name] = setting.default
    return found


def _check_ineffective(
    settings: Mapping[str, Any], given: Mapping[str, Any], recipe: Mapping[str, Any], source: str, file: str
) -> None:
    """Refuse a setting that would have no effect."""
    for setting in setting_definitions(file).values():
        unmet = _unmet_requirement(setting, settings)
        name, _, values = unmet.partition("=")
        value = format_value(settings[setting.name])
        # A default value counts where the user gives it against the recipe: num_train_epochs=1 with a recipe that
        # sets max_steps.
        contradicts_recipe = setting.name in given and name in recipe and name not in given
        if settings[setting.name] == setting.default and not contradicts_recipe:
            continue
        if setting.tasks and settings["task"] not in setting.tasks:
            raise BadInput(
                f"{source}: {setting.name} = {value}, which belongs to task {' and '.join(setting.tasks)}",
                expected=f"settings of task {settings['task']}",
                hint=f"leave {setting.name} out",
            )
        if unmet:
            needed = setting_definitions(file)[name]
            example = values.split(",")[0] or ("true" if needed.kind is bool else format_value(needed.example))
            note = f"; {setting.note}" if setting.note else ""
            raise BadInput(
                f"{source}: {setting.name} = {value} does nothing with {name} = {format_value(settings[name])}",
                expected=f"{name} is {' or '.join(values.split(',')) if values else 'set'}{note}",
                hint=f"--set {name}={example}, or leave {setting.name} out",
            )
