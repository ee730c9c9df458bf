"""Rows of a person's data in one of three formats: tes, gsm8k, or rows with a prompt column.

A row is {"prompt": text or messages, "source": "file:row", "file": name, "columns": every column as it came,
"key": what may not stand in both halves}, and by format: "q", "best", "least", "day" (tes) or "reference" (gsm8k).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from data import tes as tes_data
from data.answers import read_reference
from data.files import Raw, Source, bad_data, cut, read_files
from data.hub_datasets import find_commit, read_hub
from data.tes_prompt import least_action
from settings import BadInput, suggest

ROLES = ("system", "developer", "user", "assistant", "tool")


def read_rows(source: Source, settings: dict[str, Any]) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """(format, rows, what to tell about the files)."""
    is_hub = source.kind == "hub"
    raws = list(read_hub(source.name, settings["data_split"]) if is_hub else read_files(source))
    if not raws:
        raise bad_data(source.name, "has no rows", "at least two rows")
    form = choose_format(source, settings, raws[0])
    parse = {"tes": _parse_tes, "gsm8k": _parse_gsm8k, "rows": _parse_row}[form]
    names = list(dict.fromkeys(name for raw in raws for name in raw.columns))
    rows = [parse(raw, settings) for raw in raws]
    # A JSONL file may leave a column out: a reward function sees it all the same, as None.
    rows = [row | {"columns": {name: row["columns"].get(name) for name in names}} for row in rows]
    _refuse_a_mixture(rows)
    summary = {"format": form, "files": [path.name for path in source.files] or [source.name]}
    if is_hub:
        summary["commit"] = find_commit(source.name)[0]
    if form == "tes":
        rows, mismatched = _add_decisions(source, rows)
        summary |= {"ignored_twins": source.ignored_twins, "optimal_action_not_best_q": mismatched}
    elif set(tes_data.Q_COLUMNS) <= set(names):
        rows = [_add_q(raw, row) for raw, row in zip(raws, rows, strict=True)]
    return form, rows, summary


def choose_format(source: Source, settings: dict[str, Any], first: Raw) -> str:
    """The format asked for, or what names and columns tell."""
    columns, wanted, prompt = first.columns, settings["data_format"], settings["prompt_column"]
    answer = settings["answer_column"]
    is_tes = source.kind == "csv" and ("_q_dataset" in first.file or set(tes_data.COLUMNS) <= set(columns))
    is_gsm8k = "question" in columns and prompt not in columns and "####" in str(columns.get(answer))
    form = wanted if wanted != "auto" else "tes" if is_tes else "gsm8k" if is_gsm8k else "rows"
    if form == "tes" and source.kind != "csv":
        raise bad_data(source.name, f"is {source.kind}, data_format = tes", f"CSV files named {tes_data.PATTERN}")
    needed = {"tes": tes_data.COLUMNS, "gsm8k": ["question", answer], "rows": [prompt]}[form]
    missing = [name for name in needed if name not in columns]
    if missing:
        found = cut(", ".join(columns))
        raise BadInput(
            f"{first.place} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
            f"{suggest(missing[0], list(columns))}; it has: {found}",
            expected=f"data_format {form}: the column{'s' * (len(needed) > 1)} {', '.join(needed)}",
            hint=_hint_on_columns(form, list(columns)),
        )
    return form


def _hint_on_columns(form: str, columns: list[str]) -> str:
    if len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        return "the columns of a CSV file are separated by commas: export the file again"
    usual = ("question", "problem", "instruction", "input", "messages")
    likely = next((name for name in columns if name.lower() in usual), "NAME")
    return f"--set prompt_column={likely}" if form == "rows" else "correct the file, or --set data_format=rows"


def _parse_row(raw: Raw, settings: dict[str, Any]) -> dict[str, Any]:
    column = settings["prompt_column"]
    prompt = _parse_prompt(raw, column)
    key = prompt.strip() if isinstance(prompt, str) else json.dumps(prompt)
    return {"prompt": prompt, "source": raw.source, "file": raw.file, "key": key, "columns": raw.columns}


def _parse_tes(raw: Raw, settings: dict[str, Any]) -> dict[str, Any]:
    return _parse_row(raw, settings | {"prompt_column": "prompt"})


def _parse_gsm8k(raw: Raw, settings: dict[str, Any]) -> dict[str, Any]:
    row = _parse_row(raw, settings | {"prompt_column": "question"})
    return add_reference(row, raw.place, settings["answer_column"], marked=True)


def add_reference(row: dict[str, Any], place: str, column: str, *, marked: bool = False) -> dict[str, Any]:
    """The row with the number that its answer column names; `marked`: after `####`."""
    cell = row["columns"].get(column)
    number = read_reference(cell)
    if number is None or (marked and "####" not in str(cell)):
        expected = ("" if marked else "a number, or ") + "text that ends in `#### NUMBER`"
        raise bad_data(f"{place}, column {column}:", cut(repr(cell), 120), expected)
    return row | {"reference": number}


def _parse_prompt(raw: Raw, column: str) -> str | list[dict[str, str]]:
    place, value = f"{raw.place}, column {column}", raw.columns.get(column)
    if isinstance(value, str) and raw.file.lower().endswith(".csv"):
        value = _parse_csv_messages(place, value)
    if isinstance(value, str):
        return _check_text(place, value)
    if isinstance(value, (list, tuple)):
        return _check_messages(place, list(value))
    raise bad_data(place, f"holds {cut(repr(value), 80)}", 'text, or a list of {"role", "content"} messages')


def _check_text(place: str, text: str) -> str:
    if not text.strip():
        raise bad_data(place, "is empty", "a prompt")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can write half of a pair: "\\ud83d"
        problem = f"holds {text[error.start]!r} at character {error.start + 1}, which no text encoding has"
        raise bad_data(place, problem, "whole characters") from None
    return text


def _parse_csv_messages(place: str, text: str) -> Any:
    """A CSV cell has text alone: messages stand in it as JSON; anything else is a prompt in words."""
    if not re.match(r'\s*\[\s*\{\s*"(role|content)"', text):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise bad_data(place, f"begins as a list of messages and is not JSON: {error}", "messages as JSON") from None


def _check_messages(place: str, messages: list[Any]) -> list[dict[str, str]]:
    if not messages:
        raise bad_data(place, "is an empty list", "at least one message")
    kept = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            problem = f"message {number}: {cut(repr(message), 80)}"
            raise bad_data(f"{place},", problem, f"messages with a role ({', '.join(ROLES)}) and a content")
        content = message.get("content")
        if not isinstance(content, str) or not content.strip():
            raise bad_data(f"{place},", f"message {number}: content is {cut(repr(content), 80)}", "text")
        more = [name for name, value in message.items() if name not in ("role", "content") and value is not None]
        if more:
            problem = f"message {number} has {', '.join(more)}"
            raise bad_data(f"{place},", problem, "role and content alone: no tools, no images")
        kept.append({"role": message["role"], "content": _check_text(f"{place}, message {number}", content)})
    if kept[-1]["role"] != "user":
        # TRL below 0.25 continues an assistant's message and refuses any other role; later ones open a new turn.
        raise bad_data(f"{place},", f"the last message is the {kept[-1]['role']}'s", "a last message of the user")
    return kept


def _refuse_a_mixture(rows: list[dict[str, Any]]) -> None:
    """TRL looks at the first prompt of a batch and takes the others for the same."""
    other = next((row for row in rows if type(row["prompt"]) is not type(rows[0]["prompt"])), None)
    if other:
        kinds = {str: "text", list: "messages"}
        problem = f"is {kinds[type(other['prompt'])]}, {rows[0]['source']} {kinds[type(rows[0]['prompt'])]}"
        raise bad_data(f"{other['source']}: the prompt", problem, "prompts all text, or all messages")


def _add_decisions(source: Source, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows with what tes_data reads out of them. The key is the hour: a twin in another chat format has the same."""
    decisions = [decision for path in source.files for decision in tes_data.read_decisions(path)]
    added = [
        row | {
            "key": decision.facts.moment,
            "day": decision.facts.date,
            "q": list(decision.q),
            "best": decision.best,
            "least": least_action(decision.facts),
        }
        for row, decision in zip(rows, decisions, strict=True)
    ]  # fmt: skip
    mismatched = [f"{one.file} row {one.row}" for one in decisions if one.q[one.named_best] < max(one.q)]
    return added, mismatched


def _add_q(raw: Raw, row: dict[str, Any]) -> dict[str, Any]:
    q = []
    for column in tes_data.Q_COLUMNS:
        try:
            value = float(raw.columns.get(column))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise bad_data(f"{raw.place}, column {column}:", repr(raw.columns.get(column)), "a finite number")
        q.append(value)
    return row | {"q": q, "best": q.index(max(q))}


def unique_files(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Names of the rows' files, in their order."""
    return list(dict.fromkeys(row["file"] for row in rows))
