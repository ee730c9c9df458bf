"""What the `__getattr__` of a module does for one name, by its source: raise, return a value, or unknown."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from typing import Literal

from envdoctor.package_index.python_modules import Function, absolute_module, outside_of_functions, parse_source

Outcome = Literal["raises", "returns", "unknown"]
_MAX_DEPTH = 6  # of names that refer to other names
_END = sys.maxsize  # the line after a module


class ModuleGetattr:
    """The `__getattr__` of one module. `read` returns the source of another module of the wheel, or None."""

    def __init__(self, source: str, module: str, *, is_package: bool, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._package = module if is_package else module.rpartition(".")[0]
        self._source = source
        self._tree = parse_source(source)
        nodes = outside_of_functions(self._tree.body if self._tree else ())
        functions = (node for node in nodes if isinstance(node, Function))
        self._function = next((each for each in functions if each.name == "__getattr__" and each.args.args), None)

    def outcome(self, name: str) -> Outcome:
        """`raises` only if the function names `name` in the condition of the raise."""
        if self._function is None:
            return "unknown"
        result, is_named = self._run(self._function.body, self._function.args.args[0].arg, name, is_named=False)
        return "unknown" if result == "raises" and not is_named else result or "unknown"

    def _run(
        self, body: Iterable[ast.stmt], argument: str, name: str, *, is_named: bool
    ) -> tuple[Outcome | None, bool]:
        """The outcome of a block, None if it ends without one, and whether a condition on the name led to it."""
        for node in body:
            result: Outcome | None = None
            named = is_named
            if isinstance(node, ast.Return):
                return "returns", named
            if isinstance(node, ast.Raise):
                return "raises", named
            if isinstance(node, ast.If):
                result, named = self._run_if(node, argument, name, is_named=is_named)
            elif isinstance(node, ast.Try):
                result, named = self._run_try(node, argument, name, is_named=is_named)
            elif isinstance(node, ast.For | ast.While | ast.With | ast.Match):
                return "unknown", False
            if result:
                return result, named
        return None, is_named

    def _run_if(self, node: ast.If, argument: str, name: str, *, is_named: bool) -> tuple[Outcome | None, bool]:
        holds = self._holds(node.test, argument, name)
        if holds is None:
            results = {self._run(part, argument, name, is_named=False)[0] for part in (node.body, node.orelse)}
            return (None, is_named) if results == {None} else ("unknown", False)
        return self._run(node.body if holds else node.orelse, argument, name, is_named=is_named or holds)

    def _run_try(self, node: ast.Try, argument: str, name: str, *, is_named: bool) -> tuple[Outcome | None, bool]:
        """`try: value = TABLE[name]`, with `except KeyError`."""
        match node.body:
            case [ast.Assign(value=ast.Subscript(value=table, slice=ast.Name(id=key)))] if key == argument:
                holds = self._contains(table, name)
            case _:
                holds = None
        if holds is None:
            return "unknown", False
        body = node.orelse if holds else [each for handler in node.handlers for each in handler.body]
        return self._run(body, argument, name, is_named=is_named or holds)

    def _holds(self, test: ast.expr, argument: str, name: str) -> bool | None:
        match test:
            case ast.Compare(left=ast.Name(id=left), ops=[operator], comparators=[right]) if left == argument:
                return self._compare(operator, right, name)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                holds = self._holds(operand, argument, name)
                return None if holds is None else not holds
            case ast.BoolOp(op=operator, values=values):
                results = {self._holds(each, argument, name) for each in values}
                decisive = isinstance(operator, ast.Or)
                if decisive in results:
                    return decisive
                return None if None in results else not decisive
        return None

    def _compare(self, operator: ast.cmpop, right: ast.expr, name: str) -> bool | None:
        if isinstance(operator, ast.Eq | ast.NotEq) and isinstance(right, ast.Constant):
            return (right.value == name) == isinstance(operator, ast.Eq)
        holds = self._contains(right, name) if isinstance(operator, ast.In | ast.NotIn) else None
        return None if holds is None else holds == isinstance(operator, ast.In)

    def _contains(self, table: ast.expr, name: str) -> bool | None:
        """Whether a table has a key; None if its keys are not constants of the source."""
        keys = self._keys(table, self._tree, self._package, _MAX_DEPTH, _END)
        if keys is None:
            return None
        if name in keys:
            return True
        return None if isinstance(table, ast.Name) and self._is_extended(table.id) else False

    def _is_extended(self, table: str) -> bool:
        end = r"""\.(?:add|append|extend|setdefault)\(|\[(?!['"])[^\]\n]+\][ \t]*=[^=]"""
        changed = rf"\b{re.escape(table)}(?:{end})"
        return re.search(changed, self._source) is not None

    def _keys(self, node: ast.expr, tree: ast.Module | None, package: str, depth: int, line: int) -> set[str] | None:
        """The keys of a dict, the elements of a set or list, the first elements of its tuples.

        The value of a name is the one that it has before `line`.
        """
        if depth == 0 or tree is None:
            return None
        match node:
            case ast.Dict(keys=elements):
                return _constants(elements)
            case ast.Set(elts=elements) | ast.List(elts=elements) | ast.Tuple(elts=elements):
                return _constants(elements)
            case (
                ast.DictComp(key=ast.Name(id=key), generators=[generator])
                | ast.SetComp(elt=ast.Name(id=key), generators=[generator])
            ) if key == _first_name(generator.target) and not generator.ifs:
                return self._keys(generator.iter, tree, package, depth - 1, line)
            case ast.Name(id=table):
                return self._keys_of_name(table, tree, package, depth - 1, line)
        return None

    def _keys_of_name(self, table: str, tree: ast.Module, package: str, depth: int, line: int) -> set[str] | None:
        """The keys of the last assigned table and of the dicts that update it, or those of an imported table."""
        found: set[str] | None = None
        nodes = (node for node in ast.walk(tree) if getattr(node, "lineno", line) < line)
        for node in sorted(nodes, key=lambda each: each.lineno):  # type: ignore[attr-defined]
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if name == table:
                    found = self._keys(value, tree, package, depth, node.lineno)
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))]
                ) if name == table and found is not None:
                    found = found | {key}
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[value]) if (
                    name == table
                ):
                    more = self._keys(value, tree, package, depth, node.lineno)
                    found = None if found is None or more is None else found | more
                case ast.ImportFrom(module=module, names=names, level=level):
                    original = next((each.name for each in names if (each.asname or each.name) == table), "")
                    if original:
                        full = absolute_module(package, level, module or "")
                        source = self._read(full)
                        other = parse_source(source) if source else None
                        found = self._keys(ast.Name(id=original), other, full.rpartition(".")[0], depth, _END)
        return found


def _first_name(target: ast.expr) -> str:
    first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    return first.id if isinstance(first, ast.Name) else ""


def _constants(elements: Iterable[ast.expr | None]) -> set[str] | None:
    """The texts of constants, or of the first elements of tuples; None if one is neither."""
    found: set[str] = set()
    for element in elements:
        first = element.elts[0] if isinstance(element, ast.Tuple) and element.elts else element
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return None
        found.add(first.value)
    return found
