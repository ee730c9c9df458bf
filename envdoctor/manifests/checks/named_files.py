"""Checks on the files that sentences of a guide name with a command for its reader, and that the checkout lacks."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, shown_line, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, clones_another, is_ignored
from envdoctor.rules.registry import Problem, rule

CODE_SPANS = "https://spec.commonmark.org/0.31.2/#code-spans"
_PATH = lazy_pattern(
    r"(?<!`)(`{1,3})(?:\./)?(?P<path>(?:[\w.-]+/)+[\w.-]+\.(?:ya?ml|json|toml|ini|cfg|py|sh|ipynb))\1(?!`)"
)
# What a sentence commands, up to the path: `Feel free to change ...`, `Edit the paths in ...`, `see ...`.
_COMMANDS = lazy_pattern(
    r"\b(?:chang|edit|modif|updat|adjust|adapt|customi[sz]|configur|set|run|execut|launch|open|see|check|refer|look)\w*\b"
    r"[^.;:!?]{0,80}$",
    re.IGNORECASE,
)
_OTHER = lazy_pattern(
    r"\b(?:renam|remov|deprecat|replac|former|previous|earlier|old|no longer|instead of|not yet|coming|todo|creat|sav"
    r"|writ|generat|output|produc|e\.g\.|for example|such as|like|inside the|in your|submodule)",
    re.IGNORECASE,
)
_SAME_FOLDER = 0.7  # likeness of `config` and `configs`
_SAME_NAME = 0.85


@rule("RUN259", kind="guide", severity="warning", cause="dependency-pin-violated", url=CODE_SPANS)
def sentence_names_a_file_with_another_spelling(context: GuideContext) -> Iterator[Problem]:
    """A sentence commands to change, run or open a file that is not in the checkout, which has one of a like path.

    Only in a clone of git. The path of the file that is there differs in one part, and the guide does not name it.
    """
    checkout, guide = context.guide.checkout, context.guide
    if checkout is None or not checkout.is_clone or not checkout.paths or clones_another(guide, checkout):
        return
    text = "\n".join(guide.lines)
    seen: set[str] = set()
    for number, path in _named(context):
        nearest = "" if path in seen or _is_there(checkout, path) else _nearest(checkout, path)
        seen.add(path)
        if not nearest or nearest in text or is_ignored(checkout, path):
            continue
        if can_come_from_elsewhere(guide, checkout, path, {number}):
            continue
        yield Problem(
            "warning",
            f"{path} is not in the checkout; {nearest} is",
            (
                guide_evidence(context, "text", shown_line(guide.lines[number - 1]), number),
                table_evidence("files", f"no {path}", "the checkout"),
            ),
            f"Name {nearest}, if it is the file that is meant.",
            line=number,
        )


def _named(context: GuideContext) -> Iterator[tuple[int, str]]:
    """The paths in code spans after a word that commands something, with their lines."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, line in enumerate(context.guide.lines, 1):
        for match in _PATH.finditer(line) if number not in code and not _OTHER.search(line) else ():
            if _COMMANDS.search(line[: match.start()]):
                yield number, posixpath.normpath(match["path"])


def _is_there(checkout: Checkout, path: str) -> bool:
    return path in checkout.paths or any(each.endswith(f"/{path}") for each in checkout.paths)


def _nearest(checkout: Checkout, path: str) -> str:
    """The only file whose path differs in one part, and there in few letters."""
    parts = path.split("/")
    found = []
    for other in checkout.paths:
        others = other.split("/")
        differing = [each for each in zip(parts, others, strict=False) if each[0] != each[1]]
        if (
            len(parts) != len(others)
            or len(differing) != 1
            or posixpath.splitext(other)[1] != posixpath.splitext(path)[1]
        ):
            continue
        least = _SAME_NAME if parts[-1] != others[-1] else _SAME_FOLDER
        if difflib.SequenceMatcher(None, *differing[0]).ratio() >= least and not _differ_by_number(*differing[0]):
            found.append(other)
    return found[0] if len(found) == 1 else ""


def _differ_by_number(name: str, other: str) -> bool:
    return re.findall(r"\d+", name) != re.findall(r"\d+", other)
