"""Render prompts and count their tokens before training. Needs a tokenizer, but not torch.

Prompts are tokenised as in TRL (grpo_trainer.py of 0.22.2, 0.23.1, 0.24.0, 0.25.1, 0.26.2, 0.27.1, 0.28.0 and
1.16.0): messages by the chat template with the generation prompt; text with or without the tokenizer's special
tokens, see `adds_special_tokens`. TRL does not truncate: before 0.26 max_prompt_length would, so it is set to None.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from checks.engines import sampling_engine
from settings import BadInput

Row = dict[str, Any]
BATCH = 512  # prompts per call of the tokenizer
TRUNCATION_ATTEMPTS = 16  # tokens dropped in search of an end that survives decoding
# Tokens of common chat formats. Most tokenizers list their own among the special tokens as well.
CHAT_MARKUP = ("<|start|>", "<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]", "<|user|>")


@dataclass(frozen=True)
class PromptLengths:
    """Statistics of the prompts' tokens, and what was done with overlong prompts."""

    prompts: int
    longest: int
    median: int
    p95: int
    longest_source: str
    form: str  # messages or text
    special_tokens: int = 0  # that the tokenizer adds to a text
    bound: int = 0  # maximum prompt length; 0: none
    overlong: int = 0
    filtered: int = 0
    truncated: int = 0
    window: int = 0  # maximum length of prompt and completion; 0: unknown
    max_completion_length: int = 0

    def as_record(self) -> dict[str, Any]:
        """Return the record for events.jsonl."""
        return dataclasses.asdict(self)


def adds_special_tokens(trl: str, generation: str, *, messages: bool) -> bool:
    """Return whether a prompt gets the tokenizer's special tokens, such as a BOS.

    TRL's own tokenisation adds them from 0.26 on. vLLM adds them to every text, and so did paged generation before
    0.25. Before 0.25 these two got messages as rendered text, and added them there as well. For vLLM before TRL 0.24,
    where only the generator adds them, the longer length is counted.
    """
    major, minor = (int(number) for number in re.findall(r"\d+", trl)[:2])
    version = (major, minor)
    generator_adds = generation.startswith("vllm") or (generation == "transformers-paged" and version < (0, 25))
    if messages:
        return generator_adds and version < (0, 25)
    return generator_adds or version >= (0, 26)


def choose_form(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any]) -> str:
    """Return "messages" or "text": the setting `chat`, or a detection from data and tokenizer."""
    chat, template = settings["chat"], getattr(tokenizer, "chat_template", None)
    are_messages = not isinstance(rows[0]["prompt"], str)
    if are_messages and chat == "text":
        raise BadInput(
            f"settings: chat = text, but the prompts of {rows[0]['file']} are messages",
            expected="text prompts, or chat = messages",
            hint="--set chat=auto",
        )
    if (are_messages or chat == "messages") and not template:
        reason = f"the prompts of {rows[0]['file']} are messages" if are_messages else "settings: chat = messages"
        raise BadInput(
            f"{reason}, but the tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template",
            expected="a tokenizer with a chat template, or text prompts",
            hint="--set tokenizer=NAME of the instruction-tuned model" if are_messages else "--set chat=text",
        )
    if are_messages:
        return "messages"
    markup = _find_markup(rows, tokenizer)
    if chat == "messages" and markup:
        raise BadInput(
            f"settings: chat = messages, but the prompt of {markup[0]} already has a chat format: it contains "
            f"{markup[1]!r}",
            expected="plain text, to which the chat template is applied",
            hint="--set chat=text",
        )
    return "messages" if chat == "messages" or (chat == "auto" and template and not markup) else "text"


def _find_markup(rows: Sequence[Row], tokenizer: Any) -> tuple[str, str] | None:
    """Return (row, token) of the first prompt that contains a token of a chat format."""
    tokens = {str(token) for token in getattr(tokenizer, "all_special_tokens", [])} | set(CHAT_MARKUP)
    pattern = re.compile("|".join(re.escape(token) for token in sorted(tokens) if re.search(r"\W", token)))
    for row in rows:
        if match := pattern.search(row["prompt"]):
            return row["source"], match[0]
    return None


