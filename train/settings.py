"""Settings: one vocabulary for every recipe and every TRL. Standard library only: checked without torch."""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECIPES = HERE / "recipes"
TYPE_NAMES = {
    int: "a whole number", float: "a number", str: "a text", bool: "true or false", list: "a list, as a,b",
}  # fmt: skip
LARGEST = 1e9  # of a setting without a bound of its own
REPORTERS = ("tensorboard", "trackio", "wandb")
REPOSITORY = re.compile(r"(\b[\w\-.]+\b/)?\b[\w\-.]{1,96}\b")
VOCABULARY = "settings.toml"  # another engine has one of its own: verl_settings.toml

Contradiction = tuple[str, str, str]  # what is seen, what is expected, a way out


class BadInput(Exception):  # noqa: N818  (named after the event that it becomes)
    """What a person gave cannot be used: the value seen and where, what was expected, what to do next."""

    def __init__(self, message: str, *, expected: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.expected, self.hint = message, expected, hint

    def as_record(self) -> dict[str, str]:
        """For JSON."""
        return {"message": self.message, "expected": self.expected, "hint": self.hint}


@dataclass(frozen=True)
class Word:
    """A setting: its default gives its type."""

    name: str
    default: Any
    says: str
    choices: tuple[str, ...] = ()
    least: float = 0.0
    most: float = LARGEST
    tasks: tuple[str, ...] = ()  # that it belongs to; empty: all
    beside: str = ""  # the setting without which it does nothing: NAME (not 0) or NAME=one,of,these


@dataclass(frozen=True)
class Recipe:
    """A recipe: its name, one line about it, and the settings that it changes."""

    name: str
    summary: str
    settings: dict[str, Any]


@functools.cache
def vocabulary(file: str = VOCABULARY) -> dict[str, Word]:
    """Every setting there is, in the order of the file."""
    table = tomllib.loads((HERE / file).read_text(encoding="utf-8"))
    return {
        name: Word(
            name,
            word["default"],
            word["says"],
            tuple(word.get("choices", ())),
            word.get("least", 0.0),
            word.get("most", LARGEST),
            tuple(word.get("of", ())),
            word.get("with", ""),
        )
        for name, word in table.items()
    }


def list_recipes() -> list[str]:
    """Names of the bundled recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def read_recipe(name: str) -> Recipe:
    """A bundled recipe by its name, or a file of one's own."""
    own = name.endswith(".toml") or "/" in name
    if not own and name not in list_recipes():
        raise BadInput(
            f"unknown recipe {name!r}{suggest(name, list_recipes())}",
            expected=f"one of {', '.join(list_recipes())}, or a TOML file of yours",
            hint="envdoctor train --list",
        )
    path = expanded(name) if own else RECIPES / f"{name}.toml"
    form = "name, summary, engine, and a table [settings]"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}", expected="a recipe in TOML", hint="envdoctor train --list"
        ) from None
    except (ValueError, RecursionError) as error:  # also a number of too many digits, and tables too deep
        raise BadInput(f"{path} is not TOML: {error}", expected=form, hint=f"correct {path}") from None
    keys = ["name", "summary", "engine", "settings"]
    extra = [key for key in table if key not in keys]
    if extra or not isinstance(table.get("settings", {}), dict):
        seen = f"unknown key {extra[0]!r}{suggest(extra[0], keys)}" if extra else "settings"
        raise BadInput(f"{path}: {seen}", expected=form, hint=f"correct {path}")
    return Recipe(str(table.get("name", path.stem)), str(table.get("summary", "")), table.get("settings", {}))


def expanded(path: str) -> Path:
    """`~/x` and `~name/x` as the shell means them; where there is no such home, as they stand."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib's raises RuntimeError for a user that is none


def suggest(word: str, known: Sequence[str]) -> str:
    """` (did you mean 'x'?)` for the nearest known word, else nothing."""
    near = difflib.get_close_matches(str(word), known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def parse_assignments(assignments: Sequence[str], file: str = VOCABULARY) -> dict[str, Any]:
    """`--set KEY=VALUE`, each value of its default's type. Sample: ["steps=5", "report_to=wandb"]."""
    given: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadInput(
                f"--set {assignment}", expected="KEY=VALUE, as steps=100", hint="envdoctor train --settings"
            )
        given[key] = _parse(_word(key, "--set", file), text)
    return given


