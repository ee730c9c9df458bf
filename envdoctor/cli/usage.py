"""Usage errors: an unknown command or option, a missing or invalid value, and spellings of earlier versions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import get_args

from envdoctor.cli.common import CommonOptions, Format
from envdoctor.commands.registry import BY_NAME, GROUPS, child_names
from envdoctor.core.config import read_config
from envdoctor.core.errors import BadInput
from envdoctor.core.options import record_fields
from envdoctor.core.record import Record


class Spelling(Record, frozen=True):
    """What replaces an option of an earlier version: another command, an argument or another option."""

    command: str
    argument: bool = False  # the option's value becomes an argument
    option: str = ""  # the option's value becomes the value of this option
    valid: tuple[str, ...] = ()  # values of the present option of the same name


OLD_SPELLINGS = {
    ("plan", "--recipe"): Spelling("plan", argument=True),
    ("profiles new", "--from-venv"): Spelling("profiles new", argument=True),
    ("export", "--format"): Spelling("export", option="--as", valid=tuple(form.value for form in Format)),
    ("verify", "--bench"): Spelling("bench"),
    ("verify", "--load"): Spelling("load-test"),
    ("train", "--list"): Spelling("recipes"),
    ("pack", "--check"): Spelling("check-pack", argument=True),
}


def present_spelling(command: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The command and its words, without options of earlier versions."""
    for index, word in enumerate(words):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        spelling = OLD_SPELLINGS.get((command, option))
        if spelling is None:
            continue
        end = index + 1
        if (spelling.argument or spelling.option) and not equals:
            value = words[end] if words[end:] else option.strip("-").upper()
            end += 1
        if value not in spelling.valid:
            new = [spelling.option] if spelling.option else []
            new += [value] if spelling.option or spelling.argument else []
            return present_spelling(spelling.command, [*new, *words[:index], *words[end:]])
    return command, list(words)


def common_options_last(words: Sequence[str]) -> list[str]:
    """Move common options before the command behind it: `--format json fleet -q check` is `fleet check ...`."""
    options, rest = _split_common_options(words)
    name, rest = rest[:1], rest[1:]
    if name and name[0] in GROUPS:
        more, after = _split_common_options(rest)
        if after and (name[0] not in BY_NAME or after[0] in child_names(f"{name[0]} ")):
            return [*name, after[0], *options, *more, *after[1:]]
    return [*name, *options, *rest]


def _split_common_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The common options at the start of a command line, and the rest."""
    declarations = [get_args(field.type) for field in record_fields(CommonOptions)]
    takes_value = {name: kind is not bool for kind, option in declarations for name in (option.flag, option.short)}
    end = 0
    while words[end:] and words[end].partition("=")[0] in takes_value:
        end += 2 if takes_value[words[end].partition("=")[0]] and "=" not in words[end] else 1
    return list(words[:end]), list(words[end:])


def command_of(words: Sequence[str]) -> str:
    """The full name of the command in a command line that may be invalid; empty if there is none."""
    name = words[0] if words else ""
    if name in GROUPS and words[1:] and words[1] in child_names(f"{name} "):
        name = f"{name} {words[1]}"
    return name if name in BY_NAME else ""


def requested_format(words: Sequence[str]) -> Format:
    """The value of --format in a command line that may be invalid, else that of the configuration."""
    options = words[: words.index("--")] if "--" in words else words
    values = [word.removeprefix("--format=") for word in options if word.startswith("--format=")]
    values += [value for option, value in pairwise(options) if option == "--format"]
    form = next((form for form in Format if form.value in values), None) or _configured_format()
    return form if _supports(command_of(words), form) else Format.human


def _configured_format() -> Format:
    with suppress(BadInput, OSError, RuntimeError):  # the error to print may be that of the configuration
        if setting := read_config(Path.cwd()).get("format"):
            return Format(str(setting.value))
    return Format.human


def check_format(command: str, form: Format, words: Sequence[str]) -> None:
    """Raise BadInput for a format of findings if a command reports none. `words`: the command line."""
    if not _supports(command, form):
        accepted = [re.sub(rf"^(--format=)?{form.value}$", r"\1json", word) for word in words]
        raise BadInput(
            f"--format {form.value}: envdoctor {command} reports no findings",
            expected="--format human or --format json",
            hint=shlex.join(["envdoctor", *accepted]),
        )


def _supports(command: str, form: Format) -> bool:
    return form in (Format.human, Format.json) or command not in BY_NAME or BY_NAME[command].has_findings


def setting_of(command: str, option: str) -> str:
    """The setting of the trainer that has the name of an unknown option; empty if there is none."""
    if command not in ("train", "plan"):
        return ""
    from envdoctor.training.recipes import read_field_names, read_settings

    name = option.strip("-").replace("-", "_")
    known = (*(setting.name for setting in read_settings()), *read_field_names())
    return next((each for each in known if name in (each, each.removesuffix("s"))), "")
