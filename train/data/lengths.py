"""Prompts as the model will see them, counted in tokens before anything is trained. Needs a tokenizer, no torch.

A prompt is counted as TRL makes its tokens (grpo_trainer.py of 0.22.2, 0.23.1, 0.24.0, 0.25.1, 0.26.2, 0.27.1, 0.28.0
and 1.16.0 were read): messages by the chat template with the opening of the answer, nothing added; text with the
tokenizer's special tokens or without, see `adds_special_tokens`. TRL cuts nothing: below 0.26 it would cut at
max_prompt_length, which must be None; later ones have no such thing.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from settings import BadInput

Row = dict[str, Any]
AT_A_TIME = 512  # prompts given to the tokenizer in one call
TRIES = 16  # tokens dropped in search of a cut that text can express
# What a prompt written for one chat format holds; most tokenizers name theirs among their added tokens, too.
MARKUP = ("<|start|>", "<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]", "<|user|>")


@dataclass(frozen=True)
class Lengths:
    """Prompt tokens of all rows, and what became of those that were too long."""

    prompts: int
    longest: int
    median: int
    p95: int
    longest_source: str
    form: str  # messages or text
    special_tokens: int = 0  # how many of them the tokenizer puts around a text
    bound: int = 0  # the most that a prompt may have; 0: none
    overlong: int = 0
    filtered: int = 0
    truncated: int = 0
    window: int = 0  # prompt and completion together; 0: not known
    max_completion_length: int = 0

    def as_record(self) -> dict[str, Any]:
        """For events.jsonl."""
        return dataclasses.asdict(self)


def adds_special_tokens(trl: str, generation: str, *, messages: bool) -> bool:
    """Whether a text gets the tokenizer's special tokens (a BOS, say) on its way to the model.

    TRL's own tokenising: without below 0.26, with from 0.26 on. vLLM, given a text, adds them by itself; so did paged
    generation below 0.25. Below 0.25, messages went to these two as rendered text, and so got them, too. Where only
    the generator adds them (vLLM below 0.24), the longer of the two is counted.
    """
    major, minor = (int(number) for number in re.findall(r"\d+", trl)[:2])
    version = (major, minor)
    generator_adds = generation.startswith("vllm") or (generation == "transformers-paged" and version < (0, 25))
    if messages:
        return generator_adds and version < (0, 25)
    return generator_adds or version >= (0, 26)


def choose_form(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any]) -> str:
    """messages or text: what `chat` says, or what data and tokenizer suggest."""
    chat, template = settings["chat"], getattr(tokenizer, "chat_template", None)
    are_messages = not isinstance(rows[0]["prompt"], str)
    if are_messages and chat == "text":
        raise BadInput(
            f"settings: chat = text, but the prompts of {rows[0]['file']} are messages",
            expected="prompts in words, or chat = messages",
            hint="--set chat=auto",
        )
    if (are_messages or chat == "messages") and not template:
        why = f"the prompts of {rows[0]['file']} are messages" if are_messages else "settings: chat = messages"
        raise BadInput(
            f"{why}, and the tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template",
            expected="a tokenizer with a chat template, or prompts in words",
            hint="--set tokenizer=NAME of the instruction-tuned model" if are_messages else "--set chat=text",
        )
    if are_messages:
        return "messages"
    marked = _find_markup(rows, tokenizer)
    if chat == "messages" and marked:
        raise BadInput(
            f"settings: chat = messages, but {marked[0]} is in a chat format already: its prompt holds {marked[1]!r}",
            expected="plain words, which the chat template wraps",
            hint="--set chat=text",
        )
    return "messages" if chat == "messages" or (chat == "auto" and template and not marked) else "text"


def _find_markup(rows: Sequence[Row], tokenizer: Any) -> tuple[str, str] | None:
    """(row, mark) of the first prompt that holds a token of a chat format."""
    tokens = {str(token) for token in getattr(tokenizer, "all_special_tokens", [])} | set(MARKUP)
    marks = re.compile("|".join(re.escape(token) for token in sorted(tokens) if re.search(r"\W", token)))
    for row in rows:
        if found := marks.search(row["prompt"]):
            return row["source"], found[0]
    return None


def prepare_prompts(rows: Sequence[Row], form: str, system_prompt: str) -> list[Row]:
    """The rows with their prompts in the form, the system prompt put before."""
    return [row | {"prompt": _prepare(row, form, system_prompt)} for row in rows]


def _prepare(row: Row, form: str, system_prompt: str) -> str | list[dict[str, str]]:
    prompt = row["prompt"]
    if form == "text":
        return f"{system_prompt}\n\n{prompt}" if system_prompt else prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not system_prompt:
        return messages
    if messages[0]["role"] == "system":
        raise BadInput(
            f"settings: system_prompt is set, and the prompt of {row['source']} begins with a system message",
            expected="one of the two",
            hint="--set system_prompt=",
        )
    return [{"role": "system", "content": system_prompt}, *messages]


def encode(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any]) -> list[list[int]]:
    """The token ids of each prompt, as the installed TRL makes them; the same prompt is encoded once."""
    form = "text" if isinstance(rows[0]["prompt"], str) else "messages"
    special = adds_special_tokens(
        importlib.metadata.version("trl"), settings["generation"], messages=form == "messages"
    )
    keys = [row["prompt"] if form == "text" else json.dumps(row["prompt"]) for row in rows]
    first = dict(zip(reversed(keys), reversed(rows), strict=True))
    known: dict[str, list[int]] = {}
    distinct = list(first)
    for start in range(0, len(distinct), AT_A_TIME):
        some = distinct[start : start + AT_A_TIME]
        texts = some if form == "text" else [_render(first[key], tokenizer) for key in some]
        known |= zip(some, tokenizer(texts, add_special_tokens=special)["input_ids"], strict=True)
    return [known[key] for key in keys]


def _render(row: Row, tokenizer: Any) -> str:
    try:
        return str(tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False))
    except Exception as error:
        roles = ", ".join(message["role"] for message in row["prompt"])
        raise BadInput(
            f"the chat template refuses the prompt of {row['source']} ({roles}): {type(error).__name__}: {error}",
            expected="messages in the order that the model's chat template knows",
            hint="correct the messages, or --set system_prompt= where the template takes no system message",
        ) from None


def measure(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any], context: int = 0) -> Lengths:
    """Lengths of prompts that are prepared; `context` is the model's max_position_embeddings, 0 where not known."""
    ids = encode(rows, tokenizer, settings)
    return _measure(rows, [len(one) for one in ids], tokenizer, settings, context)