def _parse(word: Word, text: str) -> Any:
    kind = type(word.default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is list and text.startswith("["):  # as JSON, where a part holds a comma: rewards=["format:a{1,2}"]
            return [str(part) for part in json.loads(text)]
        if kind is list:
            return [part.strip() for part in text.split(",") if part.strip()]
        return kind(text)
    except (KeyError, ValueError, RecursionError):
        raise BadInput(
            f"--set {word.name}={shorten(text)}",
            expected=f"{word.name} is {TYPE_NAMES[kind]} (default {show(word.default)})",
            hint=f"--set {word.name}={show(word.default)}",
        ) from None


def _word(key: str, source: str, file: str) -> Word:
    words = vocabulary(file)
    if key not in words:
        raise BadInput(
            f"{source}: unknown setting {key!r}{suggest(key, list(words))}",
            expected="a setting of the trainer's vocabulary",
            hint="envdoctor train --settings",
        )
    return words[key]


def settle(
    recipe: Recipe,
    given: object,
    source: str = "settings",
    *,
    file: str = VOCABULARY,
    contradictions: Callable[[Mapping[str, Any]], list[Contradiction]] | None = None,
) -> dict[str, Any]:
    """Every setting: the vocabulary's defaults, the recipe's over them, what was given over those; all checked."""
    if not isinstance(given, dict):
        raise BadInput(
            f"{source} is {_describe(given)}", expected="an object of settings", hint="use --set key=value"
        )
    settings = {name: word.default for name, word in vocabulary(file).items()}
    for origin, changes in ((f"recipe {recipe.name}", recipe.settings), (source, given)):
        for key, value in changes.items():
            word = _word(key, origin, file)
            settings[key] = _coerce(word, value, origin)
            _check_value(word, settings[key], origin)
    _refuse_what_is_ignored(settings, given, recipe.settings, source, file)
    for problem, expected, hint in (*_no_repository(settings), *(contradictions or _contradictions)(settings)):
        raise BadInput(f"{source}: {problem}", expected=expected, hint=hint)
    return settings


def _coerce(word: Word, value: object, source: str) -> Any:
    kind = type(word.default)
    if kind is float and type(value) is int:
        return float(value) if abs(value) <= LARGEST else value  # which float() may not hold; it is refused below
    if kind is list and type(value) is list:
        return [str(part) for part in value]
    if type(value) is not kind:  # `is`, since True is an int for isinstance
        raise BadInput(
            f"{source}: {word.name} = {_describe(value)}",
            expected=f"{word.name} is {TYPE_NAMES[kind]} (default {show(word.default)})",
            hint=f"--set {word.name}={show(word.default)}",
        )
    return value


def _check_value(word: Word, value: Any, source: str) -> None:
    if word.choices and value not in word.choices:
        raise BadInput(
            f"{source}: {word.name} = {value!r}{suggest(value, word.choices)}",
            expected=f"{word.name} is one of {', '.join(choice or 'nothing' for choice in word.choices)}",
            hint=f"--set {word.name}={word.default}",
        )
    if isinstance(value, int | float) and not isinstance(value, bool) and not word.least <= value <= word.most:
        low = word.most >= LARGEST and value < word.least
        limit = f"at least {word.least:g}" if low else f"from {word.least:g} to {word.most:.10g}"
        raise BadInput(
            f"{source}: {word.name} = {shorten(str(value))}",  # also nan, which is in no range
            expected=f"{word.name} is {limit}",
            hint=f"change --set {word.name}=...",
        )


def _refuse_what_is_ignored(
    settings: dict[str, Any], given: Mapping[str, Any], recipe: Mapping[str, Any], source: str, file: str
) -> None:
    """A setting that would change nothing is told, not dropped.

    But what the recipe says of a way that was left for another one goes with it: its share for vLLM, without vLLM.
    """
    for word in vocabulary(file).values():
        name, _, values = word.beside.partition("=")
        # A default that was asked for beside a recipe that goes another way: --set epochs=1 where it counts steps.
        asked = word.name in given and name in recipe and name not in given
        if settings[word.name] == word.default and not asked:
            continue
        if word.tasks and settings["task"] not in word.tasks:
            raise BadInput(
                f"{source}: {word.name} = {show(settings[word.name])}, which belongs to task "
                + " and ".join(word.tasks),
                expected=f"settings of task {settings['task']}",
                hint=f"leave {word.name} out",
            )
        if name and (show(settings[name]) not in values.split(",") if values else not settings[name]):
            if name in given and word.name not in given:
                settings[word.name] = word.default
                continue
            usual = 8 if isinstance(settings[name], int) else 0.04  # of a count, and of beta in GRPO's own paper
            raise BadInput(
                f"{source}: {word.name} = {show(settings[word.name])} does nothing with {name} = {settings[name]}",
                expected=f"{name} is {' or '.join(values.split(',')) if values else 'set'}",
                hint=f"--set {name}={values.split(',')[0] if values else usual}, or leave {word.name} out",
            )


def _no_repository(settings: Mapping[str, Any]) -> list[Contradiction]:
    """push_to by the hub's own rule (huggingface_hub, validate_repo_id): it is asked when the training is over."""
    name = settings["push_to"]
    odd = "--" in name or ".." in name or name.endswith(".git")
    if not name or (REPOSITORY.fullmatch(name) and not odd):
        return []
    return [(f"push_to = {name!r}", "OWNER/NAME of letters, digits, - _ and .", "--set push_to=OWNER/NAME")]


def _contradictions(settings: Mapping[str, Any]) -> list[Contradiction]:
    """Settings that do not go together: what is seen, what is expected, a way out."""
    return [*_of_the_model(settings), *_of_the_steps(settings), *_of_the_loss(settings), *_of_what_samples(settings)]


def _of_the_model(settings: Mapping[str, Any]) -> list[Contradiction]:
    found = []
    hidden, heads = settings["hidden_size"], settings["heads"]
    if hidden % (2 * heads):
        found.append((
            f"hidden_size = {hidden} with heads = {heads}",
            "hidden_size is a multiple of 2 * heads: rotary embeddings need heads of an even width",
            f"--set hidden_size={2 * heads * max(1, round(hidden / (2 * heads)))}",
        ))  # fmt: skip
    if settings["task"] == "dataset" and not settings["model"]:
        found.append(("model is empty", "a folder or a hub name", "--set model=Qwen/Qwen2.5-0.5B-Instruct"))
    return found


def _of_the_steps(settings: Mapping[str, Any]) -> list[Contradiction]:
    found = []
    answers = settings["prompts_per_step"] * settings["num_generations"]
    if settings["micro_batch"] and answers % settings["micro_batch"]:
        found.append((
            f"micro_batch = {settings['micro_batch']} for {answers} answers a step",
            f"a divisor of prompts_per_step * num_generations = {answers}",
            f"--set micro_batch={math.gcd(answers, settings['micro_batch'])}",
        ))  # fmt: skip
    steps, warm_up = settings["steps"], settings["lr_warmup_steps"]
    if 0 < steps <= warm_up:
        found.append((
            f"lr_warmup_steps = {warm_up} of {steps} steps: the learning rate would never be reached",
            "a warm-up that ends before the steps do", f"--set lr_warmup_steps={steps // 10}",
        ))  # fmt: skip
    every, updates = settings["save_every"], settings["num_iterations"]
    if every % updates:
        found.append((
            f"save_every = {every} with num_iterations = {updates}",
            "a checkpoint only after all updates of a batch of answers: the answers themselves are not saved",
            f"--set save_every={math.ceil(every / updates) * updates}",  # down to 0 it would be none
        ))  # fmt: skip
    unknown = [name for name in settings["report_to"] if name not in REPORTERS]
    if unknown:
        found.append(
            (f"report_to = {unknown[0]!r}{suggest(unknown[0], REPORTERS)}", ", ".join(REPORTERS), "leave it out")
        )
    return found


def _of_the_loss(settings: Mapping[str, Any]) -> list[Contradiction]:
    kind, low, high = settings["loss_type"], settings["epsilon"], settings["epsilon_high"]
    if kind == "cispo" and high < 1:
        seen = f"loss_type = cispo with epsilon_high = {high}, the cap of the ratio: every answer would count so much"
        return [(seen, "at least 1; its paper has 5", "--set epsilon_high=5")]
    if high and high < low:
        expected = "0 (the same as epsilon) or more than epsilon"
        return [(f"epsilon_high = {high} below epsilon = {low}", expected, f"--set epsilon_high={max(low, 0.28)}")]
    return []


def _of_what_samples(settings: Mapping[str, Any]) -> list[Contradiction]:
    found = []
    if settings["generation"] == "vllm-server":
        address = settings["vllm_server"]
        host, _, port = address.rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            what = f"vllm_server = {shorten(repr(address))}" if address else "no vllm_server"
            found.append((f"generation = vllm-server with {what}", "HOST:PORT", "--set vllm_server=localhost:8000"))
    if settings["generation"].startswith("vllm") and not settings["model"]:
        found.append((
            f"generation = {settings['generation']} with the tiny model",
            "a model from a folder or a hub: vLLM loads it by its name", "--set generation=transformers",
        ))  # fmt: skip
    return found


def show(value: Any) -> str:
    """A value as it is written after `--set KEY=`."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _describe(value: object) -> str:
    return f"{shorten(repr(value))} ({type(value).__name__})"


def shorten(text: str) -> str:
    """What was given, in a message of one line."""
    return text if len(text) <= 60 else text[:57] + "..."
