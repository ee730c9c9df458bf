"""The imports of the code in a guide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.manifests.actions import Run
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.markdown import Line
from envdoctor.resolution.index_facts import CodeImport

MAX_IMPORTS = 40  # that are compared with the wheels
_IMPORT = re.compile(
    r"(?:>>> )?(?:from ([A-Za-z_][\w.]*) import \(?([\w, ]+)\)?|import ([A-Za-z_][\w.]*)(?: as \w+)?)\s*"
)


def imports_of_guide(context: GuideContext) -> Iterator[CodeImport]:
    """The imports of Python code, in order and without those in a `try`, and the modules of `python -m`."""
    for block in context.guide.python_blocks:
        yield from _of_code(block)
    for run in context.actions(Run):
        if run.module:
            yield CodeImport(run.line, run.module)
        for part in run.code.split(";"):
            yield from _of_code(((run.line, part.strip()),))


def _of_code(lines: tuple[Line, ...]) -> Iterator[CodeImport]:
    previous = ""
    for number, text in lines:
        match = _IMPORT.fullmatch(text.partition("#")[0].rstrip())
        if match and not previous.startswith("try"):
            names = [name.split(" as ")[0].strip() for name in (match[2] or "").split(",")]
            yield from (CodeImport(number, match[1] or match[3], name) for name in names if name or match[3])
        previous = text.strip() or previous
