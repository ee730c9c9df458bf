"""Split rows into training and held-out rows that share no prompt. Standard library only."""

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
Predicate = Callable[[Row], bool]


@dataclass(frozen=True)
class RowSplit:
    """Training rows, held-out rows, and a summary for the run's record."""

    train: list[Row]
    held_out: list[Row]
    summary: dict[str, Any]


def split_rows(rows: list[Row], settings: dict[str, Any], data_format: str) -> RowSplit:
    """Hold out the rows that `held_out` selects, and drop and count training rows with a held-out prompt."""
    label, is_held_out = choose_rule(rows, settings, data_format)
    held_out = [row for row in rows if is_held_out(row)]
    others = [row for row in rows if not is_held_out(row)]
    held_out_keys = {row["key"] for row in held_out}
    train = [row for row in others if row["key"] not in held_out_keys]
    if not train:
        raise BadInput(
            f"{settings['data']}: no training rows are left after {label} is held out "
            f"({len(held_out)} of {len(rows)} rows, {len(others)} more with the same prompts)",
            expected="training and held-out rows with different prompts",
            hint="--set held_out=share=0.1",
        )
    summary = {
        "held_out": label,
        "held_out_rows": len(held_out),
        "train_rows": len(train),
        "dropped_shared_rows": len(others) - len(train),
        "distinct_prompts": len({row["key"] for row in rows}),
    }
    for name, part in (("train_rows", train), ("held_out_rows", held_out)):
        if 0 < settings[name] < len(part):
            summary |= {name: settings[name], f"{name}_there": len(part)}
    return RowSplit(
        _sample(train, settings["train_rows"], settings["seed"]),
        _sample(held_out, settings["held_out_rows"], settings["seed"]),
        summary,
    )


def choose_rule(rows: list[Row], settings: dict[str, Any], data_format: str) -> tuple[str, Predicate]:
    """Return a label of the held-out rows, and a predicate that selects them."""
    rule = settings["held_out"] or ("" if data_format == "tes" else "share=0.1")
    name, equals, value = rule.partition("=")
    if not equals:
        return _by_name(rows, rule, settings["data"], data_format)
    if name == "share":
        return _by_share(rows, value, settings["seed"])
    if name == "split" and "split" in rows[0]:
        return f"split {value}", lambda row: row["split"] == value
    if name == "file":
        return _by_name(rows, value, settings["data"], "")
    return _by_column(rows, name, value)


def _by_share(rows: list[Row], text: str, seed: int) -> tuple[str, Predicate]:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise BadInput(
            f"settings: held_out = share={text}", expected="a share between 0 and 1", hint="--set held_out=share=0.1"
        )
    keys = sorted({row["key"] for row in rows})
    if len(keys) < 2:
        raise BadInput(
            f"the data has {len(rows)} rows with {len(keys)} distinct prompt{'s' * (len(keys) != 1)}",
            expected="at least two distinct prompts: one for training, one held out",
            hint="--set data=PATH with more rows",
        )
    random.Random(seed).shuffle(keys)  # noqa: S311  (no secret)
    count = min(len(keys) - 1, max(1, round(share * len(keys))))
    selected = set(keys[:count])
    return f"{count} of {len(keys)} distinct prompts", lambda row: row["key"] in selected


def _by_name(rows: list[Row], part: str, data: str, data_format: str) -> tuple[str, Predicate]:
    """Select the file whose name contains `part`, or the last one if it is empty.

    A single file of the format tes is split by day instead.
    """
    files = unique_files(rows)
    unit = "day" if data_format == "tes" and len(files) == 1 else "file"
    names = sorted({row["day"] for row in rows}) if unit == "day" else files
    name = choose_held_out(part, names, unit, data)
    return f"{unit} {name}", lambda row: row[unit] == name


def _by_column(rows: list[Row], column: str, value: str) -> tuple[str, Predicate]:
    columns = list(rows[0]["columns"])
    if column not in columns:
        raise BadInput(
            f"settings: held_out = {column}={value}: there is no column {column!r}{suggest(column, columns)}",
            expected="share=0.1, file=PART, split=NAME (of a Hub dataset), or COLUMN=VALUE with one of "
            + ", ".join(columns),
            hint="--set held_out=share=0.1",
        )
    values = list(dict.fromkeys(_to_text(row["columns"][column]) for row in rows))
    if value not in values:
        shown = ", ".join(value[:40] for value in values[:10]) + (", ..." if len(values) > 10 else "")
        raise BadInput(
            f"settings: held_out = {column}={value}: no row has this value{suggest(value, values)}",
            expected=f"one of the {len(values)} values of {column}: {shown}",
            hint=f"--set {shlex.quote(f'held_out={column}={values[-1]}')}",
        )
    return f"{column} = {value}", lambda row: _to_text(row["columns"][column]) == value


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sample(rows: list[Row], count: int, seed: int) -> list[Row]:
    """Draw at most `count` rows by the seed, in their original order; 0 means all."""
    if not 0 < count < len(rows):
        return rows
    selected = sorted(random.Random(seed).sample(range(len(rows)), count))  # noqa: S311  (no secret)
    return [rows[number] for number in selected]
