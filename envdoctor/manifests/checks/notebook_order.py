"""Checks on the order of the cells of a notebook, and on the files that they read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, shown_line, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import is_ignored
from envdoctor.manifests.notebook_names import early_use, python_cells
from envdoctor.manifests.notebook_reads import FileRead, read_files
from envdoctor.manifests.program_launches import NOTEBOOK
from envdoctor.rules.registry import Problem, rule

NAMES = "https://docs.python.org/3/reference/executionmodel.html#resolution-of-names"
OPEN = "https://docs.python.org/3/library/functions.html#open"
# What can bring files that no cell names: downloads, archives, uploads, another directory, a mounted drive.
_BRINGS = lazy_pattern(
    r"\b(?:wget|curl|gdown|kaggle\w*|aria2c|unzip|tar|git\s+clone|git\s+lfs|rclone|gsutil|aws\s+s3|cp|mv)\s"
    r"|urlretrieve|extractall|unpack_archive|snapshot_download|hf_hub_download|kagglehub|files\.upload|drive\.mount"
    r"|os\.chdir|%cd\b|cached_download|requests\.get|urlopen|download"
)
_MAX_FILES = 3  # of a notebook, that a finding names


@rule("RUN256", kind="guide", severity="warning", cause="dependency-pin-violated", url=NAMES)
def cell_uses_what_a_later_cell_defines(context: GuideContext) -> Iterator[Problem]:
    """A cell of a notebook uses a name that only a later cell imports or defines: run from the top, it stops.

    Names in functions and in a `try` are left out, and notebooks in which a magic or `import *` can define names.
    Also reported: a name that no cell imports or defines, outside of conditions.
    """
    if not context.guide.name.endswith(NOTEBOOK):
        return
    if found := early_use(python_cells(context.guide.blocks)):
        lines = context.guide.lines
        if not found.defining:
            yield Problem(
                "warning",
                f"code cell {found.cell} uses {found.name}, which no cell imports or defines",
                (guide_evidence(context, "use", shown_line(lines[found.line - 1]), found.line),),
                f"Import or define {found.name} before code cell {found.cell}.",
                line=found.line,
            )
            return
        yield Problem(
            "warning",
            f"code cell {found.cell} uses {found.name}, which only code cell {found.defining} {found.verb}: in a new "
            "kernel, the notebook stops here",
            (
                guide_evidence(context, "use", shown_line(lines[found.line - 1]), found.line),
                guide_evidence(context, "definition", shown_line(lines[found.defined - 1]), found.defined),
            ),
            f"Move what {found.verb} {found.name} before code cell {found.cell}.",
            line=found.line,
        )


@rule("RUN257", kind="guide", severity="warning", cause="dependency-pin-violated", url=OPEN)
def cell_reads_a_file_that_nothing_makes(context: GuideContext) -> Iterator[Problem]:
    """A cell of a notebook reads a file that its checkout does not have, and that no cell makes or downloads.

    Only in a clone of git whose texts and programs do not name the file either.
    """
    checkout = context.guide.checkout
    if not context.guide.name.endswith(NOTEBOOK) or checkout is None or not checkout.is_clone or not checkout.paths:
        return
    cells = python_cells(context.guide.blocks)
    text = "\n".join(line for block in context.guide.blocks for _, line in block.lines)
    if _BRINGS.search(text):
        return
    absent = [each for each in read_files(cells) if not _is_there(checkout, each.path)]
    absent = [each for each in absent if not _is_explained(context, checkout, each, text)]
    if not absent:
        return
    first, *others = absent
    more = f" (also {', '.join(each.path for each in others[:_MAX_FILES])})" if others else ""
    yield Problem(
        "warning",
        f"{first.path} is not in the checkout, and no cell makes or downloads it{more}",
        (
            guide_evidence(context, "code", shown_line(context.guide.lines[first.line - 1]), first.line),
            table_evidence("files", f"no {posixpath.normpath(first.path)}", "the checkout"),
        ),
        "Add the file, or a cell that downloads it.",
        line=first.line,
    )


def _is_there(checkout: Checkout, path: str) -> bool:
    """Whether the checkout has a file, or one of its name in another directory, in which the kernel can run."""
    is_here = any(exists(each / path) for each in (checkout.folder, checkout.root))
    return is_here or bool(checkout.of_name(posixpath.basename(path)))


def _is_explained(context: GuideContext, checkout: Checkout, read: FileRead, text: str) -> bool:
    """Whether something else than the reading cells names a file: a text, a program, another cell, or .gitignore."""
    name = posixpath.basename(read.path)
    prose = "\n".join(context.guide.lines)
    others = [
        each for each in checkout.paths if each.endswith((".md", ".rst", ".txt", ".py", ".sh", ".yaml", ".yml"))
    ]
    is_named = text.count(name) > read.mentions or prose.count(name) > read.mentions
    return is_named or is_ignored(checkout, read.path) or any(name in checkout.text(each) for each in sorted(others))
