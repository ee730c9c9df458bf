"""Breaks that only some programs meet: a note, where no file of the checkout has a word of such a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.rules import RULES
from envdoctor.rules.known_breaks import known_breaks

_FILES = (".py", ".ipynb", ".sh", ".md", ".rst", ".txt", ".toml", ".yaml", ".yml", ".json", ".slurm", "file")
_LISTS = lazy_pattern(
    r"(?:^|/)(?:[\w.-]*require[\w.-]*\.txt|pyproject\.toml|environment[\w.-]*\.ya?ml|Pipfile)$|lock"
)
_CODE = (".py", ".ipynb")
_MAX_FILES = 1_000


def lower_unused(checkout: Checkout | None, findings: Sequence[Finding]) -> list[Finding]:
    """The findings; those on breaks that the programs of the checkout do not meet are notes."""
    return [_lowered(checkout, each) if checkout else each for each in findings]


def _lowered(checkout: Checkout, finding: Finding) -> Finding:
    rules = [finding.id, *(each.fact for each in finding.evidence)]
    words = [words for each in rules if (words := _words().get(each))]
    if finding.status not in ("error", "warning", "unknown") or len(words) != 1 or _uses(checkout, words[0]):
        return finding
    if any(each in RULES and each not in _words() for each in rules[1:]):
        return finding  # it names a further break, which all programs meet
    message = f"{finding.message} (no program of the checkout uses it)"
    return replace(finding, status="info", message=message)


@cache
def _words() -> dict[str, str]:
    return {row.id: row.uses for row in known_breaks() if row.uses}


def _uses(checkout: Checkout, words: str) -> bool:
    """Whether a file has one of the words; also where not all files are read, or none is code."""
    paths = [each for each in checkout.paths if each.endswith(_FILES) and not _LISTS.search(each)]
    if not checkout.is_clone or not any(each.endswith(_CODE) for each in paths) or len(paths) > _MAX_FILES:
        return True
    return _has_word(words, map(checkout.text, paths))


def _has_word(words: str, texts: Iterable[str]) -> bool:
    return any(re.search(words, text) for text in texts)
