"""The names that a Python module defines, with the arguments of functions and classes; its source is parsed only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.package_index.public_names import RENAMES_ARGUMENTS, renamed_arguments

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Calls and names with which a module provides names that its source does not define.
DYNAMIC = frozenset({"__getattr__", "globals", "exec", "setattr", "_LazyModule", "attach", "attach_stub", "vars"})
_GLOBAL = lazy_pattern(r"^[ \t]+global[ \t]+([\w, \t]+)", re.MULTILINE)


class Definition(NamedTuple):
    """A name of a module."""

    kind: Literal["class", "function", "value", "import"]
    line: int
    module: str = ""  # of an import: the module that has the name
    name: str = ""  # of an import: the name in that module; empty: the module itself
    arguments: tuple[str, ...] | None = None  # that can be passed by name; None: those of the base classes
    takes_any: bool = False  # accepts further arguments
    bases: tuple[str, ...] = ()
    members: frozenset[str] = frozenset()  # of a class: methods, fields and attributes set on self
    returns: str = ""  # the annotation of the result
    decorators: tuple[str, ...] = ()  # of the function, or of the constructor of the class


class Module(NamedTuple):
    """The names of one module."""

    names: dict[str, Definition]
    stars: tuple[str, ...] = ()  # modules of `from X import *`
    is_dynamic: bool = False  # other names may exist


def parse_module(source: str, module: str, *, is_package: bool) -> Module | None:
    """Parse a module; None if this Python cannot parse it."""
    tree = parse_source(source)
    if tree is None:
        return None
    reader = _Reader(module if is_package else module.rpartition(".")[0])
    reader.read(tree.body)
    for listed in _GLOBAL.findall(source):
        for name in re.findall(r"\w+", listed):
            reader.names.setdefault(name, Definition("value", 0))
    return Module(reader.names, tuple(reader.stars), is_dynamic=_is_dynamic(tree, reader.names))


def parse_source(source: str) -> ast.Module | None:
    """The syntax tree; None if this Python cannot parse the source."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences of old sources
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def absolute_module(package: str, level: int, module: str) -> str:
    """The module of a relative import: `from ..b import c` in package x.y gives x.b."""
    parts = package.split(".")
    base = parts[: len(parts) - level + 1] if level else []
    return ".".join([*base, *([module] if module else [])])


def _is_dynamic(tree: ast.Module, names: dict[str, Definition]) -> bool:
    if "__getattr__" in names:
        return True
    for node in outside_of_functions(tree.body):
        called = node.func if isinstance(node, ast.Call) else None
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if name in DYNAMIC:
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            # sys.modules[...] =, this_module.__dict__[...] =
            if isinstance(node.value, ast.Attribute) and node.value.attr in ("modules", "__dict__"):
                return True
            if isinstance(node.value, ast.Call):  # globals()[...] =
                return True
    return False


def outside_of_functions(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported, and its functions and classes without their content."""
    for node in body:
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            yield from outside_of_functions(ast.iter_child_nodes(node))


class _Reader:
    """Collects the names of a module, also those in branches."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.names: dict[str, Definition] = {}
        self.stars: list[str] = []

    def read(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.names[node.name] = _class(node)
            elif isinstance(node, Function):
                self.names[node.name] = _function(node)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    self._add_import(alias.asname or top, alias.name if alias.asname else top, "", node.lineno)
            elif isinstance(node, ast.ImportFrom):
                self._read_import(node)
            else:
                self._read_other(node)

    def _read_import(self, node: ast.ImportFrom) -> None:
        module = absolute_module(self.package, node.level, node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                self._add_import(alias.asname or alias.name, module, alias.name, node.lineno)

    def _add_import(self, local: str, module: str, name: str, line: int) -> None:
        # The definition in a `try` is preferred to the substitute in its `except`.
        self.names.setdefault(local, Definition("import", line, module, name))

    def _read_other(self, node: ast.stmt) -> None:
        for target in _targets(node):
            for each in ast.walk(target):
                if isinstance(each, ast.Name):
                    self.names.setdefault(each.id, Definition("value", node.lineno))
        for field in ("body", "orelse", "finalbody"):
            self.read(getattr(node, field, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self.read(part.body)


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        return [node.target]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in node.items if item.optional_vars]
    alias = getattr(node, "name", None)  # of `type X = ...`, from Python 3.12 on
    return [alias] if isinstance(alias, ast.Name) else []


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Definition:
    return Definition(
        "function",
        node.lineno,
        arguments=_arguments(node),
        takes_any=node.args.kwarg is not None,
        returns=ast.unparse(node.returns) if node.returns else "",
        decorators=_decorators(node),
    )


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """The names of the decorators without their modules: `no_grad` of `@torch.no_grad()`."""
    called = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    names = (ast.unparse(each).rpartition(".")[2] for each in called)
    return tuple(name for name in names if not RENAMES_ARGUMENTS.search(name))  # whose arguments are read


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """The arguments that can be passed by name, with those that a decorator renames."""
    named = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
    return tuple(dict.fromkeys(name for name in (*named, *renamed_arguments(node)) if name not in ("self", "cls")))


def _class(node: ast.ClassDef) -> Definition:
    members: set[str] = set()
    arguments: tuple[str, ...] | None = None
    takes_any = bool(node.keywords)  # a metaclass may define the arguments
    decorators: tuple[str, ...] = ()
    fields: list[str] = []
    for each in node.body:
        if isinstance(each, Function):
            members.add(each.name)
            members.update(_set_on_self(each))
            if each.name in ("__init__", "__new__") and (arguments is None or each.name == "__init__"):
                arguments, decorators = _arguments(each), _decorators(each)
                takes_any |= each.args.kwarg is not None
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            members.update(names)
            fields += names if isinstance(each, ast.AnnAssign) else []
        elif isinstance(each, ast.ClassDef):
            members.add(each.name)
        elif isinstance(each, ast.If | ast.Try):
            takes_any = True
    if arguments is None and node.decorator_list:  # a dataclass; its bases may have further fields
        arguments = tuple(fields)
        takes_any |= bool(node.bases)
    bases = tuple(ast.unparse(base) for base in node.bases)
    return Definition(
        "class", node.lineno, arguments=arguments, takes_any=takes_any, bases=bases, members=frozenset(members),
        decorators=decorators,
    )  # fmt: skip


def _set_on_self(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    first = next((each.arg for each in (*node.args.posonlyargs, *node.args.args)), "")
    for each in ast.walk(node):
        if not isinstance(each, ast.Attribute) or not isinstance(each.ctx, ast.Store):
            continue
        if isinstance(each.value, ast.Name) and each.value.id == first:
            yield each.attr
