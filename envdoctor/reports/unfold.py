"""Restores the lines of reports that a web page or a log put on one line: JSON, collect_env, nvidia-smi, pip list."""

from __future__ import annotations

import re
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.line_starts import strip_prefixes
from envdoctor.reports.one_line import split_line, split_single_line
from envdoctor.reports.preprocess import MAX_LINE_CHARACTERS

WRAPPED_HEADER = lazy_pattern(r"\| NVIDIA-SMI [^|]{0,200}$")  # the first row of nvidia-smi without its end
CELL_NAME = lazy_pattern(r"(?:\[(?:pip\d?|conda)\] )?[A-Za-z_][\w.-]{0,80}")
CELL_VERSION = lazy_pattern(r"v?\d[\w!-]{0,20}\.[\w.+!-]{0,60}")
CELL = lazy_pattern(r"(?:[\w.+!/:-]{1,80} )?\d[\d.]{0,8} [KMG]iB|[\w.+!/:-]{1,80}")
CELL_BORDER = " \t|>"  # of a table and of a quote
HEADING_CELL = lazy_pattern(r"#? ?(?:Package|Name)")
MIN_CELL_ROWS, MAX_CELLS = 3, 6
MIN_CUT_ROWS = 3
MAX_LIST = 20_000  # characters of a list of installed packages
LIST_START = "Successfully installed "
ITEMS_PER_LINE = 10
INSTALLED_ITEM = lazy_pattern(r"[A-Za-z][\w.-]*-\d[\w.+!]*$")
INSTALLED_PART = lazy_pattern(r"\s*[\w.+!-]+(?:\s+[A-Za-z][\w.-]*-\d[\w.+!]*)*\s*$")
DEVICE = lazy_pattern(r"Device: cuda:\d{1,2} (?!.* : \w)[^:]{4,60}$")
DEVICE_END = lazy_pattern(r"[\w -]{1,30} : (?:cudaMallocAsync|native)\b")
# `<driver_version>591.74</driver_version>` of `nvidia-smi -q -x`; the listing has the same names with spaces.
XML_FIELD = lazy_pattern(r"\s*<([a-z_0-9]{2,60})>([^<>]{0,200})</\1>\s*$")
XML_HEADING = lazy_pattern(r"\s*<([a-z_0-9]{2,60})>\s*$|\s*<gpu id=\"([0-9A-Fa-f:.]{8,20})\">\s*$")
XML_NAMES = {"uuid": "GPU UUID", "current_mig": "Current", "current_ecc": "Current", "gpu_temp": "GPU Current Temp"}
# A label of a fact without its value, and a line of nothing but a value.
LONE_LABEL = lazy_pattern(
    r"[ \t>*-]{0,8}(?:[a-z][\w /()-]{0,40}[ _])?(?:available|version|build(?: pytorch)?|driver"
    r"|pytorch|torch|cuda|cudnn|python)[ \t]{0,20}:[ \t]{0,20}",
    re.IGNORECASE,
)
LONE_VALUE = lazy_pattern(
    r"[ \t]{0,20}(?:True|False|N/A|No CUDA|v?\d{1,4}(?:\.\d{1,6}){1,3}[\w.+-]{0,24})[ \t]{0,20}"
)


def unfold_lines(raw: list[str]) -> list[str]:
    """The lines of a text, where several lines on one line are separate again."""
    if any("nvidia_smi_log" in line for line in raw[:2000]):
        raw = [_listing_line(strip_prefixes(line.strip())) for line in raw]
    if any(WRAPPED_HEADER.match(line) for line in raw) or sum(map(_is_cut_row, raw, raw[1:])) >= MIN_CUT_ROWS:
        raw = _join_rows(raw)
    raw = _join_cells(_join_values(_join_lists(raw)))
    raw = _without_leaders(raw)
    filled = [line for line in raw if line.strip()]
    if len(filled) == 1:
        raw = split_single_line(filled[0])
    return [part for line in raw for short in _split_list(line) for part in split_line(short)]


def _split_list(line: str) -> list[str]:
    """The list of the packages that pip installed as several lists, none longer than what is read of a line."""
    start = line.find(LIST_START) if len(line) > MAX_LINE_CHARACTERS else -1
    if start < 0:
        return [line]
    items = line[start + len(LIST_START) : start + MAX_LIST].split()
    groups = [items[number : number + ITEMS_PER_LINE] for number in range(0, len(items), ITEMS_PER_LINE)]
    return [f"{line[:start]}{LIST_START}{' '.join(group)}" for group in groups]


