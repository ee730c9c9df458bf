"""The releases of other packages that a module accepts when it is imported: its assertions, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.knowledge.releases import parse_requirement
from envdoctor.package_index.python_modules import parse_source

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_REQUIRING = ("require_version", "require_version_core")


class AcceptedReleases(NamedTuple):
    """The releases that a module accepts of a package, which `module` or else `name` names."""

    line: int
    specifier: str
    module: str = ""  # top-level module: mmcv
    name: str = ""  # of a requirement: tokenizers


def accepted_releases(source: str) -> list[AcceptedReleases]:
    """The assertions on versions that importing a module always evaluates."""
    tree = parse_source(source)
    return list(_Reader().read(tree)) if tree else []


class _Reader:
    """Follows the statements at the top level of a module."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}  # local name -> top-level module
        self.versions: dict[str, str] = {}  # local name -> the module of which it is the version
        self.constants: dict[str, str] = {}

    def read(self, tree: ast.Module) -> Iterator[AcceptedReleases]:
        for node in tree.body:
            match node:
                case ast.Import(names=names):
                    self.modules |= {each.asname or each.name: each.name for each in names if "." not in each.name}
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.Assert(test=test):
                    yield from self._limits(node.lineno, self._all_of(test))
                case ast.If(test=test, body=[ast.Raise(), *_], orelse=[]):
                    yield from self._limits(node.lineno, self._none_of(test))
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Name(id=called) | ast.Attribute(attr=called),
                        args=[ast.Constant(value=str(text)), *_],
                    )
                ) if called in _REQUIRING and (found := parse_requirement(text)) and found.specifier:
                    yield AcceptedReleases(node.lineno, found.specifier, name=found.name)

    def _assign(self, name: str, value: ast.expr) -> None:
        self.versions.pop(name, None)
        self.constants.pop(name, None)
        if module := self._version_of(value):
            self.versions[name] = module
        elif text := self._constant(value):
            self.constants[name] = text

    def _version_of(self, node: ast.expr) -> str:
        """The module of which an expression is the version: `mmcv.__version__`, also as the argument of a parser."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="__version__"):
                return self.modules.get(name, "")
            case ast.Name(id=name):
                return self.versions.get(name, "")
            case ast.Call(args=[argument], keywords=[]):
                return self._version_of(argument)
        return ""

    def _constant(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str(text)) if text[:1].isdigit():
                return text
            case ast.Name(id=name):
                return self.constants.get(name, "")
            case ast.Call(args=[argument], keywords=[]):
                return self._constant(argument)
        return ""

    def _all_of(self, test: ast.expr) -> list[tuple[str, str, str]]:
        """The comparisons that must hold: module, operator and version; empty if one part is unknown."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            parts = [self._all_of(each) for each in test.values]
            return [limit for part in parts for limit in part] if all(parts) else []
        if not isinstance(test, ast.Compare):
            return []
        sides = [test.left, *test.comparators]
        found = [
            self._comparison(left, operator, right)
            for left, operator, right in zip(sides, test.ops, sides[1:], strict=False)
        ]
        known = [each for each in found if each]
        return known if len(known) == len(found) else []

    def _none_of(self, test: ast.expr) -> list[tuple[str, str, str]]:
        """The comparisons that must hold so that a condition does not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._all_of(test.operand)
        values = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]
        parts = [self._all_of(each) for each in values]
        if not all(len(part) == 1 for part in parts):
            return []
        return [(module, _NEGATED[operator], version) for ((module, operator, version),) in parts]

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> tuple[str, str, str] | None:
        sign = _OPERATORS.get(type(operator))
        if sign is None:
            return None
        if (module := self._version_of(left)) and (version := self._constant(right)):
            return module, sign, version
        if (module := self._version_of(right)) and (version := self._constant(left)):
            return module, _REVERSED[sign], version
        return None

    @staticmethod
    def _limits(line: int, comparisons: list[tuple[str, str, str]]) -> Iterator[AcceptedReleases]:
        for module in dict.fromkeys(module for module, _, _ in comparisons):
            parts = (f"{sign}{version}" for each, sign, version in comparisons if each == module)
            yield AcceptedReleases(line, ",".join(parts), module=module)
