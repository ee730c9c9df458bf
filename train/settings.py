"""A recipe's settings: the TOML file is the schema. Standard library only: the tool checks them without torch."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).parent / "recipes"

# Inclusive bounds. 1e9 stands for "no bound": the number has to be finite all the same.
BOUNDS: dict[str, tuple[float, float]] = {
    "seed": (0, 2**32 - 1),  # numpy's seeds are 32 bits wide
    "hidden_size": (4, 4096),
    "intermediate_size": (4, 16384),
    "layers": (1, 64),
    "heads": (1, 64),
    "digits": (2, 9),
    "warmup_steps": (0, 1e9),
    "warmup_batch": (1, 65536),
    "warmup_learning_rate": (0, 1),
    "steps": (1, 1e9),
    "prompts_per_step": (1, 65536),
    "num_generations": (2, 4096),  # one answer has nothing to be compared with: its advantage is always 0
    "learning_rate": (0, 1),
    "temperature": (0.01, 10),
    "max_completion_length": (1, 4096),
    "epsilon": (1e-6, 1),
    "beta": (0, 10),
    "eval_every": (0, 1e9),
    "eval_samples": (1, 1000),
    "save_every": (0, 1e9),
    "smoothing": (0, 0.9999),
    "invalid_reward": (-1e6, 1e6),
    "tau": (1e-6, 1e6),
    "augment": (0, 1000),
    "energy_noise": (0, 1e6),
    "forecast_noise": (0, 0.5),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "device": ("auto", "cpu", "cuda"),
    "reward": ("softmax", "advantage"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo"),  # those that every TRL since 0.22 has
    "scale_rewards": ("group", "batch", "none"),
}
TYPE_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}


class BadInput(Exception):  # noqa: N818  (named after the event that it becomes)
    """What a person gave cannot be used: the value seen and where, what was expected, what to do next."""

    def __init__(self, message: str, *, expected: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.expected, self.hint = message, expected, hint

    def as_record(self) -> dict[str, str]:
        """For JSON."""
        return {"message": self.message, "expected": self.expected, "hint": self.hint}


@dataclass(frozen=True)
class Recipe:
    """A recipe file: its name, one line about it, and every setting with its default."""

    name: str
    summary: str
    settings: dict[str, Any]


def list_recipes() -> list[str]:
    """Names of the bundled recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read_recipe(name: str) -> Recipe:
    """Read `recipes/NAME.toml`."""
    if name not in list_recipes():
        raise BadInput(
            f"unknown recipe {name!r}{suggest(name, list_recipes())}",
            expected=f"one of {', '.join(list_recipes())}",
            hint="name one of these recipes",
        )
    table = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    return Recipe(table["name"], table["summary"], table["settings"])


def suggest(word: str, known: list[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, else nothing."""
    near = difflib.get_close_matches(str(word), known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def validate_settings(recipe: Recipe, given: object, source: str = "settings") -> dict[str, Any]:
    """The recipe's defaults with `given` laid over them, each value of the default's type and within its bounds."""
    if not isinstance(given, dict):
        raise BadInput(
            f"{source} is {_describe(given)}", expected="an object of settings", hint="use --set key=value"
        )
    known = list(recipe.settings)
    for key in given:
        if key not in recipe.settings:
            raise BadInput(
                f"{source}: unknown setting {key!r}{suggest(key, known)}",
                expected=f"one of {', '.join(known)}",
                hint="correct the key given to --set",
            )
    settings = {}
    for key, default in recipe.settings.items():
        value = _coerce(key, given.get(key, default), default, source)
        _check_value(key, value, source)
        settings[key] = value
    _check_together(settings, source)
    return settings


def _coerce(key: str, value: object, default: object, source: str) -> Any:
    kind = type(default)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # `is`, since True is an int for isinstance
        raise BadInput(
            f"{source}: {key} = {_describe(value)}",
            expected=f"{key} is {TYPE_NAMES[kind]} (default {default!r})",
            hint=f"--set {key}={default}",
        )
    return value


def _check_value(key: str, value: Any, source: str) -> None:
    if key in CHOICES and value not in CHOICES[key]:
        raise BadInput(
            f"{source}: {key} = {value!r}{suggest(value, list(CHOICES[key]))}",
            expected=f"{key} is one of {', '.join(CHOICES[key])}",
            hint=f"--set {key}={CHOICES[key][0]}",
        )
    if isinstance(value, (int, float)) and not isinstance(value, bool) and key in BOUNDS:
        low, high = BOUNDS[key]
        if not low <= value <= high:  # also false for nan
            limit = f"at least {low:g}" if high >= 1e9 else f"from {low:g} to {high:g}"
            raise BadInput(f"{source}: {key} = {value}", expected=f"{key} is {limit}", hint=f"change --set {key}=...")


def _check_together(settings: dict[str, Any], source: str) -> None:
    hidden, heads = settings["hidden_size"], settings["heads"]
    if hidden % (2 * heads):
        raise BadInput(
            f"{source}: hidden_size = {hidden} with heads = {heads}",
            expected="hidden_size is a multiple of 2 * heads: rotary embeddings need heads of an even width",
            hint=f"--set hidden_size={2 * heads * max(1, round(hidden / (2 * heads)))}",
        )


def _describe(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
