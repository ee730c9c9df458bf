"""What people and pages do to a report before it is pasted: wrap, join, quote, prefix, colour and cut it."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from envdoctor.core.record import Record
from envdoctor.core.records import Fact
from envdoctor.reports import Report

Change = Callable[[str], str]


def each_line(change: Callable[[int, str], str]) -> Change:
    """A change of each line, by its number and its text."""
    return lambda text: "\n".join(change(number, line) for number, line in enumerate(text.split("\n")))


def wrap_at_words(columns: int) -> Change:
    """As a mail program: whole words, no indentation of the rest."""
    wrapper = textwrap.TextWrapper(
        columns, break_long_words=False, break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True
    )
    return each_line(lambda _, line: "\n".join(wrapper.wrap(line)))


def wrap_at_characters(columns: int) -> Change:
    """As a terminal whose text was copied with its line ends."""
    return each_line(
        lambda _, line: "\n".join(line[start : start + columns] for start in range(0, len(line) or 1, columns))
    )


def join_lines(text: str) -> str:
    """As a form that has one line, or a page that treats line ends as spaces."""
    return " ".join(line.strip() for line in text.split("\n") if line.strip())


def prefix(text: str) -> Change:
    """As a log or a quote, which puts the same text before each line."""
    return each_line(lambda _, line: text + line)


def with_smart_quotes(text: str) -> str:
    """As a word processor or a blog."""
    text = re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", text)
    return re.sub(r"'([^'\n]*)'", "\u2018\\1\u2019", text).replace("...", "\u2026").replace("--", "\u2014")


def with_spaces_as_tabs(text: str) -> str:
    """As a table that was copied from a page."""
    return re.sub(r"(?<=\S) {2,}(?=\S)", "\t", text)


def coloured(text: str) -> str:
    """With the escape sequences of a terminal around each word before a separator."""
    return re.sub(r"([A-Za-z0-9_.+]+)(?=[ :=])", "\x1b[1;32m\\1\x1b[0m", text)


def one_cell_a_line(text: str) -> str:
    """As a page that shows each cell of a row in a line of its own. Tables drawn with `|` have no such cells."""
    cells = re.compile(r"(?<=\S)(?<![A-Z][a-z]{2})(?:\t| {2,})(?=[^\s:|])")
    change = each_line(lambda _, line: line if line.lstrip()[:1] in ("|", "+") else cells.sub("\n", line))
    return change(text)


REVERSIBLE: dict[str, Change] = {
    "wrapped at 60 characters": wrap_at_characters(60),
    "wrapped at 80 characters": wrap_at_characters(80),
    "wrapped at 100 characters": wrap_at_characters(100),
    "wrapped at words, 60 columns": wrap_at_words(60),
    "wrapped at words, 80 columns": wrap_at_words(80),
    "wrapped at words, 100 columns": wrap_at_words(100),
    "one line": join_lines,
    "quoted with >": prefix("> "),
    "quoted twice": prefix(">> "),
    "quoted with |": prefix("| "),
    "docker compose": prefix("vllm-1  | "),
    "Kubernetes": prefix("2025-10-30T21:54:45.622419515Z "),
    "stern": prefix("trainer-0 trainer "),
    "logging": prefix("2025-10-30 21:54:45,628 - INFO - "),
    "vLLM": prefix("INFO 06-12 17:10:51 [collect_env.py:244] "),
    "syslog": prefix("Oct 30 21:54:45 gpu01 serve.sh[4123]: "),
    "ranks": prefix("[rank0]: "),
    "clock": prefix("[21:54:45] "),
    "indented": prefix("        "),
    "diff": prefix("+"),
    "tabs as spaces": lambda text: text.expandtabs(8),
    "spaces as tabs": with_spaces_as_tabs,
    "entities": lambda text: html.escape(text).replace("  ", "&nbsp; "),
    "smart quotes": with_smart_quotes,
    "colours": coloured,
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "trailing spaces": each_line(lambda _, line: f"{line:<120}"),
    "Markdown breaks": each_line(lambda _, line: line + "  \\"),
    "code": lambda text: f"Here it is:\n\n```console\n{text}\n```\n",
    "cells": one_cell_a_line,
}


def lines_between(start: float, end: float) -> Change:
    """The lines between two shares of a text, as somebody who scrolls too little copies them."""

    def cut(text: str) -> str:
        lines = text.split("\n")
        return "\n".join(lines[round(len(lines) * start) : round(len(lines) * end)])

    return cut


CUT: dict[str, Change] = {
    "first half": lines_between(0, 1 / 2),
    "second half": lines_between(1 / 2, 1),
    "first third": lines_between(0, 1 / 3),
    "last third": lines_between(2 / 3, 1),
    "middle": lines_between(1 / 4, 3 / 4),
    "without the middle": lambda text: "\n".join(
        (lines_between(0, 1 / 3)(text), "...", lines_between(2 / 3, 1)(text))
    ),
}
# Cut within words: what remains of a value can look like another value.
CUT_WITHIN_LINES: dict[str, Change] = {
    "first half of the characters": lambda text: text[: len(text) // 2],
    "second half of the characters": lambda text: text[len(text) // 2 :],
    "without a fifth": lambda text: text[: len(text) * 2 // 5] + text[len(text) * 3 // 5 :],
    "right side": each_line(lambda _, line: line[:40]),
}


def known_facts(report: Report) -> dict[str, Any]:
    """Every known value of a report by its path, with one path for each package and each field of a GPU."""
    return dict(_facts(report.machine, "machine")) | dict(_facts(report.stack, "stack"))


def _facts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Fact):
        if value.state == "known" and "on PyPI" not in value.note:  # derived from the version
            yield from _facts(value.value, path)
    elif members := _members(value):
        for name, each in members:
            if name not in NO_FACTS:
                yield from _facts(each, f"{path}.{name}")
    elif value not in (None, "", (), 0) or isinstance(value, bool):
        yield path, value


def _members(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Record):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [(str(key), each) for key, each in value.items()]
    if isinstance(value, tuple) and value and isinstance(value[0], Record):
        return [(str(number), each) for number, each in enumerate(value)]
    return []


def wrong_facts(text: str, original: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The facts that the original text does not have: not of another GPU, not with more detail, not unread."""
    return {path: value for path, value in found.items() if not _is_of(text, original, path, value)}


