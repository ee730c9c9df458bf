"""The files that code reads, by the literals in calls of known functions: that of a cell of a notebook, or a call."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.notebook_names import Cell

_READS = lazy_pattern(
    r"(?:np|numpy)\.(?:load|loadtxt|genfromtxt)|(?:pd|pandas)\.read_(?:csv|json|excel|parquet|pickle|table|feather)"
    r"|torch\.load|joblib\.load|(?:PIL\.)?Image\.open|open|cv2\.imread|plt\.imread|(?:sf|soundfile)\.read|librosa\.load"
    r"|torchaudio\.load|OmegaConf\.load|torch\.jit\.load|(?:scipy\.io|sio)\.loadmat"
)
_LOADS = lazy_pattern(r"(?:datasets\.)?load_dataset")  # with data_files
_FORMATS = frozenset({"json", "csv", "parquet", "text", "pandas"})
_FILE = lazy_pattern(r"(?!/|~|\.\.)(?:[\w. +@()-]+/)*[\w +@()-][\w. +@()-]*\.[A-Za-z]\w{1,8}")
_MODE = lazy_pattern(r"r[bt]?")


class FileRead(NamedTuple):
    """A file that a cell reads, and how often the cells have its name where they read it or define its path."""

    path: str
    line: int
    mentions: int = 1


def read_files(cells: Sequence[Cell]) -> list[FileRead]:
    """The files with a relative path that the cells read outside of functions and of a `try`."""
    values = _constants(cells)
    found: dict[str, FileRead] = {}
    for cell in cells:
        for node in cell.tree.body if cell.tree else ():
            for call in _calls(node):
                path, uses = read_path(call, values)
                if path and _FILE.fullmatch(path):
                    before = found.get(path, FileRead(path, cell.line(call), 0))
                    found[path] = before._replace(mentions=before.mentions + uses)
    return [
        each._replace(mentions=each.mentions + sum(value == each.path for value in values.values()))
        for each in found.values()
    ]


def _constants(cells: Sequence[Cell]) -> Mapping[str, str]:
    """The names that one statement alone assigns, a text; `.NAME` is a field of a class."""
    values: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for cell in cells:
        for node in ast.walk(cell.tree) if cell.tree else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                counts[node.id] += 1
        for statement in cell.tree.body if cell.tree else ():
            prefix, parts = (".", statement.body) if isinstance(statement, ast.ClassDef) else ("", [statement])
            for each in parts:
                match each:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                        values[f"{prefix}{name}"] = value
    return {name: value for name, value in values.items() if counts[name.lstrip(".")] == 1}


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that a statement runs, without those under a condition, in functions and in a `try`."""
    if isinstance(node, ast.Call):
        yield node
    if isinstance(
        node, ast.If | ast.While | ast.Try | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    ):
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)


def read_path(call: ast.Call, values: Mapping[str, str]) -> tuple[str, int]:
    """The path that a call reads, and how often the call itself has it; empty if it reads no known one."""
    argument = read_argument(call)
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value, 1
    if isinstance(argument, ast.Attribute) and isinstance(argument.value, ast.Name):
        return values.get(f".{argument.attr}", ""), 0
    return (values.get(argument.id, ""), 0) if isinstance(argument, ast.Name) else ("", 0)


def read_argument(call: ast.Call) -> ast.expr | None:
    """The expression of the path that a call reads; None if it reads none."""
    function = ast.unparse(call.func)
    if _READS.fullmatch(function) and call.args:
        return call.args[0] if function != "open" or _is_for_reading(call) else None
    if _LOADS.fullmatch(function) and call.args and isinstance(call.args[0], ast.Constant):
        is_local = call.args[0].value in _FORMATS
        return next((each.value for each in call.keywords if each.arg == "data_files" and is_local), None)
    return None


def _is_for_reading(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    return all(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and _MODE.fullmatch(each.value)
        for each in modes
    )
