"""Find, read and split the files of the thermal energy storage task."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.checks import check_file_names
from data.files import RawRow, bad_data, cut, read_file, read_header
from data.tes_prompt import ACTIONS, Facts, PromptError, parse_prompt
from settings import BadInput, suggest

Q_COLUMNS = [f"q_action_{action}" for action in range(ACTIONS)]
COLUMNS = ["prompt", "optimal_action", *Q_COLUMNS]
PATTERN = "*_q_dataset.csv"
HARMONY = "_harmony"  # suffix of copies in the chat format of gpt-oss
EXPECTED_FILE = f"a UTF-8 CSV file with the columns {', '.join(COLUMNS)}"


@dataclass(frozen=True)
class Decision:
    """One row: the facts of the prompt, and the value of each action."""

    source: str  # FILE:ROW
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
        files, twins = find_tes_files(data)
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
    return [" row ".join(row.source.rsplit(":", 1)) for row in decisions if row.q[row.optimal_action] < max(row.q)]


def find_tes_files(data: str) -> tuple[list[Path], list[Path]]:
    """Return (CSV files to use, harmony copies to ignore because the plain file of their week exists)."""
    if not data:
        raise BadInput(
            "settings: data is not set, and this recipe has no default data",
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
            hint="--set data=DIRECTORY",
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
    rows = list(read_file(path, "csv"))
    columns = list(rows[0].columns) if rows else read_header(path)
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        problem = (
            f"lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}; it has: {cut(', '.join(columns))}"
        )
        raise bad_data(str(path), problem, EXPECTED_FILE)
    if not rows:
        raise bad_data(str(path), "has a header and no rows", EXPECTED_FILE)
    return [parse_decision(row) for row in rows]


def parse_decision(row: RawRow) -> Decision:
    """Parse a row, which has all columns of COLUMNS."""
    q = tuple(_parse_q(row, column) for column in Q_COLUMNS)
    optimal_action = row.columns["optimal_action"].strip()
    if optimal_action not in {str(action) for action in range(ACTIONS)}:
        problem = f"column optimal_action: {optimal_action!r}"
        raise bad_data(f"{row.location},", problem, "optimal_action is 0, 1, 2 or 3")
    try:
        facts = parse_prompt(row.columns["prompt"])
    except PromptError as error:
        problem = f"column prompt: {error}"
        raise bad_data(f"{row.location},", problem, "a prompt with every fact of the plant") from None
    return Decision(row.source, facts, q, int(optimal_action))


def _parse_q(row: RawRow, column: str) -> float:
    try:
        value = float(row.columns[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        problem = f"column {column}: {row.columns[column]!r}"
        raise bad_data(f"{row.location},", problem, f"{column} is a finite number")
    return value


def _by_date(decisions: list[Decision]) -> dict[str, list[Decision]]:
    days: dict[str, list[Decision]] = {}
    for decision in sorted(decisions, key=lambda decision: decision.facts.moment):
        days.setdefault(decision.facts.date, []).append(decision)
    return days
