"""Rows split into training and held-out ones that share no prompt. Standard library only."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data.rows import unique_files
from data.tes import choose_held_out
from settings import BadInput, suggest

Row = dict[str, Any]


@dataclass(frozen=True)
class Halves:
    """Training and held-out rows, and what to tell about them."""

    train: list[Row]
    held_out: list[Row]
    summary: dict[str, Any]


def split_rows(rows: list[Row], settings: dict[str, Any], form: str) -> Halves:
    """Hold out what `held_out` says; a training row whose prompt is held out, too, is dropped and counted."""
    label, belongs = choose_rule(rows, settings, form)
    held_out = [row for row in rows if belongs(row)]
    others = [row for row in rows if not belongs(row)]
    kept_out = {row["key"] for row in held_out}
    train = [row for row in others if row["key"] not in kept_out]
    if not train:
        raise BadInput(
            f"{settings['data']}: nothing is left to train on once {label} is held out "
            f"({len(held_out)} of {len(rows)} rows, {len(others)} more with the same prompts)",
            expected="rows on both sides, with different prompts",
            hint="--set held_out=share=0.1",
        )
    summary = {
        "held_out": label,
        "held_out_rows": len(held_out),
        "train_rows": len(train),
        "dropped_shared_rows": len(others) - len(train),
        "distinct_prompts": len({row["key"] for row in rows}),
    }
    for name, half in (("train_rows", train), ("held_out_rows", held_out)):
        if 0 < settings[name] < len(half):
            summary |= {name: settings[name], f"{name}_there": len(half)}
    return Halves(
        _choose(train, settings["train_rows"], settings["seed"]),
        _choose(held_out, settings["held_out_rows"], settings["seed"]),
        summary,
    )


def choose_rule(rows: list[Row], settings: dict[str, Any], form: str) -> tuple[str, Callable[[Row], bool]]:
    """What is held out, in words and as a test of a row."""
    asked = settings["held_out"] or ("" if form == "tes" else "share=0.1")
    name, equals, value = asked.partition("=")
    if not equals:
        return _by_name(rows, asked, settings["data"], form)
    if name == "share":
        return _by_share(rows, value, settings["seed"])
    if name == "file":
        return _by_name(rows, value, settings["data"], "")
    return _by_column(rows, name, value)


def _by_share(rows: list[Row], given: str, seed: int) -> tuple[str, Callable[[Row], bool]]:
    try:
        share = float(given)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise BadInput(
            f"settings: held_out = share={given}", expected="a share between 0 and 1", hint="--set held_out=share=0.1"
        )
    keys = sorted({row["key"] for row in rows})
    if len(keys) < 2:
        raise BadInput(
            f"the data holds {len(rows)} rows with {len(keys)} distinct prompt{'s' * (len(keys) != 1)}",
            expected="at least two distinct prompts: one to train on, one to hold out",
            hint="--set data=PATH to more rows",
        )
    random.Random(seed).shuffle(keys)  # noqa: S311  (no secret)
    count = min(len(keys) - 1, max(1, round(share * len(keys))))
    chosen = set(keys[:count])
    return f"{count} of {len(keys)} distinct prompts", lambda row: row["key"] in chosen


def _by_name(rows: list[Row], part: str, data: str, form: str) -> tuple[str, Callable[[Row], bool]]:
    """The file (of one file of a heat store: the day) whose name contains `part`; the last one when it is empty."""
    files = unique_files(rows)
    unit = "day" if form == "tes" and len(files) == 1 else "file"
    names = sorted({row["day"] for row in rows}) if unit == "day" else files
    name = choose_held_out(part, names, unit, data)
    return f"{unit} {name}", lambda row: row[unit] == name


def _by_column(rows: list[Row], column: str, value: str) -> tuple[str, Callable[[Row], bool]]:
    columns = list(rows[0]["columns"])
    if column not in columns:
        raise BadInput(
            f"settings: held_out = {column}={value}: there is no column {column!r}{suggest(column, columns)}",
            expected=f"share=0.1, file=PART, or COLUMN=VALUE with one of {', '.join(columns)}",
            hint="--set held_out=share=0.1",
        )
    values = list(dict.fromkeys(_say(row["columns"][column]) for row in rows))
    if value not in values:
        shown = ", ".join(value[:40] for value in values[:10]) + (", ..." if len(values) > 10 else "")
        raise BadInput(
            f"settings: held_out = {column}={value}: no row has it{suggest(value, values)}",
            expected=f"a value of {column} ({len(values)} there are): {shown}",
            hint=f"--set {shlex.quote(f'held_out={column}={values[-1]}')}",
        )
    return f"{column} = {value}", lambda row: _say(row["columns"][column]) == value


def _say(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _choose(rows: list[Row], most: int, seed: int) -> list[Row]:
    """At most so many rows, drawn by the seed, in their order."""
    if not 0 < most < len(rows):
        return rows
    chosen = sorted(random.Random(seed).sample(range(len(rows)), most))  # noqa: S311  (no secret)
    return [rows[number] for number in chosen]
