"""Rows of examples for SFT and DPO, in TRL's dataset types. Standard library only.

A row is {"example": the columns that TRL reads, "form": text or messages, "source": "file:row", "file": name,
"columns": every column unchanged, "key": rows with the same key are never split between training and held-out rows}.
"""

from __future__ import annotations

import json
from typing import Any

from data.files import RawRow, bad_data, cut
from data.rows import ROLES, check_text, parse_csv_messages, parse_prompt, read_raw_rows
from data.sources import Source
from messages import nearest
from settings import BadInput

Row = dict[str, Any]
PROMPTS = ("question", "instruction", "problem", "input")  # common names, for hints
COMPLETIONS = ("answer", "output", "response", "solution")
NEEDED = {
    "sft": "a column messages, conversations or text, or a prompt and a completion",
    "dpo": "the columns chosen and rejected, and a prompt unless both begin with it",
}


def read_examples(
    source: Source, settings: dict[str, Any], *, most: int | None = None
) -> tuple[str, list[Row], dict[str, Any]]:
    """Return (dataset type, rows, summary for the run's record); `most`: read only the first rows of each file."""
    raw = read_raw_rows(source, settings, most=most)
    kind = choose_type(raw.rows[0], settings)
    rows = raw.add_splits([_parse(row, kind, settings) for row in raw.rows])
    first = rows[0]
    other = next((row for row in rows if row["form"] != first["form"]), None)
    if other:
        problem = f"is {other['form']}, that of {first['source']} is {first['form']}"
        raise bad_data(f"{other['source']}: the example", problem, "examples all text, or all messages")
    return kind, rows, {"format": kind, "form": first["form"], **raw.summary}


def choose_type(first: RawRow, settings: dict[str, Any]) -> str:
    """Return TRL's dataset type by the columns: language-modeling, prompt-completion or preference."""
    columns, trainer = first.columns, settings["trainer"]
    if trainer == "dpo" and {"chosen", "rejected"} <= columns.keys():
        return "preference"
    if trainer == "sft":
        if {settings["prompt_column"], settings["completion_column"]} <= columns.keys():
            return "prompt-completion"
        if {"messages", "conversations", settings["text_column"]} & columns.keys():
            return "language-modeling"
    raise BadInput(
        f"{first.location} has {cut(', '.join(columns))}",
        expected=f"{trainer}: {NEEDED[trainer]}",
        hint=_column_hint(list(columns), trainer),
    )


def _column_hint(columns: list[str], trainer: str) -> str:
    if trainer == "sft" and {"chosen", "rejected"} <= set(columns):
        return "--trainer dpo"
    prompt = next((name for name in columns if name.lower() in PROMPTS), "")
    completion = next((name for name in columns if name.lower() in COMPLETIONS), "")
    if trainer == "sft" and prompt and completion:
        return f"--set prompt_column={prompt} --set completion_column={completion}"
    if trainer == "sft":
        return f"--set text_column={nearest('text', columns) or 'NAME'}"
    return "rename the columns to prompt, chosen and rejected"


def _parse(raw: RawRow, kind: str, settings: dict[str, Any]) -> Row:
    parse = {
        "language-modeling": _parse_whole, "prompt-completion": _parse_completion, "preference": _parse_pair,
    }[kind]  # fmt: skip
    example, key = parse(raw, settings)
    forms = {name: "text" if isinstance(value, str) else "messages" for name, value in example.items()}
    form = next(iter(forms.values()))
    other = next((name for name, each in forms.items() if each != form), "")
    if other:
        first = next(iter(example))
        raise bad_data(
            f"{raw.location}: {other} is {forms[other]},", f"{first} is {form}", "both text, or both messages"
        )
    if isinstance(tools := raw.columns.get("tools"), list | str) and form == "messages":
        example |= {"tools": tools if isinstance(tools, str) else json.dumps(tools)}
    return {
        "example": example, "form": form, "source": raw.source, "file": raw.file,
        "key": key if isinstance(key, str) else json.dumps(key), "columns": raw.columns,
    }  # fmt: skip


