"""Parse raw rows in one of three formats: tes, gsm8k, or rows with a prompt column.

A row is {"prompt": text or messages, "source": "file:row", "file": name, "columns": every column unchanged,
"key": rows with the same key are never split between training and held-out rows}. The formats add "q", "best",
"least" and "day" (tes) or "reference" (gsm8k).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from data import tes as tes_data
from data.answers import read_reference
from data.builtin import read_builtin
from data.files import RawRow, bad_data, cut, read_file
from data.hub_datasets import find_commit, held_out_split, read_held_out, read_hub
from data.other_shapes import NEEDED, describe_other_shape
from data.sources import Source
from data.tes_prompt import least_action
from settings import BadInput, suggest

ROLES = ("system", "developer", "user", "assistant", "tool")
PROMPT_COLUMNS = ("question", "problem", "instruction", "input", "messages")  # common names, for hints


@dataclass(frozen=True)
class RawRows:
    """The rows of a source as read, and the split of each where another split of a dataset is held out."""

    rows: list[RawRow]
    splits: list[str]
    summary: dict[str, Any]  # for the run's record

    @property
    def columns(self) -> list[str]:
        """The names of all columns. A line of a JSONL file may omit one."""
        return list(dict.fromkeys(name for row in self.rows for name in row.columns))

    def add_splits(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The parsed rows, each with its split."""
        return [row | {"split": split} for row, split in zip(rows, self.splits, strict=True)] if self.splits else rows


def read_raw_rows(source: Source, settings: dict[str, Any], *, most: int | None = None) -> RawRows:
    """Read the rows of a source; `most`: only the first rows of each file."""
    summary: dict[str, Any] = {"files": [path.name for path in source.files] or [source.name]}
    splits: list[str] = []
    if source.kind == "hub":
        held_out = held_out_split(settings)
        rows = list(read_hub(source.name, settings["data_split"]))
        more = list(read_held_out(source.name, held_out)) if held_out else []
        splits = [""] * len(rows) + [held_out] * len(more) if held_out else []
        rows += more
        summary["commit"] = find_commit(source.name)[0]
    elif source.kind == "builtin":
        rows = list(read_builtin(source.name))
    else:
        rows = [row for path in source.files for row in islice(read_file(path, source.kind), most)]
    if not rows:
        raise bad_data(source.name, "has no rows", "at least two rows")
    return RawRows(rows, splits, summary)


def read_rows(
    source: Source, settings: dict[str, Any], *, most: int | None = None
) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """Return (format, rows, summary for the run's record); `most`: read only the first rows of each file."""
    raw = read_raw_rows(source, settings, most=most)
    raw_rows, names = raw.rows, raw.columns
    data_format = choose_format(source, settings, raw_rows[0])
    parse = {"tes": _parse_tes, "gsm8k": _parse_gsm8k, "rows": _parse_row}[data_format]
    rows = [parse(row, settings) for row in raw_rows]
    # A reward function gets None for a column that a line omits.
    rows = raw.add_splits([row | {"columns": {name: row["columns"].get(name) for name in names}} for row in rows])
    # TRL checks only the first prompt of a batch for messages.
    first = rows[0]
    other = next((row for row in rows if type(row["prompt"]) is not type(first["prompt"])), None)
    if other:
        kinds = {str: "text", list: "messages"}
        problem = f"is {kinds[type(other['prompt'])]}, that of {first['source']} is {kinds[type(first['prompt'])]}"
        raise bad_data(f"{other['source']}: the prompt", problem, "prompts all text, or all messages")
    summary = {"format": data_format, **raw.summary}
    if data_format == "tes":
        decisions = [tes_data.parse_decision(row) for row in raw_rows]
        rows = [_add_decision(row, decision) for row, decision in zip(rows, decisions, strict=True)]
        mismatched = tes_data.mismatched_rows(decisions)
        summary |= {"ignored_twins": source.ignored_twins, "optimal_action_not_best_q": mismatched}
    elif set(tes_data.Q_COLUMNS) <= set(names):
        rows = [_add_q(read, row) for read, row in zip(raw_rows, rows, strict=True)]
    return data_format, rows, summary


def choose_format(source: Source, settings: dict[str, Any], first: RawRow) -> str:
    """Return the requested format, or detect it from the names of the file and the columns."""
    columns, requested, prompt = first.columns, settings["data_format"], settings["prompt_column"]
    answer = settings["answer_column"]
    is_tes = source.kind == "csv" and ("_q_dataset" in first.file or set(tes_data.COLUMNS) <= set(columns))
    is_gsm8k = "question" in columns and prompt not in columns and "####" in str(columns.get(answer))
    data_format = requested if requested != "auto" else "tes" if is_tes else "gsm8k" if is_gsm8k else "rows"
    if data_format == "tes" and source.kind != "csv":
        raise bad_data(source.name, f"is {source.kind}, data_format = tes", f"CSV files named {tes_data.PATTERN}")
    required = {"tes": tes_data.COLUMNS, "gsm8k": ["question", answer], "rows": [prompt]}[data_format]
    missing = [name for name in required if name not in columns]
    shape, option = describe_other_shape(columns)
    if missing and data_format == "rows" and shape:
        raise BadInput(
            f"{first.location} has {cut(', '.join(columns))}: {shape}, and no column {prompt}",
            expected=NEEDED,
            hint=option
            or f"add a column {prompt} with the messages before the completion, and --reward FILE.py:FUNCTION",
        )
    if missing:
        raise BadInput(
            f"{first.location} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}"
            f"{suggest(missing[0], list(columns))}; it has: {cut(', '.join(columns))}",
            expected=f"data_format {data_format}: the column{'s' * (len(required) > 1)} {', '.join(required)}",
            hint=_column_hint(data_format, list(columns)),
        )
    return data_format