def prepare_prompts(rows: Sequence[Row], form: str, system_prompt: str) -> list[Row]:
    """Return the rows with prompts in this form, with the system prompt in front."""
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
            f"settings: system_prompt is set, but the prompt of {row['source']} begins with a system message",
            expected="one of the two",
            hint="--set system_prompt=",
        )
    return [{"role": "system", "content": system_prompt}, *messages]


def encode(
    rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any], tools: Sequence[Callable[..., Any]] = ()
) -> list[list[int]]:
    """Return the token ids of each prompt, as the installed TRL makes them; equal prompts are encoded once.

    The chat template describes the tools in each prompt.
    """
    form = "text" if isinstance(rows[0]["prompt"], str) else "messages"
    special = adds_special_tokens(
        importlib.metadata.version("trl"), sampling_engine(settings), messages=form == "messages"
    )
    options = (settings.get("chat_template_kwargs") or {}) | ({"tools": list(tools)} if tools else {})
    keys = [row["prompt"] if form == "text" else json.dumps(row["prompt"]) for row in rows]
    first_rows = dict(zip(reversed(keys), reversed(rows), strict=True))
    encoded: dict[str, list[int]] = {}
    distinct = list(first_rows)
    for start in range(0, len(distinct), BATCH):
        batch = distinct[start : start + BATCH]
        texts = batch if form == "text" else [_render(first_rows[key], tokenizer, options) for key in batch]
        encoded |= zip(batch, tokenizer(texts, add_special_tokens=special)["input_ids"], strict=True)
    return [encoded[key] for key in keys]


def _render(row: Row, tokenizer: Any, options: Mapping[str, Any]) -> str:
    try:
        return str(
            tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False, **options)
        )
    except Exception as error:
        roles = ", ".join(message["role"] for message in row["prompt"])
        raise BadInput(
            f"the chat template refuses the prompt of {row['source']} ({roles}): {type(error).__name__}: {error}",
            expected="roles in an order that the model's chat template supports",
            hint="correct the messages, or --set system_prompt= if the template supports no system message",
        ) from None


def measure(rows: Sequence[Row], tokenizer: Any, settings: dict[str, Any], context: int = 0) -> PromptLengths:
    """Return the lengths of prepared prompts; `context` is max_position_embeddings, 0 if unknown."""
    counts = [len(ids) for ids in encode(rows, tokenizer, settings)]
    return _measure(rows, counts, tokenizer, settings, context)


