"""Loads the tables: TOML files of this directory or of an update, converted to records and cached."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from envdoctor.core.bundled_toml import read_bundled_toml
from envdoctor.core.record import Record
from envdoctor.knowledge.installed import BUNDLED, date_of, newest_date, tables_folder

T = TypeVar("T")

FOLDER = tables_folder()


class TableRow(Record, frozen=True, kw_only=True):
    """A row with the source of its facts and the day on which they were read."""

    source: str
    date: str


@cache
def read_table(name: str) -> dict[str, Any]:
    """The content of a file, "cuda.toml" or "requires/vllm.toml", as plain values."""
    return read_bundled_toml(FOLDER / name)


@cache
def tables_date() -> str:
    """The date of the tables: that of their version, or of their newest row."""
    return newest_date(FOLDER) if FOLDER == BUNDLED else date_of(FOLDER.name) or newest_date(FOLDER)


def load_table(name: str, content_type: type[T], key: str = "") -> T:
    """A file as a record, or the value of one of its keys: `load_table("gpus.toml", tuple[GpuModel, ...], "gpu")`."""
    return cast("T", _convert(name, cast("Hashable", content_type), key))


@cache
def _convert(name: str, content_type: Any, key: str) -> Any:
    content = read_table(name)
    return msgspec.convert(content[key] if key else content, content_type)
