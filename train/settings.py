"""Settings of a run: their definitions, recipes, and the checks that need neither torch nor the model.

Standard library only.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from conflicts import find_conflicts as find_grpo_conflicts
from conflicts import repository_conflicts
from messages import BadInput, Conflict, describe, format_value, shorten, suggest
from renamed_settings import check_renamed, suggest_setting
from setting_values import KINDS, UNBOUNDED, Setting, check_value, coerce, parse_value
from trl_fields import CONFIGS, check_refused, class_name, fields, rules

HERE = Path(__file__).parent
RECIPES = HERE / "recipes"
GRPO = "grpo"  # the trainer without another choice
SETTINGS_FILE = "settings.toml"  # the settings of verl runs are in verl_settings.toml

__all__ = ["BadInput", "Setting", "format_value", "shorten", "suggest"]  # of other modules, for the whole trainer


@dataclass(frozen=True)
class Recipe:
    """A recipe: its name, a one-line summary, and the settings that differ from the defaults."""

    name: str
    summary: str
    settings: dict[str, Any]


@functools.cache
def setting_definitions(file: str = SETTINGS_FILE, trainer: str = GRPO) -> dict[str, Setting]:
    """Every setting of a definitions file as one trainer has it, in the order of the file."""
    groups = tomllib.loads((HERE / file).read_text(encoding="utf-8"))
    return {
        name: _make_setting(name, _row_of(row, trainer)) for group in groups.values() for name, row in group.items()
    }


def _row_of(row: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """A row with what differs with a trainer; a setting with the default of TRL has none of this trainer."""
    changes = row.get(trainer, {})
    return {
        name: value for name, value in {**row, **changes}.items() if not ("type" in changes and name == "default")
    }


def _make_setting(name: str, row: Mapping[str, Any]) -> Setting:
    return Setting(
        name,
        _kinds(row),
        row.get("default"),
        row["help"],
        tuple(row.get("choices", ())),
        row.get("minimum", 0.0),
        row.get("maximum", UNBOUNDED),
        tuple(row.get("tasks", ())),
        (requires,) if isinstance(requires := row.get("requires", ()), str) else tuple(requires),
        row.get("example"),
        row.get("note", ""),
        row.get("planned", False),
        tuple(row.get("trainers", ())),
    )


def names_of(trainer: str, file: str = SETTINGS_FILE) -> list[str]:
    """The names of the settings that a trainer has."""
    settings = setting_definitions(file, trainer).values()
    return [setting.name for setting in settings if trainer in (setting.trainers or (trainer,))]


def trainer_of(*sources: Mapping[str, Any]) -> str:
    """The trainer of the first source that sets `trainer`; GRPO without any, and for an unknown one."""
    named = next((source["trainer"] for source in sources if "trainer" in source), GRPO)
    return named if isinstance(named, str) and named in CONFIGS else GRPO


def _kinds(row: Mapping[str, Any]) -> tuple[type, ...]:
    """The kinds of values: those of `kinds`, that of `type` or none, or that of the default."""
    if "kinds" in row:
        return tuple(KINDS[kind] for kind in row["kinds"])
    return (KINDS[row["type"]], NoneType) if "type" in row else (type(row["default"]),)


def requested_trainer(assignments: Sequence[str], *others: Mapping[str, Any]) -> str:
    """The trainer that the last assignment of `trainer` names, or else one of the other sources."""
    named = [text.partition("=")[2] for text in assignments if text.startswith("trainer=")]
    return trainer_of({"trainer": named[-1]} if named else {}, *others)


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


def parse_assignments(
    assignments: Sequence[str], file: str = SETTINGS_FILE, *, trainer: str = GRPO
) -> dict[str, Any]:
    """Parse `--set KEY=VALUE` by the types of the trainer's defaults. A list that is given again is extended.

    Sample: ["max_steps=5", "report_to=wandb"].
    """
    given: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(
                f"--set {assignment}", expected="KEY=VALUE, as max_steps=100", hint="envdoctor train --settings"
            )
        value = parse_value(_find_setting(key, "--set", file, text, trainer), text)
        given[key] = given[key] + value if isinstance(value, list) and value and key in given else value
    return given


def _find_setting(key: str, source: str, file: str, value: object, trainer: str) -> Setting:
    known = setting_definitions(file, trainer)
    if key in known:
        return known[key]
    passed = fields(trainer) if file == SETTINGS_FILE else {}
    check_renamed(key, value, source, [*names_of(trainer, file), *passed])
    others = [each for each in CONFIGS if file == SETTINGS_FILE and key in fields(each)]
    if key not in passed and others:
        raise BadInput(
            f"{source}: {key} is a field of TRL's {CONFIGS[others[0]]}, and the trainer is {trainer}",
            expected=f"fields of TRL's {CONFIGS[trainer]}",
            hint=f"--trainer {others[0]}, or leave {key} out",
        )
    if key not in passed:
        raise BadInput(
            f"{source}: unknown setting {key!r}{suggest_setting(key, [*known, *passed])}",
            expected="a setting of the trainer",
            hint="envdoctor train --settings",
        )
    check_refused(key, value, source, trainer)
    return field_setting(key, trainer)


def field_setting(name: str, trainer: str = GRPO) -> Setting:
    """The setting of a field that passes to TRL as it is."""
    field = fields(trainer)[name]
    # TRL reads a text as JSON where it accepts an object.
    kinds = [kind for kind in field.kinds if kind != "text" or "dict" not in field.kinds]
    requires = rules()["requires"].get(name)
    return Setting(
        name,
        tuple(KINDS[kind] for kind in sorted(kinds, key=lambda kind: kind == "none")),
        None,
        f"field of {class_name(field.package, trainer)} ({field.releases}), default {field.default or 'empty'}",
        minimum=-UNBOUNDED,
        requires=(requires,) if requires else (),
    )


def passed_fields(settings: Mapping[str, Any]) -> list[str]:
    """The names in `settings` of fields that pass to TRL as they are."""
    return [name for name in settings if name not in setting_definitions()]


def _definitions_of(settings: Mapping[str, Any], file: str) -> dict[str, Setting]:
    trainer = trainer_of(settings)
    definitions = setting_definitions(file, trainer)
    return definitions | {name: field_setting(name, trainer) for name in settings if name not in definitions}


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
    trainer = trainer_of(given, recipe.settings)
    settings = {name: setting.default for name, setting in setting_definitions(file, trainer).items()}
    for origin, changes in ((f"recipe {recipe.name}", recipe.settings), (source, given)):
        for key, value in changes.items():
            setting = _find_setting(key, origin, file, value, trainer)
            settings[key] = coerce(setting, value, origin)
            check_value(setting, settings[key], origin)
    if settings["report_to"] == ["none"]:  # transformers' word for no tracker
        settings["report_to"] = []
    settings = _reset_deselected(settings, given, file)
    _check_ineffective(settings, given, recipe.settings, source, file)
    for observed, expected, hint in (
        *repository_conflicts(settings),
        *(find_conflicts or find_grpo_conflicts)(settings),
    ):
        raise BadInput(f"{source}: {observed}", expected=expected, hint=hint)
    return settings


def _unmet_requirement(setting: Setting, settings: Mapping[str, Any]) -> str:
    """The first of `requires` that does not hold; empty if all do."""
    for requirement in setting.requires:
        name, _, values = requirement.partition("=")
        value = settings.get(name)
        if not (format_value(value) in values.split(",") if values else value):
            return requirement
    return ""


def _reset_deselected(settings: Mapping[str, Any], given: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The settings, with the recipe's values reset where `given` deselects the alternative that they belong to.

    Sample: the recipe sets use_vllm and vllm_gpu_memory_utilization, and `given` sets use_vllm = false.
    """
    found, reset = dict(settings), set()
    for setting in _definitions_of(settings, file).values():
        deselected = _unmet_requirement(setting, found).partition("=")[0] in given
        if deselected and setting.name not in given and (not setting.tasks or found["task"] in setting.tasks):
            found[setting.name] = setting.default
            reset |= {setting.name} - setting_definitions(file).keys()
    return {name: value for name, value in found.items() if name not in reset}