def _measure(
    rows: Sequence[Row], counts: list[int], tokenizer: Any, settings: dict[str, Any], context: int
) -> PromptLengths:
    ordered, longest = sorted(counts), counts.index(max(counts))
    window, bound = choose_bounds(settings, context)
    is_text = isinstance(rows[0]["prompt"], str)
    special = adds_special_tokens(importlib.metadata.version("trl"), sampling_engine(settings), messages=not is_text)
    return PromptLengths(
        prompts=len(counts),
        longest=counts[longest],
        median=ordered[(len(counts) - 1) // 2],
        p95=ordered[math.ceil(0.95 * len(counts)) - 1],
        longest_source=rows[longest]["source"],
        form="text" if is_text else "messages",
        special_tokens=tokenizer.num_special_tokens_to_add(pair=False) if special else 0,
        bound=bound,
        overlong=sum(count > bound for count in counts) if bound else 0,
        window=window,
    )


def choose_bounds(settings: dict[str, Any], context: int) -> tuple[int, int]:
    """Return the maximum length of (prompt and completion, prompt) in tokens; 0 for no bound."""
    sequence, completion, prompt = (
        settings[name] for name in ("max_seq_length", "max_completion_length", "max_prompt_length")
    )
    if context and sequence > context:
        raise BadInput(
            f"settings: max_seq_length = {sequence}, the model has max_position_embeddings = {context}",
            expected=f"max_seq_length from 1 to {context}",
            hint=f"--set max_seq_length={context}",
        )
    window = sequence or context
    if not window:
        if not completion:
            raise BadInput(
                "settings: max_completion_length = 0 (the rest of the sequence), but neither max_seq_length nor the "
                "model's config.json (max_position_embeddings) gives the length of the sequence",
                expected="max_seq_length or max_completion_length",
                hint="--set max_seq_length=2048",
            )
        return 0, prompt
    rest = window - max(1, completion)
    if rest < 1:
        limit = f"max_seq_length = {sequence}" if sequence else f"the model's max_position_embeddings = {context}"
        raise BadInput(
            f"settings: max_completion_length = {completion} leaves no tokens for a prompt: {limit}",
            expected=f"max_completion_length below {window}, or 0: the rest after the longest prompt",
            hint="--set max_completion_length=0",
        )
    return window, min(prompt or rest, rest)


def fit(
    rows: Sequence[Row],
    tokenizer: Any,
    settings: dict[str, Any],
    context: int = 0,
    tools: Sequence[Callable[..., Any]] = (),
) -> tuple[list[Row], PromptLengths]:
    """Return the usable rows, and their lengths with max_completion_length resolved.

    The setting `overlong` decides whether an overlong prompt is refused, filtered out, or truncated to its end.
    """
    ids = encode(rows, tokenizer, settings, tools)
    lengths = _measure(rows, [len(prompt) for prompt in ids], tokenizer, settings, context)
    usable, counts, changes = list(rows), [len(prompt) for prompt in ids], {"overlong": lengths.overlong}
    if lengths.overlong:
        if settings["overlong"] == "refuse":
            raise _overlong_error(lengths, settings, "")
        if settings["overlong"] == "truncate" and lengths.form == "messages":
            reason = "; messages cannot be truncated, since their roles and order carry meaning"
            raise _overlong_error(lengths, settings, reason)
        if settings["overlong"] == "truncate":
            truncated = [_truncate(row, prompt, tokenizer, lengths) for row, prompt in zip(rows, ids, strict=True)]
            usable, counts = [row for row, _ in truncated], [count for _, count in truncated]
            changes["truncated"] = lengths.overlong
        else:
            fits = [count <= lengths.bound for count in counts]
            if not any(fits):
                raise _overlong_error(lengths, settings, "; none would be left")
            usable = [row for row, is_short in zip(rows, fits, strict=True) if is_short]
            counts = [count for count, is_short in zip(counts, fits, strict=True) if is_short]
            changes["filtered"] = lengths.overlong
    lengths = dataclasses.replace(_measure(usable, counts, tokenizer, settings, context), **changes)
    completion = settings["max_completion_length"] or lengths.window - lengths.longest
    return usable, dataclasses.replace(lengths, max_completion_length=completion)


def _overlong_error(lengths: PromptLengths, settings: dict[str, Any], reason: str) -> BadInput:
    names = ("max_seq_length", "max_prompt_length", "max_completion_length")
    limits = ", ".join(f"{name} = {settings[name]}" for name in names)
    hint = "--set overlong=filter drops them" + (
        ", --set overlong=truncate keeps their ends" if lengths.form == "text" else ""
    )
    if settings["overlong"] == "filter":
        hint = f"--set max_seq_length={lengths.longest + max(1, settings['max_completion_length'])}"
    return BadInput(
        f"{lengths.overlong} of {lengths.prompts} prompts have more than {lengths.bound} tokens, the longest "
        f"({lengths.longest_source}) {lengths.longest} ({limits}, window {lengths.window or 'unknown'}){reason}",
        expected=f"prompts of at most {lengths.bound} tokens",
        hint=hint,
    )


def _truncate(row: Row, ids: list[int], tokenizer: Any, lengths: PromptLengths) -> tuple[Row, int]:
    """Return the row with the end of its prompt, and the tokens of that end.

    A cut can fall inside a character, or inside a word that the tokenizer would merge differently. The decoded end
    must therefore encode to the same tokens; otherwise the cut moves on, one token at a time.
    """
    if len(ids) <= lengths.bound:
        return row, len(ids)
    plain = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
    longest = lengths.bound - lengths.special_tokens
    for count in range(longest, max(0, longest - TRUNCATION_ATTEMPTS), -1):
        end = plain[-count:]
        text = tokenizer.decode(end, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if text.strip() and tokenizer(text, add_special_tokens=False)["input_ids"] == end:
            return row | {"prompt": text}, count + lengths.special_tokens
    raise BadInput(
        f"the prompt of {row['source']} ({len(ids)} tokens) cannot be truncated to {lengths.bound} tokens: no "
        "decoded end of it encodes to the same tokens",
        expected="a prompt that can be cut between words",
        hint="--set overlong=filter",
    )
