"""Settings of a run: their definitions, recipes, and the checks that need neither torch nor the model.

Standard library only.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECIPES = HERE / "recipes"
SETTINGS_FILE = "settings.toml"  # the settings of verl runs are in verl_settings.toml
TYPE_NAMES = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list, as a,b",
}  # fmt: skip
UNBOUNDED = 1e9  # the maximum of a setting that defines none
REPORTERS = ("tensorboard", "trackio", "wandb")
REPOSITORY = re.compile(r"(\b[\w\-.]+\b/)?\b[\w\-.]{1,96}\b")

Conflict = tuple[str, str, str]  # observed, expected, hint


class BadInput(Exception):  # noqa: N818  (named after the event that it becomes)
    """A setting, file or argument that cannot be used: the observed value and its source, `expected`, `hint`."""

    def __init__(self, message: str, *, expected: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.expected, self.hint = message, expected, hint

    def as_record(self) -> dict[str, str]:
        """The error as a JSON object."""
        return {"message": self.message, "expected": self.expected, "hint": self.hint}


@dataclass(frozen=True)
class Setting:
    """The definition of a setting; the default gives its type."""

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float = 0.0
    maximum: float = UNBOUNDED
    tasks: tuple[str, ...] = ()  # the tasks that have the setting; empty: every task
    requires: str = ""  # the setting that this one depends on: NAME (set) or NAME=one,of,these
    example: Any = None  # a typical value, for hints


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
            row["default"],
            row["help"],
            tuple(row.get("choices", ())),
            row.get("minimum", 0.0),
            row.get("maximum", UNBOUNDED),
            tuple(row.get("tasks", ())),
            row.get("requires", ""),
            row.get("example"),
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


def suggest(word: str, known: Sequence[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, else an empty string."""
    near = difflib.get_close_matches(str(word), known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def parse_assignments(assignments: Sequence[str], file: str = SETTINGS_FILE) -> dict[str, Any]:
    """Parse `--set KEY=VALUE` by the types of the defaults. Sample: ["steps=5", "report_to=wandb"]."""
    given: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(
                f"--set {assignment}", expected="KEY=VALUE, as steps=100", hint="envdoctor train --settings"
            )
        given[key] = _parse(_find_setting(key, "--set", file), text)
    return given


def _parse(setting: Setting, text: str) -> Any:
    kind = type(setting.default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is list and text.startswith("["):  # JSON, for elements with a comma: rewards=["format:a{1,2}"]
            return [str(part) for part in json.loads(text)]
        if kind is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        return kind(text)
    except (KeyError, ValueError, RecursionError):
        raise _type_error(setting, f"--set {setting.name}={shorten(text)}") from None


def _find_setting(key: str, source: str, file: str) -> Setting:
    known = setting_definitions(file)
    if key not in known:
        raise BadInput(
            f"{source}: unknown setting {key!r}{suggest(key, list(known))}",
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
        raise BadInput(
            f"{source} is {_describe(given)}", expected="an object of settings", hint="use --set key=value"
        )
    settings = {name: setting.default for name, setting in setting_definitions(file).items()}
    for origin, changes in ((f"recipe {recipe.name}", recipe.settings), (source, given)):
        for key, value in changes.items():
            setting = _find_setting(key, origin, file)
            settings[key] = _coerce(setting, value, origin)
            _check_value(setting, settings[key], origin)
    settings = _reset_deselected(settings, given, file)
    _check_ineffective(settings, given, recipe.settings, source, file)
    for observed, expected, hint in (
        *_repository_conflicts(settings),
        *(find_conflicts or _find_conflicts)(settings),
    ):
        raise BadInput(f"{source}: {observed}", expected=expected, hint=hint)
    return settings


def _type_error(setting: Setting, message: str) -> BadInput:
    default = format_value(setting.default)
    return BadInput(
        message,
        expected=f"{setting.name} is {TYPE_NAMES[type(setting.default)]} (default {default})",
        hint=f"--set {setting.name}={default}",
    )


def _coerce(setting: Setting, value: object, source: str) -> Any:
    kind = type(setting.default)
    if kind is float and type(value) is int:
        return float(value) if abs(value) <= UNBOUNDED else value  # float() may overflow; the range check refuses it
    if kind is list and type(value) is list:
        return [str(part) for part in value]
    if type(value) is not kind:  # `is`, since True is an int for isinstance
        raise _type_error(setting, f"{source}: {setting.name} = {_describe(value)}")
    return value


def _check_value(setting: Setting, value: Any, source: str) -> None:
    low, high = setting.minimum, setting.maximum
    if setting.choices and value not in setting.choices:
        raise BadInput(
            f"{source}: {setting.name} = {value!r}{suggest(value, setting.choices)}",
            expected=f"{setting.name} is one of {', '.join(choice or 'nothing' for choice in setting.choices)}",
            hint=f"--set {setting.name}={setting.default}",
        )
    if isinstance(value, int | float) and not isinstance(value, bool) and not low <= value <= high:
        one_sided = high >= UNBOUNDED and value < low
        limit = f"at least {low:g}" if one_sided else f"from {low:g} to {high:.10g}"
        raise BadInput(
            f"{source}: {setting.name} = {shorten(str(value))}",  # also NaN, which is in no range
            expected=f"{setting.name} is {limit}",
            hint=f"--set {setting.name}={setting.default}",
        )


def _meets_requirement(setting: Setting, settings: Mapping[str, Any]) -> bool:
    """Whether the setting that this one depends on is set, or has one of the values that `requires` lists."""
    name, _, values = setting.requires.partition("=")
    if not name:
        return True
    return format_value(settings[name]) in values.split(",") if values else bool(settings[name])


def _reset_deselected(settings: Mapping[str, Any], given: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The settings, with the recipe's values reset where `given` deselects the alternative that they belong to.

    Sample: the recipe sets vllm_share for generation = vllm-colocate, and `given` sets generation = transformers.
    """
    found = dict(settings)
    for setting in setting_definitions(file).values():
        deselected = setting.requires.partition("=")[0] in given and not _meets_requirement(setting, found)
        if deselected and setting.name not in given and (not setting.tasks or found["task"] in setting.tasks):
            found[setting.name] = setting.default
    return found


def _check_ineffective(
    settings: Mapping[str, Any], given: Mapping[str, Any], recipe: Mapping[str, Any], source: str, file: str
) -> None:
    """Refuse a setting that would have no effect."""
    for setting in setting_definitions(file).values():
        name, _, values = setting.requires.partition("=")
        value = format_value(settings[setting.name])
        # A default value counts where the user gives it against the recipe: epochs=1 with a recipe that sets steps.
        contradicts_recipe = setting.name in given and name in recipe and name not in given
        if settings[setting.name] == setting.default and not contradicts_recipe:
            continue
        if setting.tasks and settings["task"] not in setting.tasks:
            raise BadInput(
                f"{source}: {setting.name} = {value}, which belongs to task {' and '.join(setting.tasks)}",
                expected=f"settings of task {settings['task']}",
                hint=f"leave {setting.name} out",
            )
        if not _meets_requirement(setting, settings):
            example = values.split(",")[0] or format_value(setting_definitions(file)[name].example)
            raise BadInput(
                f"{source}: {setting.name} = {value} does nothing with {name} = {settings[name]}",
                expected=f"{name} is {' or '.join(values.split(',')) if values else 'set'}",
                hint=f"--set {name}={example}, or leave {setting.name} out",
            )


def _repository_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    """Check push_to before the training by the rule of huggingface_hub (validate_repo_id)."""
    name = settings["push_to"]
    odd = "--" in name or ".." in name or name.endswith(".git")
    if not name or (REPOSITORY.fullmatch(name) and not odd):
        return []
    return [(f"push_to = {name!r}", "OWNER/NAME of letters, digits, - _ and .", "--set push_to=OWNER/NAME")]


def _find_conflicts(settings: Mapping[str, Any]) -> list[Conflict]:
    """Combinations of settings that cannot work."""
    checks = (_model_conflicts, _step_conflicts, _loss_conflicts, _generation_conflicts)
    return [conflict for find in checks for conflict in find(settings)]


def _model_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    hidden, heads = settings["hidden_size"], settings["heads"]
    if hidden % (2 * heads):
        yield (
            f"hidden_size = {hidden} with heads = {heads}",
            "hidden_size is a multiple of 2 * heads: rotary embeddings need heads of an even width",
            f"--set hidden_size={2 * heads * max(1, round(hidden / (2 * heads)))}",
        )
    if settings["task"] == "dataset" and not settings["model"]:
        yield ("model is empty", "a directory or a Hub name", "--set model=Qwen/Qwen2.5-0.5B-Instruct")


def _step_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    completions = settings["prompts_per_step"] * settings["num_generations"]
    if settings["micro_batch"] and completions % settings["micro_batch"]:
        yield (
            f"micro_batch = {settings['micro_batch']} for {completions} completions per step",
            f"a divisor of prompts_per_step * num_generations = {completions}",
            f"--set micro_batch={math.gcd(completions, settings['micro_batch'])}",
        )
    steps, warm_up = settings["steps"], settings["lr_warmup_steps"]
    if 0 < steps <= warm_up:
        yield (
            f"lr_warmup_steps = {warm_up} of {steps} steps: the learning rate would never be reached",
            "a warm-up that ends before the last step",
            f"--set lr_warmup_steps={steps // 10}",
        )
    every, updates = settings["save_every"], settings["num_iterations"]
    if every % updates:
        yield (
            f"save_every = {every} with num_iterations = {updates}",
            "a multiple of num_iterations: a checkpoint does not contain the completions of a started step",
            f"--set save_every={math.ceil(every / updates) * updates}",  # rounded up: 0 would save none
        )
    unknown = [name for name in settings["report_to"] if name not in REPORTERS]
    if unknown:
        yield (f"report_to = {unknown[0]!r}{suggest(unknown[0], REPORTERS)}", ", ".join(REPORTERS), "leave it out")


def _loss_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    kind, low, high = settings["loss_type"], settings["epsilon"], settings["epsilon_high"]
    if kind == "cispo" and high < 1:
        yield (
            f"loss_type = cispo with epsilon_high = {high}: the importance ratio itself is clamped to it",
            "at least 1; the CISPO paper uses 5",
            "--set epsilon_high=5",
        )
    elif high and high < low:
        yield (
            f"epsilon_high = {high} below epsilon = {low}",
            "0 (the same as epsilon) or more than epsilon",
            f"--set epsilon_high={max(low, 0.28)}",
        )


def _generation_conflicts(settings: Mapping[str, Any]) -> Iterator[Conflict]:
    if settings["generation"] == "vllm-server":
        address = settings["vllm_server"]
        host, _, port = address.rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            observed = f"vllm_server = {shorten(repr(address))}" if address else "no vllm_server"
            yield (f"generation = vllm-server with {observed}", "HOST:PORT", "--set vllm_server=localhost:8000")
    if settings["generation"].startswith("vllm") and not settings["model"]:
        yield (
            f"generation = {settings['generation']} with the tiny model",
            "a model from a directory or a Hub: vLLM loads it by its name",
            "--set generation=transformers",
        )


def format_value(value: Any) -> str:
    """A value as written after `--set KEY=`."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe(value: object) -> str:
    return f"{shorten(repr(value))} ({type(value).__name__})"


def shorten(text: str) -> str:
    """Cut a text to 60 characters, for a message of one line."""
    return text if len(text) <= 60 else text[:57] + "..."
