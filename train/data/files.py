"""Files and hub datasets, read row by row with every column. Standard library until Parquet or the hub is read."""

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
WHERE_DATA = (
    "a CSV, JSONL or Parquet file, a folder of one of these kinds, or a hub dataset NAME, NAME:CONFIG or "
    "NAME:CONFIG@REVISION"
)


@dataclass(frozen=True)
class Source:
    """Where the rows are. `name` is what the person gave, made absolute if it is a path."""

    kind: str  # csv, jsonl, parquet or hub
    name: str
    files: list[Path] = field(default_factory=list)
    ignored_twins: list[str] = field(default_factory=list)

    @property
    def waits_for_the_run(self) -> bool:
        """Whether this Python cannot look into it: a hub is asked in the run alone, Parquet needs pyarrow."""
        return self.kind == "hub" or (self.kind == "parquet" and importlib.util.find_spec("pyarrow") is None)


@dataclass(frozen=True)
class Raw:
    """A row as it came: `place` says it to a person, `source` to a table."""

    place: str
    source: str
    file: str
    columns: dict[str, Any]


def find_source(data: str, data_format: str) -> Source:
    """What `data` names: a file, a folder, or else a dataset of the hub."""
    source = _find_source(data, data_format)
    check_file_names(source.files)
    return source


def _find_source(data: str, data_format: str) -> Source:
    if not data:
        raise BadInput(
            "settings: data is not set: this recipe trains on rows of yours",
            expected=WHERE_DATA,
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
    if _looks_like_a_path(data):
        raise BadInput(
            f"settings: data = {data}: there is no such file or folder", expected=WHERE_DATA, hint="--set data=PATH"
        )
    return Source("hub", data)


def _find_by_pattern(folder: Path, pattern: str) -> Source:
    """Some files of a folder: `weeks/*_harmony.csv`."""
    files = sorted(path for path in folder.glob(pattern) if path.is_file())
    kinds = {_kind_of(path) for path in files}
    if len(kinds) == 1:
        return Source(kinds.pop(), str(folder / pattern), files)
    raise BadInput(
        f"settings: data = {folder / pattern}: it matches {' and '.join(sorted(kinds)) or 'no'} files",
        expected="CSV, JSONL or Parquet files, all of one kind",
        hint=f"--set data={folder}",
    )


def _looks_like_a_path(data: str) -> bool:
    first = Path(data).parts[0]
    local_folder = len(Path(data).parts) > 1 and Path(first).is_dir()
    return Path(data).suffix.lower() in KINDS or local_folder or not HUB_NAME.fullmatch(data)


def _kind_of(path: Path) -> str:
    kind = KINDS.get(path.suffix.lower())
    if kind:
        return kind
    hint = "--set data=FILE of one of these kinds"
    if path.suffix.lower() == ".json":
        hint = f"write one object a line: jq -c '.[]' {path.name} > {path.stem}.jsonl"
    raise BadInput(
        f"settings: data = {path}: files named *{path.suffix} are not read",
        expected=f"a file named {', '.join('*' + suffix for suffix in KINDS)}",
        hint=hint,
    )


def _find_in_folder(folder: Path, data_format: str) -> Source:
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in KINDS)
    tes = [path for path in files if re.fullmatch(r".*_q_dataset(_harmony)?\.csv", path.name)]
    if tes and data_format in ("auto", "tes"):
        chosen, twins = tes_data.find_files(str(folder))  # of a week that is there twice, the plain one
        return Source("csv", str(folder), chosen, [path.name for path in twins])
    kinds = Counter(KINDS[path.suffix.lower()] for path in files)
    if len(kinds) == 1:
        return Source(next(iter(kinds)), str(folder), files)
    if kinds:
        seen = "files of several kinds: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    else:
        names = sorted(entry.name for entry in folder.iterdir())
        seen = f"no file to read ({len(names)} entries: {', '.join(names[:5]) or 'empty'})"
    raise BadInput(
        f"settings: data = {folder}: {seen}", expected="CSV, JSONL or Parquet files, all of one kind",
        hint="--set data=FILE",
    )  # fmt: skip


def read_files(source: Source) -> Iterator[Raw]:
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


def read_csv(path: Path) -> Iterator[Raw]:
    """Every row of a CSV file."""
    csv.field_size_limit(1 << 30)  # 128 KiB unless told: a long prompt has more
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            _check_header(path, header)
            for number, cells in enumerate(filter(None, reader), 1):
                place = f"{path} row {number} (ends at line {reader.line_num})"
                if len(cells) != len(header):
                    problem = f"has {len(cells)} cells, the header has {len(header)}"
                    raise bad_data(place, problem, "as many cells as the header; a comma inside a cell is quoted")
                yield Raw(place, f"{path.name}:{number}", path.name, dict(zip(header, cells, strict=True)))
        except csv.Error as error:
            raise bad_data(str(path), f"is not a CSV file: line {reader.line_num}: {error}", "a CSV file") from None


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise bad_data(str(path), "is empty", "a header and rows")
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise bad_data(str(path), f"names the column {twice[0]!r} twice", "a header of distinct names")


def read_jsonl(path: Path) -> Iterator[Raw]:
    """Every line of a JSONL file but the empty ones; a row's number is its line's."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                place = f"{path} line {number}"
                yield Raw(place, f"{path.name}:{number}", path.name, _parse_line(place, line))


def _parse_line(place: str, line: str) -> dict[str, Any]:
    try:
        columns = json.loads(line, object_pairs_hook=_refuse_doubles)
    except RecursionError:
        raise bad_data(place, "is nested too deep", "one JSON object a line") from None
    except ValueError as error:
        raise bad_data(place, f"is not JSON: {error}: {cut(line.strip(), 80)}", "one JSON object a line") from None
    if not isinstance(columns, dict):
        problem = f"holds a {type(columns).__name__}: {cut(line.strip(), 80)}"
        raise bad_data(place, problem, "one JSON object a line")
    return columns


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(name for name, _ in pairs)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"the key {twice[0]!r} stands twice in one object")
    return dict(pairs)


def read_parquet(path: Path) -> Iterator[Raw]:
    """Every row of a Parquet file, a batch in memory at a time."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            twice = [name for name, count in Counter(file.schema_arrow.names).items() if count > 1]
            if twice:
                raise bad_data(str(path), f"names the column {twice[0]!r} twice", "distinct names of columns")
            for batch in file.iter_batches(batch_size=1024):
                for columns in batch.to_pylist():
                    number += 1
                    yield Raw(f"{path} row {number}", f"{path.name}:{number}", path.name, columns)
    except pyarrow.ArrowException as error:
        raise bad_data(str(path), f"is not a Parquet file: {str(error).splitlines()[0]}", "a Parquet file") from None


def cut(text: str, most: int = 200) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= most else text[: most - 3] + "..."


def bad_data(place: str, problem: str, expected: str) -> BadInput:
    """What is wrong with a row or a file, where."""
    return BadInput(f"{place} {problem}", expected=expected, hint="correct it, or --set data=PATH to other rows")
