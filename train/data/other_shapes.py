"""Rows of other training methods, which TRL's SFT, DPO and KTO trainers read: the error names the trainer."""

from __future__ import annotations

from collections.abc import Collection

# Columns -> (what they are, the option that trains on them); the first that matches. See TRL's documentation of
# dataset types.
SHAPES: dict[tuple[str, ...], tuple[str, str]] = {
    ("chosen", "rejected"): ("pairs of a preferred and a rejected completion, which DPO trains on", "--trainer dpo"),
    ("completion", "label"): ("completions with a label, which KTO trains on", ""),
    ("messages",): ("complete conversations, which SFT trains on", "--trainer sft"),
    ("conversations",): ("complete conversations, which SFT trains on", "--trainer sft"),
    ("text",): ("complete texts, which SFT trains on", "--trainer sft"),
}
NEEDED = "rows with a prompt, and a reward that scores the completions that GRPO samples"


def describe_other_shape(columns: Collection[str]) -> tuple[str, str]:
    """What the columns of another training method contain, and the option for it; empty for other columns."""
    return next((found for names, found in SHAPES.items() if set(names) <= set(columns)), ("", ""))