def _measure(
    rows: Sequence[Row], counts: list[int], tokenizer: Any, settings: dict[str, Any], context: int
) -> Lengths:
    in_order, longest = sorted(counts), counts.index(max(counts))
    window, bound = choose_bounds(settings, context)
    text = isinstance(rows[0]["prompt"], str)
    special = adds_special_tokens(importlib.metadata.version("trl"), settings["generation"], messages=not text)
    return Lengths(
        prompts=len(counts),
        longest=counts[longest],
        median=in_order[(len(counts) - 1) // 2],
        p95=in_order[math.ceil(0.95 * len(counts)) - 1],
        longest_source=rows[longest]["source"],
        form="text" if text else "messages",
        special_tokens=tokenizer.num_special_tokens_to_add(pair=False) if special else 0,
        bound=bound,
        overlong=sum(count > bound for count in counts) if bound else 0,
        window=window,
    )


def choose_bounds(settings: dict[str, Any], context: int) -> tuple[int, int]:
    """(prompt and completion together, prompt alone) in tokens; 0 where nothing bounds them."""
    asked, completion, prompt = (
        settings[name] for name in ("max_seq_length", "max_completion_length", "max_prompt_length")
    )
    if context and asked > context:
        raise BadInput(
            f"settings: max_seq_length = {asked}, the model has max_position_embeddings = {context}",
            expected=f"max_seq_length from 1 to {context}",
            hint=f"--set max_seq_length={context}",
        )
    window = asked or context
    if not window:
        if not completion:
            raise BadInput(
                "settings: max_completion_length = 0 (what is left), but neither max_seq_length nor the model's "
                "config.json (max_position_embeddings) says of how much",
                expected="max_seq_length or max_completion_length",
                hint="--set max_seq_length=2048",
            )
        return 0, prompt
    left = window - max(1, completion)
    if left < 1:
        said = f"max_seq_length = {asked}" if asked else f"the model's max_position_embeddings = {context}"
        raise BadInput(
            f"settings: max_completion_length = {completion} leaves no room for a prompt: {said}",
            expected=f"max_completion_length below {window}, or 0: what the longest prompt leaves",
            hint="--set max_completion_length=0",
        )
    return window, min(prompt or left, left)


def fit(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any], context: int = 0) -> tuple[list[Row], Lengths]:
    """The rows that may be used, and their lengths with max_completion_length resolved.

    An overlong prompt is refused, left out, or cut to its end, as `overlong` says.
    """
    ids = encode(rows, tokenizer, settings)
    lengths = _measure(rows, [len(one) for one in ids], tokenizer, settings, context)
    kept, counts, changes = list(rows), [len(one) for one in ids], {"overlong": lengths.overlong}
    if lengths.overlong:
        if settings["overlong"] == "refuse":
            raise _refuse(lengths, settings, "")
        if settings["overlong"] == "truncate" and lengths.form == "messages":
            raise _refuse(
                lengths, settings, "; messages cannot be truncated, their roles and order carry the meaning"
            )
        if settings["overlong"] == "truncate":
            done = [_truncate(row, one, tokenizer, lengths) for row, one in zip(rows, ids, strict=True)]
            kept, counts = [row for row, _ in done], [count for _, count in done]
            changes["truncated"] = lengths.overlong
        else:
            fits = [count <= lengths.bound for count in counts]
            if not any(fits):
                raise _refuse(lengths, settings, "; none would be left")
            kept = [row for row, good in zip(rows, fits, strict=True) if good]
            counts = [count for count, good in zip(counts, fits, strict=True) if good]
            changes["filtered"] = lengths.overlong
    lengths = dataclasses.replace(_measure(kept, counts, tokenizer, settings, context), **changes)
    completion = settings["max_completion_length"] or lengths.window - lengths.longest
    return kept, dataclasses.replace(lengths, max_completion_length=completion)


