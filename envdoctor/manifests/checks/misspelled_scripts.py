"""Scripts that inline code in the text of a guide starts, and that the checkout has under almost the same name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, clones_another, is_ignored
from envdoctor.rules.registry import Problem

# `python data_acquisition.py --all` in a sentence
_START = lazy_pattern(r"(?<!`)`\$?\s*((?:python3?(?:\s+-u)?|bash|sh)\s+([\w./-]+\.(?:py|sh))(?:\s[^`\n]*)?)`(?!`)")
# `bash scripts/train_7b`, without the suffix of the script
_BARE = lazy_pattern(r"\s*\$?\s*(?:(?:ba|z)?sh|python3?(?:\s+-u)?)\s+(?P<script>(?:\./)?\w[\w./-]*)(?=[\s`&|;]|$)")
_SUFFIXES = (".sh", ".py")
OF_THE_PAST = lazy_pattern(
    r"\b(?:renam|remov|deprecat|replac|former|previous|earlier|old|no longer|instead of|not yet|coming|todo)",
    re.IGNORECASE,
)
_MIN_LETTERS = 5  # of a word: short ones differ by a letter on purpose


def misspelled_scripts(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The scripts in sentences that no directory of the checkout has, where one file has a name that is alike.

    Not where the guide names that file too, or clones another project.
    """
    yield from _without_suffix(context, checkout)
    text = "\n".join(context.guide.lines)
    starts = list(_starts(context))
    if not starts or clones_another(context.guide, checkout):
        return
    lines: dict[str, tuple[int, str]] = {}
    for number, command, script in starts:
        lines.setdefault(script, (number, command))
    for script, (number, command) in lines.items():
        nearest = _nearest(checkout, script)
        if not nearest or posixpath.basename(nearest) in text or is_ignored(checkout, script):
            continue
        if can_come_from_elsewhere(context.guide, checkout, script, {each[0] for each in starts}):
            continue
        yield Problem(
            "warning",
            f"{script} is not in the checkout; {nearest} is",
            (
                guide_evidence(context, "command", command, number),
                table_evidence("files", f"no {posixpath.basename(script)}", "the checkout"),
            ),
            f"Start {nearest}, if it is the script that is meant.",
            line=number,
        )


def _without_suffix(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """The scripts that commands and inline code start by their path without the suffix that the checkout has."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, line in enumerate(context.guide.lines, 1):
        spans = [line] if number in code else line.split("`")[1::2]
        for match in filter(None, map(_BARE.match, spans)):
            script = posixpath.normpath(match["script"])
            file = next((script + each for each in _SUFFIXES if script + each in checkout.paths), "")
            if not file or checkout.of_name(posixpath.basename(script)):
                continue
            yield Problem(
                "error" if number in code else "warning",
                f"{script} is not in the checkout; {file} is",
                (
                    guide_evidence(context, "command", match[0].strip(), number),
                    table_evidence("files", f"no {script}", "the checkout"),
                ),
                f"Start {file}, if it is the script that is meant.",
                line=number,
            )


def _starts(context: GuideContext) -> Iterator[tuple[int, str, str]]:
    """The line, the command and the script of each start in a sentence."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, line in enumerate(context.guide.lines, 1):
        if number not in code and not OF_THE_PAST.search(line):
            yield from ((number, match[1].strip(), posixpath.normpath(match[2])) for match in _START.finditer(line))


def _nearest(checkout: Checkout, script: str) -> str:
    """The only file with almost the name of an absent script, in its folder if the path has one."""
    folder, _, name = script.rpartition("/")
    stem, suffix = posixpath.splitext(name)
    if checkout.of_name(name) or script.startswith(("/", "..")):
        return ""
    files = (each for each in checkout.paths if each.endswith(suffix) and each.startswith(folder and f"{folder}/"))
    alike = [each for each in files if is_alike(stem, posixpath.splitext(posixpath.basename(each))[0])]
    return alike[0] if len(alike) == 1 else ""


def is_alike(stem: str, other: str) -> bool:
    """Whether two names have the same words, one of them with a letter that is missing, wrong or misplaced."""
    words, others = (re.split(r"[_-]", each.lower()) for each in (stem, other))
    if "".join(words) == "".join(others):
        return True
    differing = [each for each in zip(words, others, strict=False) if each[0] != each[1]]
    return len(words) == len(others) and len(differing) == 1 and _differ_by_letter(*differing[0])


def _differ_by_letter(word: str, other: str) -> bool:
    start = len(posixpath.commonprefix((word, other)))
    rest, end = word[start:], other[start:]
    is_swapped = rest[1::-1] == end[:2] and rest[2:] == end[2:]
    is_near = is_swapped or rest[1:] == end or rest == end[1:] or rest[1:] == end[1:]
    return is_near and min(len(word), len(other)) >= _MIN_LETTERS and not re.search(r"\d", rest[:1] + end[:1])