def _parse_whole(raw: RawRow, settings: dict[str, Any]) -> tuple[Row, Any]:
    """A complete text or conversation; its key is what comes before the last message."""
    if "messages" in raw.columns or "conversations" in raw.columns:
        name = "messages" if "messages" in raw.columns else "conversations"
        messages = _parse_conversation(raw, name)
        before = messages[:-1]
        return {"messages": messages}, before if any(each["role"] == "user" for each in before) else messages
    column = settings["text_column"]
    value = raw.columns.get(column)
    location = f"{raw.location}, column {column}"
    if not isinstance(value, str):
        raise bad_data(location, f"contains {cut(repr(value), 80)}", "text")
    return {"text": check_text(location, value)}, value


def _parse_completion(raw: RawRow, settings: dict[str, Any]) -> tuple[Row, Any]:
    prompt = parse_prompt(raw, settings["prompt_column"])
    return {"prompt": prompt, "completion": _parse_end(raw, settings["completion_column"])}, prompt


def _parse_pair(raw: RawRow, settings: dict[str, Any]) -> tuple[Row, Any]:
    """A pair of completions; without a prompt TRL takes what both begin with."""
    column = settings["prompt_column"]
    pair = {name: _parse_end(raw, name) for name in ("chosen", "rejected")}
    if pair["chosen"] == pair["rejected"]:
        raise bad_data(raw.location, "has equal completions chosen and rejected", "a preferred and another one")
    if raw.columns.get(column) is not None:
        prompt = parse_prompt(raw, column)
        return {"prompt": prompt, **pair}, prompt
    return dict(pair), _common_start(pair["chosen"], pair["rejected"])


def _common_start(chosen: Any, rejected: Any) -> Any:
    pairs = enumerate(zip(chosen, rejected, strict=False))
    length = next((number for number, (one, other) in pairs if one != other), min(len(chosen), len(rejected)))
    return chosen[:length]


def _parse_end(raw: RawRow, column: str) -> str | list[dict[str, Any]]:
    """A completion: text, or messages of which the last is the assistant's."""
    value, location = raw.columns.get(column), f"{raw.location}, column {column}"
    if isinstance(value, str) and raw.file.lower().endswith(".csv"):
        value = parse_csv_messages(location, value)
    return check_text(location, value) if isinstance(value, str) else _parse_conversation(raw, column)


def _parse_conversation(raw: RawRow, column: str) -> list[dict[str, Any]]:
    """Messages as TRL reads them; those with `from` and `value` are converted as TRL does."""
    value, location = raw.columns.get(column), f"{raw.location}, column {column}"
    if isinstance(value, str):
        value = parse_csv_messages(location, value)
    if not isinstance(value, list | tuple) or not value:
        raise bad_data(location, f"contains {cut(repr(value), 80)}", 'a list of {"role", "content"} messages')
    messages = [_parse_message(location, number, message) for number, message in enumerate(value, 1)]
    if messages[-1]["role"] != "assistant":
        problem = f"the last message has the role {messages[-1]['role']}"
        raise bad_data(f"{location},", problem, "a last message of the assistant, which the model learns")
    return messages


SPEAKERS = {"human": "user", "gpt": "assistant"}  # of conversations with `from` and `value`


def _parse_message(location: str, number: int, message: Any) -> dict[str, Any]:
    if isinstance(message, dict) and {"from", "value"} <= message.keys():
        role = message["from"]
        message = {"role": SPEAKERS.get(role, role) if isinstance(role, str) else role, "content": message["value"]}
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        problem = f"message {number}: {cut(repr(message), 80)}"
        raise bad_data(f"{location},", problem, f"messages with a role ({', '.join(ROLES)}) and a content")
    content = message.get("content")
    if not isinstance(content, str) or not content.strip():
        if message.get("tool_calls"):
            return message
        raise bad_data(f"{location},", f"message {number}: content is {cut(repr(content), 80)}", "text")
    check_text(f"{location}, message {number}", content)
    return message
