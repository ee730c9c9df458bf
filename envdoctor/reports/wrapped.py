"""Joins the lines that a terminal, a mail program or a page wrapped at a fixed width."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.line_starts import has_prefix

MIN_WIDTH, MAX_WIDTH = 48, 240
WIDTHS = frozenset({60, 64, 66, 68, 70, 72, 76, 78, 79, 80, 90, 100, 120, 132})  # of terminals and mail programs
MIN_BREAKS = 4  # at a width that is not one of these
FULL_SHARE = 0.5  # of the lines with the complete width: their next lines do not start as a line of a report does
MIN_CUT_WIDTH, MIN_CUT_LINES, CUT_SHARE, MIN_COLUMNS = 30, 4, 0.2, 3
MAX_JSON = 200_000
MEMBER = lazy_pattern(r"\s*\"[^\"]{1,60}\": (?:\"[^\"]*\"|[\w.]+),?$")  # JSON in lines of its own
TIME = r"\[?(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d)"
# How a line of a report starts: with a label, an assignment, a package, a bullet, a cell, a prompt, a heading.
LABEL = lazy_pattern(
    rf"\s*(?:\[(?:pip\d?|conda|uv)\] |[A-Z][\w ./()&-]{{1,44}}\s{{0,40}}: |[-*] [A-Z`*]|[|+>#$]|{TIME}"
    r"|[a-z][\w./-]{3,60}=\S)"
)
START = lazy_pattern(
    rf"\s*(?:[-*+\u2022>|$=]\s|#|[-=+]{{3}}|\d{{1,2}}[.)]\s|{TIME}|\[[\w./:-]+\]|[`\"'{{}}\]<]"
    r"|[A-Za-z][\w ./()&-]{0,44}(?:\s{0,40}: |:$|\s{3,}: ?)"
    r"|[\w ./()-]{0,24}[\u3040-\u30ff\u4e00-\u9fff][\w ./()-]{0,24}:"  # `\u663e\u5361:RTX 4090`
    r"|[A-Za-z_][\w./\[\]-]{0,60}(?:==|=|\s{2,}v?\d| v?\d+\.\d| @ |\s\.{3,})"
    r"|Traceback|Collecting environment|File \""
    r"|[A-Z]\w{2,40}(?:Error|Exception)\b|(?:INFO|WARNING|ERROR|DEBUG)\b|GPU ?\d|(?:pip|uv|conda) )"
)
INSTALLED = lazy_pattern(r"Successfully installed |[\w.]-\d[\w.+]*$")  # a list of pip, which `unfold` joins
RULE = lazy_pattern(r"\s*[|+]?[-=+~_*#]{3}[-=+~_*# |]*$")
# Where the end of a full line and the next line are two words.
BETWEEN_WORDS = lazy_pattern(r"\b(?:[GR]TX|GeForce|NVIDIA|Quadro|Tesla)\n|[a-z]{3}\nhttps?://|\b[a-z]{4,}\n\d+\.\d")
NO_END = lazy_pattern(
    r"(?:[,:(]|\.{4}|\b(?:and|by|cuda|driver|for|geforce|in|is|numpy|nvidia|of|on|python"
    r"|pytorch|rtx|the|to|torch|transformers|triton|version|vllm|with))\n|sm_\d{2,3}a?\nsm_",
    re.IGNORECASE,
)
MAX_LONGEST_WORD = 12  # how much shorter than the width all lines can be
MIN_RUN, PARAGRAPH_STARTS, MIN_PARAGRAPH_WIDTH = 4, 0.6, 30
MAX_PARTS_OF_ROW = 3
RULE_OR_ROW = lazy_pattern(r"\s*[|+].*[|+]\s*$|\s*[-=+~_*#]{3}[-=+~_*# |]*$")


def join_wrapped_lines(raw: list[str]) -> list[str]:
    """The lines of a text before it was wrapped: between words, or within words as a terminal does."""
    lines = [line.replace("\t", "    ") for line in raw]
    if sum(line.endswith("  ") for line in lines) > len(lines) / 2:
        lines = [line.rstrip() for line in lines]
    separators = _find_separators(lines)
    if not separators:
        return _without_cut_words(lines) or raw
    joined = [lines[:1]]  # the parts of each line: a text can be one line of megabytes
    for number, following in enumerate(lines[1:]):
        separator = separators.get(number)
        if separator is None:
            joined.append([following])
            continue
        if separator:
            joined[-1][-1] = joined[-1][-1].rstrip()
        joined[-1] += [separator, following]
    return ["".join(parts) for parts in joined]


def _without_cut_words(lines: list[str]) -> list[str] | None:
    """The lines without the words that a narrow window cut off at its right side; None if it cut none.

    Many lines end in the same column there, and their last words start in different ones.
    """
    filled = [line for line in lines if line.strip() and not _is_rule(line)]
    width = max(map(len, filled), default=0)
    cut = [line for line in filled if len(line) == width and " " in line.strip()]
    columns = {line.rstrip().rfind(" ") for line in cut}
    if width < MIN_CUT_WIDTH or len(cut) < max(MIN_CUT_LINES, CUT_SHARE * len(filled)) or len(columns) < MIN_COLUMNS:
        return None
    return [line[: line.rstrip().rfind(" ") + 1] if len(line) == width and line in cut else line for line in lines]


def _find_separators(raw: list[str]) -> dict[int, str]:
    """What was between two lines by the number of the first: nothing or a space."""
    width = max(map(len, raw), default=0)
    full = {number: pair for number, pair in enumerate(pairwise(raw)) if _is_full(*pair, width)}
    breaks = _find_breaks(raw)
    rests = sum(not _is_start(following) for _, following in full.values())
    shorter = sum(len(raw[number]) < width for number in breaks)
    if rests > 2 * shorter and rests >= max(_needed(width), FULL_SHARE * len(full)):
        return {
            number: " " if BETWEEN_WORDS.search(f"{line[-12:]}\n{following[:12]}") else ""
            for number, (line, following) in full.items()
            if len(full) > 1 or _is_within_word(line, following)
        }
    return dict.fromkeys(breaks, " ")


def _is_within_word(line: str, following: str) -> bool:
    """Whether the next line starts within the word or the row with which a line ends, and is shorter."""
    if line[0] in "|+":
        return following.rstrip()[-1] in "|+"
    is_rest = following[0].islower() or following[0].isdigit() or (line[-1].isupper() and following[:2].isupper())
    return line[-1].isalnum() and is_rest and len(following) < len(line)


def _find_breaks(raw: list[str]) -> set[int]:
    """The numbers of the lines that continue in the next line, because its first word did not fit."""
    longest = max((len(line.rstrip()) for line in raw if " " in line.strip() and not _is_rule(line)), default=0)
    widths = [width for width in WIDTHS if longest <= width <= longest + MAX_LONGEST_WORD] if longest else []
    breaks = _find_rests_of_rows(raw)
    run: list[int] = []  # consecutive lines into which the next word did not fit
    starts = 0
    for number, (line, following) in enumerate([*pairwise(raw), ("", "")]):
        text = line.rstrip()
        end = len(text) + 1 + len(following.partition(" ")[0])
        if text and following[:1].strip() and len(text) <= longest < end and following[0] not in "|+":
            run.append(number)
            starts += _is_start(following)
            if any(width < end for width in widths) and _has_no_end(text, following) and _can_go_on(text, following):
                breaks.add(number)
        else:
            is_paragraph = len(run) >= MIN_RUN and longest >= MIN_PARAGRAPH_WIDTH
            if is_paragraph and starts <= PARAGRAPH_STARTS * len(run):
                breaks.update(run)
            run, starts = [], 0
    return breaks


def _needed(width: int) -> float:
    """The number of full lines that show that a text was wrapped at this width."""
    return (1 if width in WIDTHS else MIN_BREAKS) if MIN_WIDTH <= width <= MAX_WIDTH else float("inf")


def _is_rule(line: str) -> bool:
    return RULE_OR_ROW.match(line) is not None


def _is_full(line: str, following: str, width: int) -> bool:
    """Whether a line has the complete width, and the next one can be its rest."""
    if len(line) != width or not following.strip() or LABEL.match(following) or has_prefix(following):
        return False
    if line[0] not in "|+" and _row_start(line) == _row_start(following):
        return False
    if following.startswith("  ") and line[0] != "|" and not line.endswith(" "):
        return False
    return not (RULE.match(line) and not RULE.match(following))


def _find_rests_of_rows(raw: list[str]) -> set[int]:
    """The numbers of the lines of a table whose row continues in the next line, up to a `|` or a `+`."""
    found: set[int] = set()
    row: list[int] = []  # the lines of a row that has no end yet
    for number, (line, following) in enumerate(pairwise(raw)):
        if line[:1] in ("|", "+"):
            row = []
        elif not row:
            continue
        is_end = following.strip() == "|" and not line.rstrip().endswith("|")
        if not following.strip(" .") or (following[0] in "|+" and not is_end) or len(row) == MAX_PARTS_OF_ROW:
            row = []
            continue
        row.append(number)
        if following.rstrip()[-1] in "|+":
            found.update(row)
    return found


def _row_start(line: str) -> str:
    """The first characters without numbers: the same in rows such as `0, NVIDIA H100 80GB HBM3, 550.54.14`."""
    return re.sub(r"\d+", "0", line[:8])[:6]


def _can_go_on(text: str, following: str) -> bool:
    if text[0] in "|+" or _is_rule(text) or INSTALLED.search(text):
        return False
    if _is_within_brackets(text, following):
        return True
    return not (LABEL.match(following) if text.endswith((":", "....")) else _is_start(following))


def _is_start(line: str) -> bool:
    return START.match(line) is not None or has_prefix(line)


def _has_no_end(text: str, following: str) -> bool:
    """Whether a line needs a continuation: a bracket is open, or a value is missing."""
    return NO_END.search(f"{text}\n{following[:3]}") is not None or _is_within_brackets(text, following)


def _is_within_brackets(text: str, following: str) -> bool:
    return any(
        text.rfind(opening) > text.rfind(closing) and closing in following.partition(opening)[0]
        for opening, closing in ("()", "[]")
    )


MAX_EQUAL_WIDTHS, MAX_RESTS = 2, 4
# A row of a list of packages, and what a narrow window moved to the next lines: a build, a size, a channel, the end.
PACKAGE_ROW = lazy_pattern(r"[ >]{0,4}[A-Za-z_][\w.-]{0,80}(?:\s{2,60}|\s{1,40}\|\s{1,40})v?\d[\w.+!-]*(?:\s|$)")
REST_OF_ROW = lazy_pattern(
    r"(?:[\w.]{1,60}\s{1,40})?(?:\d[\d.]{0,8} )?[KMG]iB\b.{0,200}|https?://\S{4,200}|\|"
    r"|(?:\S{1,60}\s{2,40})?(?:conda-forge|pypi|defaults|nvidia|pytorch|main|anaconda)"
    r"|[a-z][\w.]{0,60}_\d{1,4}(?:\s{2,40}\S{1,60})?"
)
# Of pip; the line ends with the version.
OPEN_REQUIREMENT = lazy_pattern(r"Requirement already satisfied: (?!.*\(\d[^()]{0,60}\)$)")


def join_rests(raw: list[str]) -> list[str]:
    """The rows of a list of packages that a narrow window wrapped between two cells.

    A terminal wraps within words as well: there, more than two lines have the complete width.
    """
    width = max((len(line) for line in raw if " " in line.strip()), default=0)
    if sum(len(line) == width for line in raw) > MAX_EQUAL_WIDTHS:
        return raw
    joined: list[str] = []
    parts = 0  # that the last row was joined from
    for line in raw:
        before, text = joined[-1] if joined and parts < MAX_RESTS else "", line.strip()
        is_rest = bool(PACKAGE_ROW.match(before) and REST_OF_ROW.fullmatch(text))
        if is_rest or (text.startswith(("/", "(", "in ")) and OPEN_REQUIREMENT.match(before)):
            joined[-1] = f"{before.rstrip()} {text}"
            parts += 1
        else:
            joined.append(line)
            parts = 0
    return joined


def join_wrapped_json(raw: list[str]) -> list[str]:
    """The line of a text that was one line of JSON. JSON in lines of its own is read line by line."""
    text = "\n".join(raw).strip()
    if text[:1] not in ("{", "[") or text[-1] not in "}]" or len(text) > MAX_JSON or any(map(MEMBER.match, raw)):
        return raw
    lengths = {len(line) for line in raw[:-1] if line.strip()}
    for separator in ("", " ") if len(lengths) == 1 else (" ", ""):
        line = separator.join(raw).strip()
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            continue
        return [line]
    return raw
