"""Ranges that sentences state for a package: `1.3.8 goes with torch >=1.4, <=1.8`, `supports torch 2.1 to 2.4`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.versions import are_disjoint
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.section import distribution_name

RELATION = (
    r"(?:(?:goes|go|works?|comes?|pairs?)\s(?:only\s)?with|supports?|requires?|needs?|wants?|depends\son|expects?"
    r"|accepts?|allows?|(?:is|are)\s(?:only\s)?(?:for|compatible\swith|tested\swith|made\sfor)"
    r"|\u8981\u6c42|\u9700\u8981|\u4f9d\u8d56|puts?\s[\w. ]{1,24}\s(?:at|with|next\sto))"
)
NUMBER = r"\d{1,2}\.\d{1,3}(?:\.\d{1,3})?"
BOUND = r"[<>=~!]=?\s?\d{1,2}(?:\.\d{1,3}){0,2}"
RANGE = (
    rf"(?P<specifiers>{BOUND}(?:\s?(?:,|and|&)?\s?{BOUND}){{0,2}})"
    rf"|(?P<first>{NUMBER})\s?(?:to|-|\u2013|through|until|up\sto)\s?(?P<last>{NUMBER})"
    rf"|(?:only\s)?up\sto\s(?P<most>{NUMBER})|(?P<newest>{NUMBER})\s(?:or|and)\s(?:older|lower|below|earlier)"
)
STATEMENT = lazy_pattern(
    rf"(?i)\b{RELATION}\s?(?:only\s)?(?P<name>[a-z][a-z0-9_-]{{2,24}})\s?(?:version\s|v)?(?:{RANGE})(?![\w.]*\d)"
)
NOT_STATED = lazy_pattern(
    r"(?i)\b(?:will|would|planned|next release|main branch|not|never|no longer|if|previously)\b"
)
MAX_LINE = 600


class RangeStatement(NamedTuple):
    """The range that a sentence states for a package."""

    name: str
    allowed: SpecifierSet
    text: str


def stated_ranges(text: str) -> Iterator[RangeStatement]:
    """The ranges that the lines of a text state for known packages."""
    for line in text.split("\n"):
        for match in STATEMENT.finditer(line) if len(line) <= MAX_LINE else ():
            name = distribution_name(match["name"])
            if name in KNOWN_PACKAGES and not NOT_STATED.search(line[: match.start()].rpartition(". ")[2]):
                try:
                    yield RangeStatement(name, SpecifierSet(_specifier(match)), match[0])
                except InvalidSpecifier:
                    continue


def disjoint_ranges(text: str) -> tuple[RangeStatement, RangeStatement] | None:
    """Two statements on one package whose ranges no release satisfies."""
    found: dict[str, list[RangeStatement]] = {}
    for statement in stated_ranges(text):
        for other in found.setdefault(statement.name, []):
            if are_disjoint(str(other.allowed), str(statement.allowed)):
                return other, statement
        found[statement.name].append(statement)
    return None


def _specifier(match: re.Match[str]) -> str:
    """The range as specifiers. The patch releases of its last minor release belong to it."""
    if match["specifiers"]:
        parts = re.findall(r"([<>=~!]=?)\s?(\d{1,2}(?:\.\d{1,3}){0,2})", match["specifiers"])
        return ",".join(
            f"<{_next_minor(version)}"
            if operator == "<=" and version.count(".") == 1
            else _operator(operator) + version
            for operator, version in parts
        )
    last = match["last"] or match["most"] or match["newest"]
    upper = f"<{_next_minor(last)}" if last.count(".") == 1 else f"<={last}"
    return f">={match['first']},{upper}" if match["first"] else upper


def _operator(operator: str) -> str:
    return "==" if operator == "=" else operator


def _next_minor(version: str) -> str:
    major, _, minor = version.partition(".")
    return f"{major}.{int(minor) + 1}"
