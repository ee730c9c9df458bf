"""The names that the cells of a notebook use before a later cell defines them; the code is parsed only."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Block
from envdoctor.manifests.notebook_cells import python_statement

_OF_KERNEL = frozenset({"get_ipython", "display", "In", "Out", "exit", "quit", "_", "__", "___", "__file__"})
# What defines names that the code does not have.
_DEFINES = lazy_pattern(
    r"^\s*%(?:run|load|pylab|store|cpaste|paste|autocall)|^\s*from\s+[\w.]+\s+import\s+\*|\bexec\(|\bglobals\(\)"
    r"|\brun_line_magic|\brun_cell|\binject\(|%%(?:R|cython|js)",
    re.MULTILINE,
)
_OF_READER = frozenset({"your", "my", "path", "some", "xxx", "todo", "placeholder"})
# Names that Databricks and Spark define.
_OF_SERVICES = frozenset({"spark", "sc", "dbutils", "sqlContext", "displayHTML", "table", "sql"})
_INJECTS = lazy_pattern(
    r"\b(?:locals|vars|setattr)\(|\bbuiltins\b|init_session|%%(?:bash|sh|script|writefile|sql|capture)"
)
_OTHER_CELL = lazy_pattern(r"%%(?!time\b|timeit\b|capture\b|memit\b|prun\b)\w|%%!")
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class Cell(NamedTuple):
    """A code cell with Python: its number, its lines in the file, and its code."""

    number: int
    lines: tuple[int, ...]
    text: str
    tree: ast.Module | None  # None: this Python cannot parse it

    def line(self, node: ast.AST) -> int:
        """The line of a node in the file."""
        return self.lines[min(getattr(node, "lineno", 1), len(self.lines)) - 1]


class EarlyUse(NamedTuple):
    """A name, the cell that uses it, and the later one that defines it; 0 if no cell does."""

    name: str
    cell: int
    line: int
    defining: int
    defined: int
    verb: str


def python_cells(blocks: Iterable[Block]) -> list[Cell]:
    """The code cells of a notebook that contain Python, with their numbers from 1 on."""
    return [
        _cell(number, block) for number, block in enumerate(blocks, 1)
        if block.language == "python" and block.lines and not _OTHER_CELL.match(block.lines[0][1].lstrip())
    ]  # fmt: skip


def _cell(number: int, block: Block) -> Cell:
    text = "\n".join(line for _, line in block.lines)
    code = "\n".join(map(python_statement, text.split("\n")))
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    return Cell(number, tuple(line for line, _ in block.lines), text, tree)


def early_use(cells: Sequence[Cell]) -> EarlyUse | None:
    """The first name that a cell uses, and that only a later cell imports or defines, or none."""
    bound = {*dir(builtins), *_OF_KERNEL}
    for index, cell in enumerate(cells):
        if cell.tree is None or _DEFINES.search(cell.text):
            return None  # what it defines is not known
        for node in cell.tree.body:
            stored = {*_stored(node)}
            for name in () if isinstance(node, ast.Try | _Scope) else _loaded(node):
                if name.id in bound | stored:
                    continue
                if found := _definition(cells[index + 1 :], name.id):
                    later, line, verb = found
                    return EarlyUse(name.id, cell.number, cell.line(name), later.number, line, verb)
                if _is_undefined(name, node, cells):
                    return EarlyUse(name.id, cell.number, cell.line(name), 0, 0, "")
            bound |= stored
    return None


def _is_undefined(name: ast.Name, node: ast.stmt, cells: Sequence[Cell]) -> bool:
    """Whether a statement of a cell certainly reads a name, and no cell can define it.

    What a reader is to replace is no name of the code: `YOUR_TOKEN`, `path_to_data`.
    """
    if isinstance(node, ast.If | ast.While | ast.Match) or any(
        name in ast.walk(each) for each in ast.walk(node) if isinstance(each, ast.If | ast.IfExp | ast.BoolOp)
    ):
        return False
    words = {*re.split(r"_+", name.id.lower())}
    if name.id.isupper() or words & _OF_READER or name.id in _OF_SERVICES:
        return False
    return not any(each.tree is None or _INJECTS.search(each.text) or name.id in _stored(each.tree) for each in cells)


def _definition(cells: Iterable[Cell], name: str) -> tuple[Cell, int, str] | None:
    """The first of these cells that imports a name, or defines a function or class of that name."""
    for cell in cells:
        for node in cell.tree.body if cell.tree else ():
            if isinstance(node, ast.Import | ast.ImportFrom) and name in _stored(node):
                return cell, cell.line(node), "imports"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
                return cell, cell.line(node), "defines"
    return None


def _loaded(node: ast.AST) -> Iterator[ast.Name]:
    """The names that a statement reads when it runs, without those in functions and classes."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Try | _Scope):
            yield from _loaded(child)


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that a statement can define, anywhere in it."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.alias):
            yield (each.asname or each.name).partition(".")[0]
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and each.name:
            yield each.name
