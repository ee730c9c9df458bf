"""Find and read data files (CSV, JSONL, Parquet) row by row. Standard library only, except for Parquet."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data import tes as tes_data
from data.checks import check_file_names
from settings import BadInput, expand_user

KINDS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
HUB_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)(?::([\w.-]+))?(?:@([\w./-]+))?")
EXPECTED_DATA = (
    "a CSV, JSONL or Parquet file, a folder of one of these kinds, or a Hub dataset NAME, NAME:CONFIG or "
    "NAME:CONFIG@REVISION"
)
EXPECTED_FILES = "CSV, JSONL or Parquet files, all of one kind"
MAX_CELL = 1 << 30  # characters of a CSV cell; Python's default of 128 KiB is too small for long prompts


@dataclass(frozen=True)
class Source:
    """Where the rows are. `name` is the value of the setting `data`; a path is absolute."""

    kind: str  # csv, jsonl, parquet or hub
    name: str
    files: list[Path] = field(default_factory=list)
    ignored_twins: list[str] = field(default_factory=list)  # harmony copies of files that are read

    @property
    def needs_stack(self) -> bool:
        """Return whether only the run can read it: the Hub needs `datasets`, Parquet needs pyarrow."""
        return self.kind == "hub" or (self.kind == "parquet" and importlib.util.find_spec("pyarrow") is None)


@dataclass(frozen=True)
class RawRow:
    """A row as read: `location` is for messages, `source` (FILE:ROW) for tables."""

    location: str
    source: str
    file: str
    columns: dict[str, Any]


def find_source(data: str, data_format: str) -> Source:
    """Return the source that `data` names: a file, a folder, a pattern, or otherwise a dataset on the Hub."""
    source = _find_source(data, data_format)
    check_file_names(source.files)
    return source


def _find_source(data: str, data_format: str) -> Source:
    if not data:
        raise BadInput(
            "settings: data is not set, and this recipe has no data of its own",
            expected=EXPECTED_DATA,
            hint="--set data=PATH",
        )
    path = expand_user(data)
    try:
        if path.is_dir():
            return _find_in_folder(path.resolve(), data_format)
        if path.is_file():
            return Source(_kind_of(path), str(path.resolve()), [path.resolve()])
        if "*" in path.name and path.parent.is_dir():
            return _find_by_pattern(path.parent.resolve(), path.name)
    except OSError as error:
        raise BadInput(
            f"settings: data = {data}: {error.strerror}", expected="a readable file or folder", hint="--set data=PATH"
        ) from None
    if _is_path(data):
        raise BadInput(
            f"settings: data = {data}: no such file or folder", expected=EXPECTED_DATA, hint="--set data=PATH"
        )
    return Source("hub", data)


def _find_by_pattern(folder: Path, pattern: str) -> Source:
    """Find the files of a folder that match a pattern such as `weeks/*_harmony.csv`."""
    files = sorted(path for path in folder.glob(pattern) if path.is_file())
    kinds = {_kind_of(path) for path in files}
    if len(kinds) == 1:
        return Source(kinds.pop(), str(folder / pattern), files)
    raise BadInput(
        f"settings: data = {folder / pattern}: it matches {' and '.join(sorted(kinds)) or 'no'} files",
        expected=EXPECTED_FILES,
        hint=f"--set data={folder}",
    )


def _is_path(data: str) -> bool:
    """Whether the name of something that does not exist means a path rather than a dataset on the Hub."""
    first = Path(data).parts[0]
    in_local_folder = len(Path(data).parts) > 1 and Path(first).is_dir()
    return Path(data).suffix.lower() in KINDS or in_local_folder or not HUB_NAME.fullmatch(data)


def _kind_of(path: Path) -> str:
    kind = KINDS.get(path.suffix.lower())
    if kind:
        return kind
    hint = "--set data=FILE of one of these kinds"
    if path.suffix.lower() == ".json":
        hint = f"write one object per line: jq -c '.[]' {path.name} > {path.stem}.jsonl"
    raise BadInput(
        f"settings: data = {path}: files named *{path.suffix} are not supported",
        expected=f"a file named {', '.join('*' + suffix for suffix in KINDS)}",
        hint=hint,
    )


def _find_in_folder(folder: Path, data_format: str) -> Source:
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in KINDS)
    tes = [path for path in files if re.fullmatch(r".*_q_dataset(_harmony)?\.csv", path.name)]
    if tes and data_format in ("auto", "tes"):
        selected, twins = tes_data.find_files(str(folder))
        return Source("csv", str(folder), selected, [path.name for path in twins])
    kinds = Counter(KINDS[path.suffix.lower()] for path in files)
    if len(kinds) == 1:
        return Source(next(iter(kinds)), str(folder), files)
    if kinds:
        found = "files of several kinds: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    else:
        names = sorted(entry.name for entry in folder.iterdir())
        found = f"no data file ({len(names)} entries: {', '.join(names[:5]) or 'empty'})"
    raise BadInput(f"settings: data = {folder}: {found}", expected=EXPECTED_FILES, hint="--set data=FILE")


def read_files(source: Source) -> Iterator[RawRow]:
    """Yield every row of every file of the source."""
    reader = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}[source.kind]
    for path in source.files:
        try:
            yield from reader(path)
        except UnicodeDecodeError as error:
            problem = f"is not UTF-8 text: byte {error.object[error.start]:#04x} ({error.reason})"
            raise bad_data(str(path), problem, "a UTF-8 file") from None
        except OSError as error:
            raise bad_data(str(path), f"cannot be read: {error.strerror or error}", "a readable file") from None


def read_csv(path: Path) -> Iterator[RawRow]:
    """Yield every row of a CSV file."""
    csv.field_size_limit(MAX_CELL)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            _check_header(path, header)
            for number, cells in enumerate(filter(None, reader), 1):
                location = f"{path} row {number} (ends at line {reader.line_num})"
                if len(cells) != len(header):
                    problem = f"has {len(cells)} cells, the header has {len(header)}"
                    raise bad_data(location, problem, "as many cells as the header; quote cells that contain a comma")
                columns = dict(zip(header, cells, strict=True))
                yield RawRow(location, f"{path.name}:{number}", path.name, columns)
        except csv.Error as error:
            raise bad_data(str(path), f"is not a CSV file: line {reader.line_num}: {error}", "a CSV file") from None


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise bad_data(str(path), "is empty", "a header and rows")
    if duplicate := _first_duplicate(header):
        raise bad_data(str(path), f"has the column {duplicate!r} twice", "unique column names")


def _first_duplicate(names: list[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def read_jsonl(path: Path) -> Iterator[RawRow]:
    """Yield every non-empty line of a JSONL file; the number of a row is its line number."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
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
