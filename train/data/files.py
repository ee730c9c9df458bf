"""Read data files (CSV, JSONL, Parquet) row by row. Standard library only, except for Parquet."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from settings import BadInput

# Characters of a line and of a CSV cell; Python's default of 128 KiB is too small for long prompts. A sparse file is
# one line, and an open quotation mark makes one cell of the rest of a file.
MAX_LENGTH = 64 << 20


@dataclass(frozen=True)
class RawRow:
    """A row as read: `location` is for messages, `source` (FILE:ROW) for tables."""

    location: str
    source: str
    file: str
    columns: dict[str, Any]


def read_file(path: Path, kind: str) -> Iterator[RawRow]:
    """Yield every row of a file of the kind csv, jsonl or parquet."""
    reader = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}[kind]
    try:
        yield from reader(path)
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: byte {error.object[error.start]:#04x} ({error.reason})"
        raise bad_data(str(path), problem, "a UTF-8 file") from None
    except OSError as error:
        raise bad_data(str(path), f"cannot be read: {error.strerror or error}", "a readable file") from None


def read_csv(path: Path) -> Iterator[RawRow]:
    """Yield every row of a CSV file."""
    csv.field_size_limit(MAX_LENGTH)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(_lines(path, file), strict=True)
        try:
            header = next(reader, [])
            if not header:
                raise bad_data(str(path), "is empty", "a header and rows")
            if duplicate := _first_duplicate(header):
                raise bad_data(str(path), f"has the column {duplicate!r} twice", "unique column names")
            for number, cells in enumerate(filter(None, reader), 1):
                location = f"{path} row {number} (ends at line {reader.line_num})"
                if len(cells) != len(header):
                    problem = f"has {len(cells)} cells, the header has {len(header)}"
                    raise bad_data(location, problem, "as many cells as the header; quote cells that contain a comma")
                columns = dict(zip(header, cells, strict=True))
                yield RawRow(location, f"{path.name}:{number}", path.name, columns)
        except csv.Error as error:
            raise bad_data(str(path), f"is not a CSV file: line {reader.line_num}: {error}", "a CSV file") from None


def read_header(path: Path) -> list[str]:
    """Return the column names of a CSV file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(_lines(path, file)), [])


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a file. Raise BadInput for a line that does not fit into memory."""
    number = 0
    while line := file.readline(MAX_LENGTH):
        number += 1
        if len(line) == MAX_LENGTH:
            raise bad_data(f"{path} line {number}", f"has more than {MAX_LENGTH} characters", "shorter lines")
        yield line


def _first_duplicate(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def read_jsonl(path: Path) -> Iterator[RawRow]:
    """Yield every non-empty line of a JSONL file; the number of a row is its line number."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(_lines(path, file), 1):
            if line.strip():
                location = f"{path} line {number}"
                yield RawRow(location, f"{path.name}:{number}", path.name, _parse_line(location, line))


def _parse_line(location: str, line: str) -> dict[str, Any]:
    expected = "one JSON object per line"
    try:
        columns = json.loads(line, object_pairs_hook=_unique_pairs)
    except RecursionError:
        raise bad_data(location, "is nested too deeply", expected) from None
    except ValueError as error:
        raise bad_data(location, f"is not JSON: {error}: {cut(line.strip(), 80)}", expected) from None
    if not isinstance(columns, dict):
        raise bad_data(location, f"is a JSON {type(columns).__name__}: {cut(line.strip(), 80)}", expected)
    return columns


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    duplicate = _first_duplicate([name for name, _ in pairs])
    if duplicate is not None:
        raise ValueError(f"duplicate key {duplicate!r} in an object")
    return dict(pairs)


def read_parquet(path: Path) -> Iterator[RawRow]:
    """Yield every row of a Parquet file, with one batch in memory at a time."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if duplicate := _first_duplicate(file.schema_arrow.names):
                raise bad_data(str(path), f"has the column {duplicate!r} twice", "unique column names")
            for batch in file.iter_batches(batch_size=1024):
                for columns in batch.to_pylist():
                    number += 1
                    yield RawRow(f"{path} row {number}", f"{path.name}:{number}", path.name, columns)
    except pyarrow.ArrowException as error:
        raise bad_data(str(path), f"is not a Parquet file: {str(error).splitlines()[0]}", "a Parquet file") from None


def cut(text: str, length: int = 200) -> str:
    """Return the text, shortened to `length` characters with an ellipsis."""
    return text if len(text) <= length else text[: length - 3] + "..."


def bad_data(location: str, problem: str, expected: str) -> BadInput:
    """Return the error for a problem of a row or file."""
    return BadInput(f"{location} {problem}", expected=expected, hint="correct the data, or --set data=PATH")
