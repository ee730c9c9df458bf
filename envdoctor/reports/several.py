"""Several reports in one text, such as one of the host and one of the container, or one before and one after."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.collect_env import parse_collect_env
from envdoctor.reports.gpus import parse_gpu_list
from envdoctor.reports.nvidia_smi import parse_nvidia_smi_table
from envdoctor.reports.package_lists import list_kind, parse_package_lists, parse_tagged_packages
from envdoctor.reports.section import Line, first_group, is_missing
from envdoctor.reports.tool_reports import parse_env_list, parse_sglang_check_env

# Two reports of collect_env describe different environments if they differ in one of these.
IDENTITY = (
    "pytorch version", "cuda used to build pytorch", "python version", "os", "nvidia driver version",
    "is cuda available",
)  # fmt: skip
MIN_SHARED = 3  # of these keys; a quoted line of a report is not a second report
# The rows of sglang's check_env with the same content.
IN_CHECK_ENV = {
    "pytorch": "pytorch version", "python": "python version", "cuda driver version": "nvidia driver version",
    "cuda available": "is cuda available",
}  # fmt: skip
CHECK_ENV_ROWS = 24  # from its first one to that of torch: one for each group of GPUs
ENV_LIST_TORCH = lazy_pattern(r"[-*] `?PyTorch version(?: \((?:GPU|accelerator)\?\))?`?: (\S+)", re.IGNORECASE)
# The packages whose versions distinguish two lists. Lists of different packages describe one environment.
COMPARED_PACKAGES = ("torch", "vllm", "transformers", "sglang", "trl", "flash-attn", "xformers", "numpy")
MAX_REPORTS = 8
SHORTEST_LIST = 2  # entries; a single pin after a heading is part of a sentence


class Block(NamedTuple):
    """The lines of one report, the facts of its environment, and its name in messages."""

    name: str
    identity: dict[str, str]
    consumed: frozenset[int]


class SingleReport(NamedTuple):
    """The lines without those of the other reports in the text, and the name of the report."""

    name: str  # empty if it is the only one
    lines: list[Line]


class SeparatedReports(NamedTuple):
    """The reports of a text, in its order; there is always a first one. `omitted` are the lines of all but it."""

    reports: tuple[SingleReport, ...]
    omitted: set[int]
    left_out: int  # reports after MAX_REPORTS
    note: str


def separate_reports(lines: list[Line]) -> SeparatedReports:
    """Separate the reports of one kind that describe different environments.

    Lines that belong to none of them are part of each: one table of nvidia-smi below two package lists, for example.
    """
    kinds = [
        different for find in (_collect_env, _env_lists, _package_lists, _smi_tables) if (different := find(lines))
    ]
    number = max((len(blocks) for blocks in kinds), default=1)
    reports = []
    for position in range(min(number, MAX_REPORTS)):
        others = [block for blocks in kinds for place, block in enumerate(blocks) if place != position]
        own = [blocks[position].name for blocks in kinds if position < len(blocks)]
        of_others = frozenset().union(*(block.consumed for block in others))
        rest = [line for line in lines if line.number not in of_others]
        reports.append(SingleReport(", ".join(own), rest))
    later = [block for blocks in kinds for block in blocks[1:]]
    omitted: set[int] = set().union(*(block.consumed for block in later))
    names = "; ".join(report.name for report in reports)
    left_out = max(number - MAX_REPORTS, 0)
    unread = f"; {left_out} more were not read" if left_out else ""
    note = f"the text has {number} reports: {names}{unread}; the facts shown are those of the first"
    return SeparatedReports(tuple(reports), omitted, left_out, note if number > 1 else "")


def _different(blocks: list[Block], minimum: int = 1) -> list[Block]:
    """The first block and those that differ from all before them; none if all describe the same environment."""
    kept: list[Block] = []
    for block in blocks:
        if all(_differs(block.identity, other.identity, minimum) for other in kept):
            kept.append(block)
        elif kept:
            same = next(n for n, other in enumerate(kept) if not _differs(block.identity, other.identity, minimum))
            kept[same] = kept[same]._replace(consumed=kept[same].consumed | block.consumed)
    return kept if len(kept) > 1 else []


def _differs(one: dict[str, str], other: dict[str, str], minimum: int) -> bool:
    shared = one.keys() & other.keys()
    return len(shared) >= minimum and any(one[key] != other[key] for key in shared)


def _blocks(lines: list[Line], starts: list[int], read: Callable[[list[Line]], Block | None]) -> list[Block]:
    bounds = [*starts, len(lines)]
    blocks = [read(lines[start:end]) for start, end in pairwise(bounds)] if len(starts) > 1 else []
    return [block for block in blocks if block]


def _collect_env(lines: list[Line]) -> list[Block]:
    starts = [place for place, line in enumerate(lines) if line.key == "pytorch version" and line.text[0] == "P"]
    starts += _check_env_starts(lines)
    return _different(_blocks(lines, sorted(starts), _read_collect_env), MIN_SHARED)


def _check_env_starts(lines: list[Line]) -> list[int]:
    """The first lines of reports of sglang's check_env: `Python:` above `PyTorch:`."""
    rows = [place for place, line in enumerate(lines) if line.key == "python" and line.value[:1].isdecimal()]
    return [place for place in rows if any(line.key == "pytorch" for line in lines[place : place + CHECK_ENV_ROWS])]


