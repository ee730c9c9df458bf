"""Rows of other training methods, which TRL's SFT, DPO and KTO trainers read: the error names what GRPO needs."""

from __future__ import annotations

from collections.abc import Collection

# Columns -> what they are; the first that matches. See TRL's documentation of dataset types.
SHAPES: dict[tuple[str, ...], str] = {
    ("chosen", "rejected"): "pairs of a preferred and a rejected completion, which DPO trains on",
    ("completion", "label"): "completions with a label, which KTO trains on",
    ("messages",): "complete conversations, which SFT trains on",
    ("conversations",): "complete conversations, which SFT trains on",
    ("text",): "complete texts, which SFT trains on",
}
NEEDED = "rows with a prompt, and a reward that scores the completions that GRPO samples"


def describe_other_shape(columns: Collection[str]) -> str:
    """What the columns of another training method contain; empty for other columns."""
    return next((shape for names, shape in SHAPES.items() if set(names) <= set(columns)), "")
