"""Find, read and split the files of the thermal energy storage task."""

from __future__ import annotations

import csv
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.checks import check_file_names
from data.tes_prompt import ACTIONS, Facts, PromptError, parse_prompt
from settings import BadInput, suggest

Q_COLUMNS = [f"q_action_{action}" for action in range(ACTIONS)]
COLUMNS = ["prompt", "optimal_action", *Q_COLUMNS]
PATTERN = "*_q_dataset.csv"
HARMONY = "_harmony"  # suffix of copies in the chat format of gpt-oss


@dataclass(frozen=True)
class Decision:
    """One row: the facts of the prompt, and the value of each action."""

    file: str
    row: int
    facts: Facts
    q: tuple[float, ...]
    optimal_action: int  # the column of that name; rewards use q instead

    @property
    def best(self) -> int:
        """Return the action with the highest value, the first of equal ones."""
        return max(range(ACTIONS), key=lambda action: self.q[action])


@dataclass(frozen=True)
class TesSplit:
    """Training and held-out decisions, and a summary for the run's record."""

    train: list[Decision]
    held_out: list[Decision]
    summary: dict[str, Any]


def read_split(data: str, held_out: str) -> TesSplit:
    """Read the files and hold one out; of a single file hold out the last day."""
    try:
        files, twins = find_files(data)
    except OSError as error:
        raise BadInput(
            f"settings: data = {data}: {error.strerror}",
            expected="a readable directory or file",
            hint="--set data=PATH",
        ) from None
    check_file_names(files)
    decisions = {path.name: read_decisions(path) for path in files}
    unit = "file"
    if len(files) == 1:
        decisions = _by_date(decisions[files[0].name])
        unit = "day"
    name = choose_held_out(held_out, list(decisions), unit, data)
    held_out_moments = {decision.facts.moment for decision in decisions[name]}
    others = [decision for key, rows in decisions.items() if key != name for decision in rows]
    # A copy of the held-out week under another name would leak into training, so no date and hour may be shared.
    train = [decision for decision in others if decision.facts.moment not in held_out_moments]
    if not train:
        raise BadInput(
            f"{data}: no training rows are left after {unit} {name} is held out",
            expected="at least two weeks (files), or two days in a single file",
            hint="--set data=DIRECTORY with more *_q_dataset.csv files",
        )
    rows = [decision for decisions_of_unit in decisions.values() for decision in decisions_of_unit]
    return TesSplit(
        train,
        decisions[name],
        {
            "files": [path.name for path in files],
            "ignored_twins": [path.name for path in twins],
            "held_out": name,
            "held_out_rows": len(decisions[name]),
            "train_rows": len(train),
            "dropped_shared_rows": len(others) - len(train),
            "optimal_action_not_best_q": mismatched_rows(rows),
        },
    )


def mismatched_rows(decisions: list[Decision]) -> list[str]:
    """Return the rows whose optimal_action does not have the highest q."""
    return [f"{row.file} row {row.row}" for row in decisions if row.q[row.optimal_action] < max(row.q)]


def find_files(data: str) -> tuple[list[Path], list[Path]]:
    """Return (CSV files to use, harmony copies to ignore because the plain file of their week exists)."""
    if not data:
        raise BadInput(
            "settings: data is not set, and this recipe has no data of its own",
            expected=f"a directory with {PATTERN} files, or one such file",
            hint="--set data=DIRECTORY",
        )
    path = Path(data)
    if path.is_file():
        return [path], []
    if not path.is_dir():
        raise BadInput(
            f"settings: data = {data}: no such file or directory",
            expected=f"a directory with {PATTERN} files, or one such file",
            hint="--set data=DIRECTORY",
        )
    plain = sorted(path.glob(PATTERN))
    harmony = sorted(path.glob(PATTERN.replace(".csv", f"{HARMONY}.csv")))
    if not plain and not harmony:
        names = sorted(entry.name for entry in path.iterdir())
        raise BadInput(
            f"settings: data = {data}: no {PATTERN} in it ({len(names)} entries: {', '.join(names[:5]) or 'empty'})",
            expected=f"files named {PATTERN}",
            hint="--set data=DIRECTORY with such files",
        )
    return (plain, harmony) if plain else (harmony, [])


def choose_held_out(part: str, names: list[str], unit: str, data: str) -> str:
    """Return the only file (or day) whose name contains `part`, or the last one if it is empty."""
    matches = [name for name in names if part in name] if part else [names[-1]]
    if len(matches) == 1:
        return matches[0]
    raise BadInput(
        f"settings: held_out = {part!r} matches {'no' if not matches else 'more than one'} {unit} of {data}"
        + ("" if matches else suggest(part, names)),
        expected=f"part of one name: {', '.join(names)}",
        hint=f"--set {shlex.quote(f'held_out={names[-1]}')}",
    )


def read_decisions(path: Path) -> list[Decision]:
    """Return every row of a file; errors name the row, column and value."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            _check_header(path, header)
            decisions = [
                _parse_row(path, number, reader.line_num, header, cells)
                for number, cells in enumerate(filter(None, reader), 1)
            ]
    except UnicodeDecodeError as error:
        raise _bad_file(path, f"is not UTF-8 text: byte {error.object[error.start]:#04x} ({error.reason})") from None
    except csv.Error as error:
        raise _bad_file(path, f"is not a CSV file: line {reader.line_num}: {error}") from None
    except OSError as error:
        raise _bad_file(path, f"cannot be read: {error.strerror}") from None
    if not decisions:
        raise _bad_file(path, "has a header and no rows")
    return decisions


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise _bad_file(path, "is empty")
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        found = ", ".join(header)
        found = found if len(found) <= 200 else found[:197] + "..."
        raise _bad_file(path, f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; it has: {found}")


def _parse_row(path: Path, number: int, line: int, header: list[str], cells: list[str]) -> Decision:
    location = f"row {number} (ends at line {line})"
    if len(cells) != len(header):
        raise _bad_file(path, f"{location} has {len(cells)} cells, the header has {len(header)}")
    row = dict(zip(header, cells, strict=True))
    q = tuple(_parse_q(path, location, column, row[column]) for column in Q_COLUMNS)
    optimal_action = row["optimal_action"].strip()
    if optimal_action not in {str(action) for action in range(ACTIONS)}:
        raise _bad_file(
            path, f"{location}, column optimal_action: {optimal_action!r}", "optimal_action is 0, 1, 2 or 3"
        )
    try:
        facts = parse_prompt(row["prompt"])
    except PromptError as error:
        raise _bad_file(
            path, f"{location}, column prompt: {error}", "a prompt with every fact of the plant"
        ) from None
    return Decision(path.name, number, facts, q, int(optimal_action))


def _parse_q(path: Path, location: str, column: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _bad_file(path, f"{location}, column {column}: {cell!r}", f"{column} is a finite number")
    return value


def _bad_file(
    path: Path, problem: str, expected: str = f"a UTF-8 CSV file with the columns {', '.join(COLUMNS)}"
) -> BadInput:
    return BadInput(f"{path} {problem}", expected=expected, hint=f"correct {path.name}, or --set data=PATH")


def _by_date(decisions: list[Decision]) -> dict[str, list[Decision]]:
    days: dict[str, list[Decision]] = {}
    for decision in sorted(decisions, key=lambda decision: decision.facts.moment):
        days.setdefault(decision.facts.date, []).append(decision)
    return days