# `torch ........ 2.5.1` in a list of a person; DeepSpeed's ds_report has a parser of its own.
LEADER = lazy_pattern(r"([ \t>*-]{0,8}[A-Za-z][\w /()-]{1,38}?) ?\.{3,60} (?=\S)")
DS_REPORT_LINE = lazy_pattern(r"\.{3,} ?\[(?:YES|NO|OKAY|FAIL)\]|^(?:torch|deepspeed) (?:install path|info) \.{3}")


def _without_leaders(raw: list[str]) -> list[str]:
    """The lines of a list with a colon in place of the dots between a label and its value."""
    dotted = [number for number, line in enumerate(raw) if LEADER.match(line)]
    if len(dotted) < MIN_CELL_ROWS or any(map(DS_REPORT_LINE.search, raw)):
        return raw
    return [LEADER.sub(r"\1: ", line, count=1) if LEADER.match(line) else line for line in raw]


def _join_values(raw: list[str]) -> list[str]:
    """Join a value with the label of a fact on the line before it: `Is CUDA available:` and `False`."""
    joined: list[str] = []
    for line in raw:
        if joined and LONE_VALUE.fullmatch(line) and LONE_LABEL.fullmatch(joined[-1]):
            joined[-1] = f"{joined[-1].rstrip()} {line.strip()}"
        else:
            joined.append(line)
    return joined


def _join_cells(raw: list[str]) -> list[str]:
    """The rows of a list of packages, where a page put each cell into a line: `torch`, `2.8.0`, `pypi_0`, `pypi`."""
    filled = [number for number, line in enumerate(raw) if line.strip()]
    starts = {
        first
        for first, second in pairwise(filled)
        if CELL_NAME.fullmatch(raw[first].strip(CELL_BORDER))
        and CELL_VERSION.fullmatch(raw[second].strip(CELL_BORDER))
    }
    after_heading = any(
        HEADING_CELL.fullmatch(first.strip(CELL_BORDER)) and second.strip(CELL_BORDER) == "Version"
        for first, second in pairwise(raw)
    )
    if len(starts) < (1 if after_heading else MIN_CELL_ROWS):
        return raw
    joined: list[str] = []
    row = 0  # the number of cells of the row in joined[-1]
    for number, line in enumerate(raw):
        text = line.strip(CELL_BORDER)
        if number in starts:
            joined.append(text)
            row = 1
        elif row and text and row < MAX_CELLS and CELL.fullmatch(text):
            joined[-1] += "  " + text
            row += 1
        elif text or not row:
            joined.append(line)
            row = 0
    return joined


def _is_cut_row(line: str, following: str) -> bool:
    """Whether a table row continues in the next line."""
    return line.startswith(("| ", "|-", "|=")) and not _ends_row(line) and _ends_row(following)


def _join_lists(raw: list[str]) -> list[str]:
    """The lines of pip's list of installed packages, and of ComfyUI's device, which a narrow terminal wrapped."""
    joined: list[str] = []
    for line in raw:
        before = joined[-1] if joined else ""
        is_open = len(before) < MAX_LIST and LIST_START in before
        if is_open and INSTALLED_PART.match(line):
            complete = INSTALLED_ITEM.match(line.split(None, 1)[0]) and INSTALLED_ITEM.match(
                before.rsplit(None, 1)[-1]
            )
            joined[-1] = before + (" " if complete else "") + line
        elif DEVICE.search(before) and DEVICE_END.match(line):
            separator = "" if before[-1:].isupper() and line[:2].isupper() else " "  # `GeForce R`, `TX 5060 Ti`
            joined[-1] = f"{before.rstrip()}{separator}{line}"
        else:
            joined.append(line)
    return joined


def _join_rows(raw: list[str]) -> list[str]:
    """The rows of a table that a narrow terminal or a page wrapped."""
    joined: list[str] = []
    for line in raw:
        row = joined[-1] if joined else ""
        is_part = row.startswith(("|", "+")) and (_ends_row(line) or not _ends_row(row))
        if is_part and not line.startswith(("| ", "+-", "|-", "|=", "Traceback")):
            joined[-1] += line
        else:
            joined.append(line)
    return joined


def _ends_row(text: str) -> bool:
    return text.rstrip().endswith(("|", "+"))


def _listing_line(line: str) -> str:
    """A line of XML as `nvidia-smi -q` prints it without `-x`: `Driver Version                 : 591.74`."""
    if field := XML_FIELD.match(line):
        return f"{XML_NAMES.get(field[1], field[1].replace('_', ' ').title()):<40}: {field[2]}"
    if heading := XML_HEADING.match(line):
        return f"GPU {heading[2]}" if heading[2] else heading[1].replace("_", " ").title()
    return line
