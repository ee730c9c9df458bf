"""The Python version that the code of a file needs: for its syntax, and for what loading it evaluates."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.knowledge.standard_library import find_name, later_names
from envdoctor.manifests.import_statements import import_statements

_BUILTIN = frozenset({"list", "dict", "tuple", "set", "frozenset", "type"})
_TYPES = _BUILTIN | {"int", "str", "float", "bool", "bytes", "complex", "object"}
_OF_DATACLASS = frozenset({"slots", "kw_only", "match_args"})
_OLDEST = "3.7"  # older ones are not compared
_MAX_CODE = 60
# What's New of each version: PEP 585 (3.9), PEP 604 and 634 (3.10), PEP 654 (3.11), PEP 695 (3.12), 2026-11-29.
_UNION, _GENERIC, _MATCH, _GROUPS, _PARAMETERS = "3.10", "3.9", "3.10", "3.11", "3.12"


class PythonNeed(NamedTuple):
    """The version that a line needs, and what for."""

    version: str
    line: int
    reason: str


def python_needs(text: str) -> tuple[PythonNeed, ...]:
    """What a file needs of its Python, in the order of the lines; none for a file that does not parse.

    Annotations are evaluated when a function or a class at the top level is defined, unless the file imports
    annotations from __future__. What stands under a condition or in a `try` is left out.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found = [*_of_syntax(tree), *_of_imports(tree)]
    is_evaluated = not any(
        isinstance(each, ast.ImportFrom) and each.module == "__future__" and _imports(each, "annotations")
        for each in tree.body
    )
    found += _of_definitions(tree.body, is_evaluated=is_evaluated)
    return tuple(sorted(found, key=lambda each: each.line))


def _imports(node: ast.ImportFrom, name: str) -> bool:
    return any(each.name == name for each in node.names)


def _of_syntax(tree: ast.Module) -> Iterator[PythonNeed]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            yield PythonNeed(_MATCH, node.lineno, "a match statement")
        elif isinstance(node, ast.TryStar):
            yield PythonNeed(_GROUPS, node.lineno, "except*")
        elif getattr(node, "type_params", None):
            yield PythonNeed(_PARAMETERS, getattr(node, "lineno", 1), "type parameters")


def _of_imports(tree: ast.Module) -> Iterator[PythonNeed]:
    later = later_names(_OLDEST)
    for each in import_statements(tree):
        if not each.level and not each.is_of_script and (found := find_name(later, each.module, each.name)):
            yield PythonNeed(found[1].version, each.line, f"import of {found[0]}")


def _of_definitions(body: list[ast.stmt], *, is_evaluated: bool) -> Iterator[PythonNeed]:
    """The needs of the statements that run whenever the file is loaded, without those of function bodies."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if is_evaluated:
                arguments = node.args
                named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                named += [each for each in (arguments.vararg, arguments.kwarg) if each]
                for each in (*(argument.annotation for argument in named), node.returns):
                    yield from _of_type(each, "in an annotation") if each else ()
            case ast.ClassDef():
                for base in node.bases:
                    yield from _of_type(base, "as a base class")
                yield from (need for each in node.decorator_list for need in _of_dataclass(each))
                yield from _of_definitions(node.body, is_evaluated=is_evaluated)
            case ast.AnnAssign() if is_evaluated:
                yield from _of_type(node.annotation, "in an annotation")
            case ast.Assign():
                yield from _of_type(node.value, "in an assignment")


def _of_dataclass(node: ast.expr) -> Iterator[PythonNeed]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("dataclass", "dataclasses.dataclass"):
        names = [each.arg for each in node.keywords if each.arg in _OF_DATACLASS]
        if names:
            yield PythonNeed(_UNION, node.lineno, f"dataclass({names[0]}=...)")


def _of_type(node: ast.expr, where: str) -> Iterator[PythonNeed]:
    """The needs of an expression for a type: `int | None`, `list[int]`, and those inside `Optional[...]`."""
    match node:
        case ast.BinOp(op=ast.BitOr()):
            operands = [*_operands(node)]
            if any(map(_is_type, operands)) and not any(map(_is_text, operands)):
                yield PythonNeed(_UNION, node.lineno, f"`{ast.unparse(node)[:_MAX_CODE]}` {where}")
            for each in operands:
                yield from _of_type(each, where)
        case ast.Subscript(value=ast.Name(id=name), slice=inner) if name in _BUILTIN:
            yield PythonNeed(_GENERIC, node.lineno, f"`{ast.unparse(node)[:_MAX_CODE]}` {where}")
            yield from _of_type(inner, where)
        case ast.Subscript(slice=inner) if "Literal" not in ast.unparse(node.value):
            yield from _of_type(inner, where)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if where != "in an assignment":
            for each in elements:
                yield from _of_type(each, where)


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _operands(node.left)
        yield from _operands(node.right)
    else:
        yield node


def _is_type(node: ast.expr) -> bool:
    """Whether an operand is certainly a type, or None, whose `|` came with Python 3.10."""
    match node:
        case ast.Constant(value=None):
            return True
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
            return name in _TYPES or (
                isinstance(node, ast.Subscript) and name in ("Optional", "Union", "List", "Dict")
            )
        case _:
            return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