def _read_collect_env(lines: list[Line]) -> Block | None:
    identity: dict[str, str] = {}
    for line in lines:
        key = IN_CHECK_ENV.get(line.key, line.key)
        if key in IDENTITY and not is_missing(line.value):
            identity.setdefault(key, line.value.split(" ")[0] if key == "python version" else line.value)
    if "pytorch version" not in identity:
        return None
    section = parse_collect_env(lines) if lines[0].key == "pytorch version" else parse_sglang_check_env(lines)
    consumed = section.consumed if section else set()
    consumed = consumed | parse_tagged_packages(lines, "").consumed | parse_gpu_list(lines, "").consumed
    name = f"torch {identity['pytorch version']} (line {lines[0].number + 1})"
    return Block(name, identity, frozenset(consumed))


def _env_lists(lines: list[Line]) -> list[Block]:
    """The lists of `transformers env` and similar commands, which name torch in one line each."""
    torch_lines = [place for place, line in enumerate(lines) if ENV_LIST_TORCH.match(line.text)]
    starts = [_start_of_list(lines, place) for place in torch_lines]
    return _different(_blocks(lines, starts, _read_env_list))


def _start_of_list(lines: list[Line], place: int) -> int:
    while place and lines[place - 1].text[0] in "-*" and lines[place - 1].number >= lines[place].number - 2:
        place -= 1
    return place


def _read_env_list(lines: list[Line]) -> Block | None:
    end = next((n for n, line in enumerate(lines) if line.text[0] not in "-*"), len(lines))
    section = parse_env_list(lines[:end])
    torch = next((match[1] for line in lines if (match := ENV_LIST_TORCH.match(line.text))), "")
    if not section or not torch:
        return None
    identity = {line.key.strip("`"): line.value.split(" ")[0] for line in lines[:end] if "version" in line.key}
    return Block(f"torch {torch} (line {lines[0].number + 1})", identity, frozenset(section.consumed))


def _package_lists(lines: list[Line]) -> list[Block]:
    starts = [place for place, line in enumerate(lines) if list_kind(line.text)]
    # A header follows its command; both are one start.
    starts = [place for n, place in enumerate(starts) if n == 0 or place - starts[n - 1] > SHORTEST_LIST]
    return _different(_blocks(lines, starts, _read_package_list))


def _read_package_list(lines: list[Line]) -> Block | None:
    sections = parse_package_lists(lines)
    found = {name: each.version for section in sections for name, each in section.distributions.items()}
    identity = {name: found[name] for name in COMPARED_PACKAGES if name in found}
    if len(found) < SHORTEST_LIST or not identity:
        return None
    name, version = next(iter(identity.items()))
    consumed = frozenset().union(*(section.consumed for section in sections))
    return Block(f"{name} {version} (line {lines[0].number + 1})", identity, consumed)


def _smi_tables(lines: list[Line]) -> list[Block]:
    return _different(_blocks(lines, [n for n, line in enumerate(lines) if _driver(line.text)], _read_smi_table))


def _read_smi_table(lines: list[Line]) -> Block | None:
    driver, table = _driver(lines[0].text), parse_nvidia_smi_table(lines)
    if not table:
        return None
    return Block(f"driver {driver} (line {lines[0].number + 1})", {"driver": driver}, frozenset(table.consumed))


def _driver(text: str) -> str:
    return first_group(r"Driver Version: ?(\d{3}\.[\d.]{1,10})", text) if "NVIDIA-SMI" in text else ""