def _refuse(lengths: Lengths, settings: dict[str, Any], why: str) -> BadInput:
    names = ("max_seq_length", "max_prompt_length", "max_completion_length")
    said = ", ".join(f"{name} = {settings[name]}" for name in names)
    hint = "--set overlong=filter leaves them out" + (
        ", --set overlong=truncate keeps their ends" if lengths.form == "text" else ""
    )
    if settings["overlong"] == "filter":
        hint = f"--set max_seq_length={lengths.longest + max(1, settings['max_completion_length'])}"
    return BadInput(
        f"{lengths.overlong} of {lengths.prompts} prompts have more than {lengths.bound} tokens, the longest "
        f"({lengths.longest_source}) {lengths.longest} ({said}, window {lengths.window or 'not known'}){why}",
        expected=f"prompts of at most {lengths.bound} tokens",
        hint=hint,
    )


def _truncate(row: Row, ids: list[int], tokenizer: Any, lengths: Lengths) -> tuple[Row, int]:
    """The row with the end of its prompt, and its tokens.

    A cut may fall into a character or a word that the tokenizer would join otherwise. So the text must give the very
    tokens that were kept; where it does not, the next few cuts are tried, each a token later.
    """
    if len(ids) <= lengths.bound:
        return row, len(ids)
    plain = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
    most = lengths.bound - lengths.special_tokens
    for count in range(most, max(0, most - TRIES), -1):
        kept = plain[-count:]
        text = tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if text.strip() and tokenizer(text, add_special_tokens=False)["input_ids"] == kept:
            return row | {"prompt": text}, count + lengths.special_tokens
    raise BadInput(
        f"the prompt of {row['source']} ({len(ids)} tokens) cannot be cut to {lengths.bound}: no end of it, as text, "
        "gives the tokens that were kept",
        expected="a prompt whose end can stand alone",
        hint="--set overlong=filter",
    )