def _check_ineffective(
    settings: Mapping[str, Any], given: Mapping[str, Any], recipe: Mapping[str, Any], source: str, file: str
) -> None:
    """Refuse a setting that would have no effect."""
    definitions = _definitions_of(settings, file)
    for setting in definitions.values():
        unmet = _unmet_requirement(setting, settings)
        name, _, values = unmet.partition("=")
        value = format_value(settings[setting.name])
        # A default value counts where the user gives it against the recipe: num_train_epochs=1 with a recipe that
        # sets max_steps.
        contradicts_recipe = setting.name in given and name in recipe and name not in given
        if settings[setting.name] == setting.default and not contradicts_recipe:
            continue
        for kind, owners in (("trainer", setting.trainers), ("task", setting.tasks)):
            if owners and settings[kind] not in owners:
                if kind == "trainer" and setting.name in recipe and setting.name not in given:
                    raise _other_trainer(setting, settings, source)
                raise BadInput(
                    f"{source}: {setting.name} = {value}, which belongs to {kind} {' and '.join(owners)}",
                    expected=f"settings of {kind} {settings[kind]}",
                    hint=f"leave {setting.name} out",
                )
        if unmet:
            needed = definitions.get(name) or field_setting(name, trainer_of(settings))
            example = values.split(",")[0] or ("true" if needed.kind is bool else format_value(needed.example))
            note = f"; {setting.note}" if setting.note else ""
            raise BadInput(
                f"{source}: {setting.name} = {value} does nothing with {name} = {format_value(settings.get(name))}",
                expected=f"{name} is {' or '.join(values.split(',')) if values else 'set'}{note}",
                hint=f"--set {name}={example}, or leave {setting.name} out",
            )


def _other_trainer(setting: Setting, settings: Mapping[str, Any], source: str) -> BadInput:
    """The error for a recipe that has settings of another trainer than the requested one."""
    trainer, owners = settings["trainer"], " and ".join(setting.trainers)
    return BadInput(
        f"{source}: trainer = {trainer}, but the recipe sets {setting.name}, which belongs to trainer {owners}",
        expected=f"no recipe, or one for {trainer}",
        hint=f"envdoctor train --trainer {trainer} --model MODEL --data PATH",
    )
