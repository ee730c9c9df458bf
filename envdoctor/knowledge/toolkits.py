"""What nvcc of each CUDA release accepts: host compilers and GPU architectures."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge.torch_builds import Pair, pair


class Toolkit(Record, frozen=True):
    """A CUDA release at which something of this changed; it holds until the next row."""

    cuda: str
    gcc: int  # newest major version of gcc
    newest: str  # compute capability
    oldest: str
    source: str
    date: str


@cache
def toolkits() -> tuple[Toolkit, ...]:
    """The table, oldest first."""
    text = (Path(__file__).parent / "toolkits.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text)["toolkit"], list[Toolkit]))


def toolkit(cuda: Pair) -> Toolkit | None:
    """The row that holds for a release, (12, 6) by that of 12.4; None before the table begins."""
    return next((row for row in reversed(toolkits()) if pair(row.cuda) <= cuda), None)


def first_toolkit(capability: Pair) -> Toolkit | None:
    """The first release whose nvcc compiles for a GPU; None where none of the table does."""
    return next((row for row in toolkits() if pair(row.oldest) <= capability <= pair(row.newest)), None)
