"""Find the source of the data: a file, a directory, a pattern, or a dataset on the Hub. Standard library only."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from data.builtin import PREFIX, check_builtin
from data.checks import check_file_names
from data.tes import find_tes_files
from settings import BadInput, expand_user

KINDS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
OTHER_KINDS = {".json", ".txt", ".tsv", ".arrow", ".xlsx", ".zip", ".gz", ".zst"}  # of files, not of Hub names
HUB_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)(?::([\w.-]+))?(?:@([\w./-]+))?")
EXPECTED_DATA = (
    "a CSV, JSONL or Parquet file, a directory of one of these kinds, or a Hub dataset NAME, NAME:CONFIG or "
    "NAME:CONFIG@REVISION"
)
EXPECTED_FILES = "CSV, JSONL or Parquet files, all of one kind"


@dataclass(frozen=True)
class Source:
    """Where the rows are. `name` is the value of the setting `data`; a path is absolute."""

    kind: str  # csv, jsonl, parquet, hub or builtin
    name: str
    files: list[Path] = field(default_factory=list)
    ignored_twins: list[str] = field(default_factory=list)  # harmony copies of files that are read

    @property
    def needs_stack(self) -> bool:
        """Return whether only the run can read it: the Hub needs `datasets`, Parquet needs pyarrow."""
        return self.kind == "hub" or (self.kind == "parquet" and importlib.util.find_spec("pyarrow") is None)


def find_source(data: str, data_format: str) -> Source:
    """Return the source that `data` names: a file, a directory, a pattern, or otherwise a dataset on the Hub."""
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
    if data.startswith(PREFIX):
        check_builtin(data)
        return Source("builtin", data)
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
            f"settings: data = {data}: {error.strerror}",
            expected="a readable file or directory",
            hint="--set data=PATH",
        ) from None
    if os.path.lexists(path):
        raise BadInput(
            f"settings: data = {data}: neither a regular file nor a directory",
            expected=EXPECTED_DATA,
            hint="--set data=PATH",
        )
    if _is_path(data):
        files = [each.name for each in path.parent.glob("*") if each.suffix.lower() in KINDS]
        close = difflib.get_close_matches(path.name, files, 1)
        raise BadInput(
            f"settings: data = {data}: no such file or directory",
            expected=EXPECTED_DATA,
            hint=f"--set data={path.parent / close[0]}" if close else "--set data=PATH",
        )
    return Source("hub", data)


def _find_by_pattern(folder: Path, pattern: str) -> Source:
    """Find the files of a directory that match a pattern such as `weeks/*_harmony.csv`."""
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
    return Path(data).suffix.lower() in {*KINDS, *OTHER_KINDS} or in_local_folder or not HUB_NAME.fullmatch(data)


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
        selected, twins = find_tes_files(str(folder))
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
