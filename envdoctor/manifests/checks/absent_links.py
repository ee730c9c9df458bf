"""Checks on the links of a guide to files of its checkout: scripts, notebooks, configurations and pages."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, shown_line, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.rules.registry import Problem, rule

LINKS = "https://spec.commonmark.org/0.31.2/#links"
_LINK = lazy_pattern(
    r"(?<!!)\[(?P<text>[^\]\n]*)\]\(\s*<?(?P<path>(?:\./)?[\w.-][\w./%+-]*\.(?:py|sh|ipynb|ya?ml|json|toml|md))"
    r"(?:#[\w.-]*)?>?\s*\)"
)
# What is not there on purpose, or is made later.
_OTHER = lazy_pattern(
    r"<!--|\b(?:renam|remov|deleted|deprecat|former|no longer|not yet|coming|todo|wip|soon|will be|to be|creat|sav"
    r"|generat|output|produc)",
    re.IGNORECASE,
)
_USUAL = frozenset({"README.md", "index.md", "__init__.py"})
_LIKENESS = 0.8


class Link(NamedTuple):
    """A link to a file, relative to the root of the checkout, and its line."""

    line: int
    path: str


@rule("RUN285", kind="guide", severity=("warning", "info"), cause="dependency-pin-violated", url=LINKS)
def link_leads_to_no_file(context: GuideContext) -> Iterator[Problem]:
    """A guide links a script, a notebook, a configuration or a page that its checkout does not have.

    Only in a clone of git. Files that a step makes, clones or downloads are left out, and so are those that git
    ignores, and pages of a folder of documentation, whose site can have other paths. A note if the file is a page
    and no file has its name.
    """
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    links = list(_links(context, checkout))
    lines = {each.line for each in links}
    for path, number in {each.path: each.line for each in reversed(links)}.items():
        if is_ignored(checkout, path) or can_come_from_elsewhere(context.guide, checkout, path, lines):
            continue
        nearest = _nearest(checkout, path)
        yield Problem(
            "info" if path.endswith(".md") and not nearest else "warning",
            f"the guide links {path}, which is not in the checkout" + (f"; {nearest} is" if nearest else ""),
            (
                guide_evidence(context, "link", shown_line(context.guide.lines[number - 1]), number),
                table_evidence("files", f"no {path}", "the checkout"),
            ),
            f"Link {nearest}, if it is the file that is meant."
            if nearest
            else "Link a file of the checkout, or use a commit that has it.",
            line=number,
        )


def _links(context: GuideContext, checkout: Checkout) -> Iterator[Link]:
    """The links in sentences whose file neither the root nor a folder with a guide of this name has.

    The directory in which the commands of a guide run can be another one than that of the guide.
    """
    guides = checkout.of_name(posixpath.basename(context.guide.name))
    folder = checkout.relative(checkout.folder)
    folders = {folder, "", *map(posixpath.dirname, guides)}
    is_at_root = folders == {""} or posixpath.basename(context.guide.name) in checkout.paths
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    for number, line in enumerate(context.guide.lines, 1):
        for match in _LINK.finditer(line) if number not in code else ():
            if _OTHER.search(_sentence(line, match)):
                continue
            written = posixpath.normpath(unquote(match["path"]))
            is_of_site = not is_at_root and written.endswith(".md")
            if not is_of_site and not any(exists(checkout.root / each / written) for each in folders):
                yield Link(number, posixpath.normpath(posixpath.join(folder, written)))


def _sentence(line: str, link: re.Match[str]) -> str:
    """The sentence of a line that has a link."""
    before, after = line[: link.start()], line[link.end() :]
    return before[before.rfind(". ") + 1 :] + after.partition(". ")[0]


def _nearest(checkout: Checkout, path: str) -> str:
    """The only file of the name, or one whose path is almost the same."""
    folder, _, name = path.rpartition("/")
    same = checkout.of_name(name)
    if same and name not in _USUAL:
        return same[0] if len(same) == 1 else ""
    suffix = posixpath.splitext(name)[1]
    names = [each for each in sorted(checkout.paths) if each.endswith(suffix) and posixpath.dirname(each) == folder]
    return next(iter(difflib.get_close_matches(path, names, n=1, cutoff=_LIKENESS)), "")
