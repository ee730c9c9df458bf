"""Public names of a package and their arguments, read from its source files without importing it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
MAX_SOURCE_BYTES = 4 << 20  # of one file; generated modules of more have no interface
SUFFIX = lazy_pattern(r"\.pyi?$")
# Names of decorators. Others have texts of another meaning, such as PublicAPI(stability="beta").
RENAMES_ARGUMENTS = lazy_pattern(r"arg|param|keyword|renam|alias|legacy", re.IGNORECASE)
TEST_FOLDERS = lazy_pattern(r"(?:^|/)(?:tests?|testing|benchmarks?|examples?|docs?)/")


class PublicNames(NamedTuple):
    """The public names of a package: `numpy.float_`, with the arguments of functions and classes."""

    arguments: dict[str, frozenset[str] | None]  # None: neither a function nor a class with its own `__init__`
    open: set[str]  # those that accept more: **kwargs, or members of a base class
    unread: list[str]  # files that are not valid Python of this interpreter, or too large
    modules: set[str]


class NameChange(NamedTuple):
    """A public name that was removed, or that lost arguments."""

    name: str
    removed: tuple[str, ...] = ()  # arguments; empty: the name itself

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.removed)})" if self.removed else self.name


def read_names(sources: Mapping[str, str]) -> PublicNames:
    """The public names in source files and stubs, by path in a wheel or site-packages: `numpy/__init__.pyi`."""
    names = PublicNames({}, set(), [], set())
    for path, text in sorted(sources.items()):
        if TEST_FOLDERS.search(path) or not is_public_module(path):
            continue
        module = module_of(path)
        names.modules.add(module)
        tree = parse_source(text)
        if tree is None:
            names.unread.append(path)
            continue
        for name, node in defined_names(tree, module.partition(".")[0]):
            _add(names, f"{module}.{name}", node)
            if name == "__getattr__":  # still provides the names that it compares with
                provided = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
                names.arguments.update({f"{module}.{each}": None for each in provided if isinstance(each, str)})
    return names


def _add(names: PublicNames, name: str, node: ast.AST) -> None:
    """Add a public name, and the public methods of a class."""
    if name.rpartition(".")[2].startswith("_"):
        return
    if names.arguments.get(name) is None:  # a stub repeats the names of its module
        names.arguments[name] = _arguments_of(node)
    if _accepts_any(node):
        names.open.add(name)
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(each, FUNCTION):
            _add(names, f"{name}.{each.name}", each)


def removed_names(old: PublicNames, new: PublicNames) -> Iterator[NameChange]:
    """Names of the old release that the new one lacks, and those that lost arguments.

    A submodule or a class that is gone is one change. Nothing is removed by a file that could not be read.
    """
    unread = set(map(module_of, new.unread))
    gone = old.modules - new.modules
    for name in sorted(gone):
        if name.rpartition(".")[0] not in gone:
            yield NameChange(name)
    for name, before in sorted(old.arguments.items()):
        owner = name.rpartition(".")[0]
        module = owner if owner in old.modules else owner.rpartition(".")[0]
        if module in unread or module in gone:
            continue
        if name in new.arguments:
            after = new.arguments[name]
            lost = sorted(before - after) if before and after is not None and name not in new.open else []
            if lost:
                yield NameChange(name, tuple(lost))
        elif owner in new.modules or (owner in new.arguments and owner not in new.open):
            yield NameChange(name)


def parse_source(text: str) -> ast.Module | None:
    """The syntax tree of a module; None for one that is too large or not valid for this interpreter."""
    if len(text) > MAX_SOURCE_BYTES:
        return None
    try:
        with warnings.catch_warnings():  # invalid escape sequences of other projects
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def module_of(path: str) -> str:
    """`numpy/core/__init__.py` as numpy.core."""
    return SUFFIX.sub("", path).removesuffix("/__init__").replace("/", ".")


def is_public_module(path: str) -> bool:
    """Whether no part of a module's path is private: not `numpy/_core/umath.py`."""
    parts = SUFFIX.sub("", path).split("/")
    return SUFFIX.search(path) is not None and all(each == "__init__" or not each.startswith("_") for each in parts)


def module_names(tree: ast.Module | ast.If | ast.Try | ast.ExceptHandler, package: str) -> Iterator[str]:
    """What a module defines, or imports from its package, outside of functions and classes."""
    return (name for name, _ in defined_names(tree, package))


def defined_names(
    tree: ast.Module | ast.If | ast.Try | ast.ExceptHandler, package: str
) -> Iterator[tuple[str, ast.AST]]:
    """The names of a module as `module_names` gives them, each with the statement that defines it."""
    for node in (*tree.body, *getattr(tree, "orelse", ()), *getattr(tree, "handlers", ())):
        if isinstance(node, ast.ClassDef | FUNCTION):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == package):
            names = (alias.asname or alias.name for alias in node.names)
            yield from ((name, node) for name in names if name.isidentifier())
        elif isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
            yield from defined_names(node, package)


def arguments_of_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of the arguments, without self and cls."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return [name for name in (*names, *renamed_arguments(function)) if name not in ("self", "cls")]


def renamed_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The old names that decorators for renamed arguments still accept: deprecate_kwarg("tokenizer", ...)."""
    return [
        each.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and RENAMES_ARGUMENTS.search(ast.unparse(decorator.func))
        for each in ast.walk(decorator)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.isidentifier()
    ]


def _arguments_of(node: ast.AST) -> frozenset[str] | None:
    """The arguments of a function or of a class's `__init__`; None for others."""
    if isinstance(node, FUNCTION):
        return frozenset(arguments_of_function(node))
    if isinstance(node, ast.ClassDef) and (init := _init_of(node.body)):
        return frozenset(arguments_of_function(init))
    return None


def _accepts_any(node: ast.AST) -> bool:
    """Whether a function has **kwargs, or a class inherits arguments and methods."""
    if isinstance(node, ast.ClassDef):
        bases = [each for each in node.bases if not (isinstance(each, ast.Name) and each.id == "object")]
        init = _init_of(node.body)
        return bool(bases or node.keywords) or (init is not None and init.args.kwarg is not None)
    return isinstance(node, FUNCTION) and node.args.kwarg is not None


def _init_of(body: Iterable[ast.stmt]) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    return next((each for each in body if isinstance(each, FUNCTION) and each.name == "__init__"), None)
