"""Tables of what is true in the field: TOML, each row with its source and date."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.records import Record


class CudaRelease(Record, frozen=True):
    """A CUDA toolkit release and the Linux drivers it needs."""

    version: str
    minimum: str  # driver with minor-version compatibility: runs SASS, not PTX of this release
    bundled: str  # driver that the toolkit ships: runs all of it
    source: str
    date: str


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    """CUDA releases by version, "12.8"."""
    rows = read_table("cuda.toml")["release"]
    return {row.version: row for row in msgspec.convert(rows, list[CudaRelease])}


def read_table(name: str) -> dict[str, Any]:
    """A table of this folder."""
    import tomllib

    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
