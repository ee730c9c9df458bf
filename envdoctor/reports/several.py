"""Two reports in one text, such as one of the host and one of the container: the facts are those of the first."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from envdoctor.reports.collect_env import parse_collect_env
from envdoctor.reports.gpus import parse_gpu_list
from envdoctor.reports.nvidia_smi import parse_nvidia_smi_table
from envdoctor.reports.package_lists import parse_tagged_packages
from envdoctor.reports.section import Line, first_group, is_missing

# Two reports of collect_env describe different environments if they differ in one of these.
IDENTITY = (
    "pytorch version", "cuda used to build pytorch", "python version", "os", "nvidia driver version",
    "is cuda available",
)  # fmt: skip
MIN_SHARED = 3  # of these keys; a quoted line of a report is not a second report


class FirstReports(NamedTuple):
    """The lines without those of later reports, the numbers of the lines that were left out, and the reason."""

    lines: list[Line]
    omitted: set[int]
    notes: tuple[str, ...]


def omit_later_reports(lines: list[Line]) -> FirstReports:
    """Leave out later reports of collect_env and tables of nvidia-smi that describe something else."""
    omitted: set[int] = set()
    notes = []
    starts = [
        position for position, line in enumerate(lines) if line.key == "pytorch version" and line.text[0] == "P"
    ]
    if position := _second(lines, starts):
        tail = lines[position:]
        section = parse_collect_env(tail)
        omitted |= section.consumed if section else set()
        omitted |= parse_tagged_packages(tail, "").consumed | parse_gpu_list(tail, "").consumed
        names = [f"torch {lines[start].value} (line {lines[start].number + 1})" for start in (starts[0], position)]
        notes.append(
            f"the text has several environment reports: {', '.join(names)}; the facts are those of the first"
        )
    drivers = [(position, driver) for position, line in enumerate(lines) if (driver := _driver(line.text))]
    if later := next((each for each in drivers if each[1] != drivers[0][1]), None):
        table = parse_nvidia_smi_table(lines[later[0] :])
        omitted |= table.consumed if table else set()
        names = [f"driver {driver} (line {lines[start].number + 1})" for start, driver in (drivers[0], later)]
        notes.append(
            f"the text has several outputs of nvidia-smi: {', '.join(names)}; the facts are those of the first"
        )
    return FirstReports([line for line in lines if line.number not in omitted], omitted, tuple(notes))


def _second(lines: list[Line], starts: list[int]) -> int:
    """The position of the first report that describes another environment than the first one; 0 if there is none."""
    bounds = [*starts, len(lines)]
    reports = [_identity(lines[start:end]) for start, end in pairwise(bounds)]
    for start, report in zip(starts[1:], reports[1:], strict=True):
        shared = [key for key in report if key in reports[0]]
        if len(shared) >= MIN_SHARED and any(report[key] != reports[0][key] for key in shared):
            return start
    return 0


def _identity(lines: list[Line]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if line.key in IDENTITY and not is_missing(line.value):
            found.setdefault(line.key, line.value)
    return found


def _driver(text: str) -> str:
    return first_group(r"Driver Version: ?(\d{3}\.[\d.]{1,10})", text) if "NVIDIA-SMI" in text else ""
