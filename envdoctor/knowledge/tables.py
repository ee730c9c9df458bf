"""Loads the built-in tables: TOML files of this directory, converted to records and cached."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from envdoctor.core.bundled_toml import read_bundled_toml
from envdoctor.core.record import Record

T = TypeVar("T")

FOLDER = Path(__file__).parent


class TableRow(Record, frozen=True, kw_only=True):
    """A row with the source of its facts and the day on which they were read."""

    source: str
    date: str


@cache
def read_table(name: str) -> dict[str, Any]:
    """The content of a file, "cuda.toml" or "requires/vllm.toml", as plain values."""
    return read_bundled_toml(FOLDER / name)


def tables_date() -> str:
    """The newest date of a row of the tables."""
    pattern = re.compile(r'^date = "(\d{4}-\d\d-\d\d)"', re.MULTILINE)
    texts = (path.read_text(encoding="utf-8") for path in FOLDER.glob("*.toml"))
    dates: list[str] = [date for text in texts for date in pattern.findall(text)]
    return max(dates)


def load_table(name: str, content_type: type[T], key: str = "") -> T:
    """A file as a record, or the value of one of its keys: `load_table("gpus.toml", tuple[GpuModel, ...], "gpu")`."""
    return cast("T", _convert(name, cast("Hashable", content_type), key))


@cache
def _convert(name: str, content_type: Any, key: str) -> Any:
    content = read_table(name)
    return msgspec.convert(content[key] if key else content, content_type)