def _is_of(text: str, original: dict[str, Any], path: str, value: Any) -> bool:
    pattern = re.compile(re.sub(r"\\\.\d+", r"[.]\\d+", re.escape(path)) + "$")
    values = [each for other, each in original.items() if other == path or pattern.match(other)]
    if not values or (path.endswith(SECOND_SOURCES) and value not in values):
        return isinstance(value, str) and re.sub(r"[-_.]", "", value) in re.sub(r"[-_.]", "", text.lower())
    return any(
        value == each or (isinstance(value, str) and (_has_detail(str(each), value) or _has_detail(value, str(each))))
        for each in values
    )


def _has_detail(text: str, part: str) -> bool:
    """Whether a text is a part with more detail: `NVIDIA A100-SXM4-80GB` of `A100`, `2.7.1+cu128` of `2.7.1`."""
    words, of_part = (re.findall(r"[a-z0-9]+(?:\.[a-z0-9]+)*", each.lower()) for each in (text, part))
    whole = text.lower().startswith(part.lower()) and text[len(part) : len(part) + 1] in (".", "+")
    return whole or (bool(of_part) and part[0].isalpha() and set(of_part) <= set(words))


# Other lines of a report contain these as well, with the values of another Python: of its build, of a path.
SECOND_SOURCES = ("system.glibc", "stack.python_version")
# Not facts of the text, or derived from another one.
NO_FACTS = frozenset(
    {"schema", "origin", "source", "index", "requested", "uses", "location", "compute_capability", "wsl"}
)