def _column_hint(data_format: str, columns: list[str]) -> str:
    if len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        return "CSV columns are separated by commas: export the file again"
    likely = next((name for name in columns if name.lower() in PROMPT_COLUMNS), "NAME")
    return f"--set prompt_column={likely}" if data_format == "rows" else "correct the file, or --set data_format=rows"


def _parse_row(raw: RawRow, settings: dict[str, Any]) -> dict[str, Any]:
    prompt = parse_prompt(raw, settings["prompt_column"])
    key = prompt.strip() if isinstance(prompt, str) else json.dumps(prompt)
    return {"prompt": prompt, "source": raw.source, "file": raw.file, "key": key, "columns": raw.columns}


def _parse_tes(raw: RawRow, settings: dict[str, Any]) -> dict[str, Any]:
    return _parse_row(raw, settings | {"prompt_column": "prompt"})


def _parse_gsm8k(raw: RawRow, settings: dict[str, Any]) -> dict[str, Any]:
    row = _parse_row(raw, settings | {"prompt_column": "question"})
    return add_reference(row, raw.location, settings["answer_column"], require_marker=True)


def add_reference(row: dict[str, Any], location: str, column: str, *, require_marker: bool = False) -> dict[str, Any]:
    """Return the row with the number of its answer column; `require_marker`: only a number after `####`."""
    cell = row["columns"].get(column)
    number = read_reference(cell)
    if number is None or (require_marker and "####" not in str(cell)):
        expected = ("" if require_marker else "a number, or ") + "text that ends in `#### NUMBER`"
        raise bad_data(f"{location}, column {column}:", cut(repr(cell), 120), expected)
    return row | {"reference": number}


def parse_prompt(raw: RawRow, column: str) -> str | list[dict[str, str]]:
    """Parse a prompt: text, or messages of which the last is the user's."""
    location, value = f"{raw.location}, column {column}", raw.columns.get(column)
    if isinstance(value, str) and raw.file.lower().endswith(".csv"):
        value = parse_csv_messages(location, value)
    if isinstance(value, str):
        return check_text(location, value)
    if isinstance(value, (list, tuple)):
        return _check_messages(location, list(value))
    raise bad_data(location, f"contains {cut(repr(value), 80)}", 'text, or a list of {"role", "content"} messages')


def check_text(location: str, text: str) -> str:
    """Refuse an empty text, and one that is not Unicode."""
    if not text.strip():
        raise bad_data(location, "is empty", "a prompt")
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can express half of a surrogate pair: "\\ud83d"
        problem = f"contains {text[error.start]!r} at character {error.start + 1}, which UTF-8 cannot encode"
        raise bad_data(location, problem, "valid Unicode characters") from None
    return text


def parse_csv_messages(location: str, text: str) -> Any:
    """Parse a CSV cell that contains messages as JSON; return any other text unchanged."""
    if not re.match(r'\s*\[\s*\{\s*"(role|content)"', text):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        problem = f"starts like a list of messages, but is not JSON: {error}"
        raise bad_data(location, problem, "messages as JSON") from None


def _check_messages(location: str, messages: list[Any]) -> list[dict[str, str]]:
    if not messages:
        raise bad_data(location, "is an empty list", "at least one message")
    checked = []
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            problem = f"message {number}: {cut(repr(message), 80)}"
            raise bad_data(f"{location},", problem, f"messages with a role ({', '.join(ROLES)}) and a content")
        content = message.get("content")
        if not isinstance(content, str) or not content.strip():
            raise bad_data(f"{location},", f"message {number}: content is {cut(repr(content), 80)}", "text")
        extra = [name for name, value in message.items() if name not in ("role", "content") and value is not None]
        if extra:
            problem = f"message {number} has {', '.join(extra)}"
            raise bad_data(f"{location},", problem, "only role and content: no tools, no images")
        checked.append({"role": message["role"], "content": check_text(f"{location}, message {number}", content)})
    if checked[-1]["role"] != "user":
        # TRL before 0.25 continues an assistant message and refuses other roles; later versions start a new turn.
        problem = f"the last message has the role {checked[-1]['role']}"
        raise bad_data(f"{location},", problem, "a last message with the role user")
    return checked


def _add_decision(row: dict[str, Any], decision: tes_data.Decision) -> dict[str, Any]:
    """Add the facts of the plant. The key is the hour, which is the same for copies in another chat format."""
    return row | {
        "key": decision.facts.moment,
        "day": decision.facts.date,
        "q": list(decision.q),
        "best": decision.best,
        "least": least_action(decision.facts),
    }


def _add_q(raw: RawRow, row: dict[str, Any]) -> dict[str, Any]:
    q = []
    for column in tes_data.Q_COLUMNS:
        try:
            value = float(raw.columns.get(column))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise bad_data(f"{raw.location}, column {column}:", repr(raw.columns.get(column)), "a finite number")
        q.append(value)
    return row | {"q": q, "best": q.index(max(q))}


def unique_files(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the rows' files in order."""
    return list(dict.fromkeys(row["file"] for row in rows))
