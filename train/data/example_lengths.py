"""Prepare examples and count their tokens before training. Needs a tokenizer, but not torch.

TRL tokenizes the examples again: a text with the end token, messages by the chat template.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from settings import BadInput
from trl_fields import fields

Row = dict[str, Any]
BATCH = 512  # texts per call of the tokenizer


def max_length(settings: dict[str, Any], context: int = 0) -> int:
    """The maximum tokens of an example: TRL's max_length, and at most the model's context; 0 for no limit."""
    default = int(fields(settings["trainer"])["max_length"].default)
    length = settings.get("max_length", default)
    if context and (length or 0) > context and "max_length" in settings:
        raise BadInput(
            f"settings: max_length = {length}, the model has max_position_embeddings = {context}",
            expected=f"max_length from 1 to {context}",
            hint=f"--set max_length={context}",
        )
    return min(filter(None, (length, context)), default=0)


def prepare(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any]) -> list[Row]:
    """The rows with the system prompt, and texts as messages with chat = messages."""
    form = rows[0]["form"]
    as_messages = settings["chat"] == "messages" and form == "text"
    if (form == "messages" or as_messages) and not getattr(tokenizer, "chat_template", None):
        raise BadInput(
            f"the examples are {'to be ' * as_messages}messages, but the tokenizer "
            f"{getattr(tokenizer, 'name_or_path', '')!r} has no chat template",
            expected="a tokenizer with a chat template, or examples of text",
            hint="--set chat=auto" if as_messages else "--set tokenizer=NAME of the instruction-tuned model",
        )
    if as_messages:
        rows = [row | {"example": _as_messages(row), "form": "messages"} for row in rows]
    if settings["system_prompt"]:
        rows = [row | {"example": _add_system(row, settings["system_prompt"])} for row in rows]
    return list(rows)


def _as_messages(row: Row) -> dict[str, Any]:
    if "prompt" not in row["example"]:
        raise BadInput(
            f"settings: chat = messages, but the example of {row['source']} has no prompt of its own",
            expected="rows with a prompt, or messages",
            hint="--set chat=auto",
        )
    return {
        name: [{"role": "user" if name == "prompt" else "assistant", "content": text}]
        for name, text in row["example"].items()
    }


def _add_system(row: Row, text: str) -> dict[str, Any]:
    """The example with the system prompt before its prompt, or before its conversations."""
    example: dict[str, Any] = row["example"]
    names = ["prompt"] if "prompt" in example else [name for name in example if name != "tools"]
    if row["form"] == "text":
        if names != ["prompt"]:
            raise BadInput(
                f"settings: system_prompt is set, but the example of {row['source']} has no prompt of its own",
                expected="rows with a prompt, or messages",
                hint="--set system_prompt=",
            )
        return example | {"prompt": f"{text}\n\n{example['prompt']}"}
    if any(example[name][0]["role"] == "system" for name in names):
        raise BadInput(
            f"settings: system_prompt is set, but the example of {row['source']} begins with a system message",
            expected="one of the two",
            hint="--set system_prompt=",
        )
    return example | {name: [{"role": "system", "content": text}, *example[name]] for name in names}


def fit(
    rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any], context: int
) -> tuple[list[Row], dict[str, Any]]:
    """Return the usable rows and their lengths; `overlong` refuses or filters those that TRL would truncate."""
    bound = max_length(settings, context)
    counts = count_tokens(rows, tokenizer)
    overlong = sum(count > bound for count in counts) if bound else 0
    longest = counts.index(max(counts))
    if overlong and settings["overlong"] == "refuse":
        raise BadInput(
            f"{overlong} of {len(counts)} examples have more than max_length = {bound} tokens, the longest "
            f"({rows[longest]['source']}) {counts[longest]}",
            expected=f"examples of at most {bound} tokens",
            hint="--set overlong=truncate, which TRL does, or --set overlong=filter",
        )
    kept = [count <= bound or settings["overlong"] == "truncate" or not bound for count in counts]
    usable = [row for row, keep in zip(rows, kept, strict=True) if keep]
    ordered = sorted(min(count, bound or count) for count, keep in zip(counts, kept, strict=True) if keep)
    return usable, {
        "examples": len(counts), "longest": ordered[-1] if ordered else 0,
        "median": ordered[(len(ordered) - 1) // 2] if ordered else 0, "longest_source": rows[longest]["source"],
        "form": rows[0]["form"], "bound": bound, "overlong": overlong, "filtered": len(rows) - len(usable),
        "truncated": overlong if settings["overlong"] == "truncate" else 0, "max_completion_length": 0,
    }  # fmt: skip


def count_tokens(rows: Sequence[Row], tokenizer: Any) -> list[int]:
    """The tokens of each example; of a pair, those of the prompt with its longer completion."""
    texts = [list(_texts(row, tokenizer)) for row in rows]
    distinct = list(dict.fromkeys(text for each in texts for text in each))
    special = rows[0]["form"] == "text"  # a chat template writes them itself
    counts: dict[str, int] = {}
    for start in range(0, len(distinct), BATCH):
        batch = distinct[start : start + BATCH]
        encoded = tokenizer(batch, add_special_tokens=special)["input_ids"]
        counts |= {text: len(ids) for text, ids in zip(batch, encoded, strict=True)}
    return [max(counts[text] for text in each) for each in texts]


def _texts(row: Row, tokenizer: Any) -> Iterator[str]:
    """The complete texts of an example."""
    example = row["example"]
    ends = [name for name in ("completion", "chosen", "rejected", "messages", "text") if name in example]
    for name in ends:
        if row["form"] == "text":
            yield example.get("prompt", "") + example[name] + (tokenizer.eos_token or "")
        else:
            yield _render([*example.get("prompt", ()), *example[name]], row, tokenizer)


def _render(messages: list[dict[str, Any]], row: Row, tokenizer: Any) -> str:
    tools = json.loads(row["example"]["tools"]) if "tools" in row["example"] else None
    try:
        return str(tokenizer.apply_chat_template(messages, tools=tools, tokenize=False))
    except Exception as error:
        roles = ", ".join(str(message["role"]) for message in messages)
        raise BadInput(
            f"the chat template refuses the example of {row['source']} ({roles}): {type(error).__name__}: {error}",
            expected="roles in an order that the model's chat template supports",
            hint="correct the messages, or --set system_prompt= if the template supports no system message",
        ) from None
