"""What the classes of a checkout expect of the classes of other packages that they derive from; parsed, not run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence

from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.imports_of_guide import launches_of
from envdoctor.resolution.index_facts import InheritedMember

_MAX_FILES = 200
_PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol"})


def inherited_members(context: GuideContext) -> Sequence[InheritedMember]:
    """The members that classes in the files which programs load expect of a class of another package."""
    checkout = context.guide.checkout
    if checkout is None:
        return ()
    files = [(path, each.line) for path, each in checkout.files(launches_of(context)).items()][:_MAX_FILES]

    def find() -> list[InheritedMember]:
        return [each for path, line in files for each in _of_file(checkout, path, line)]

    return checkout.once("members", *files, find=find)


def _of_file(checkout: Checkout, path: str, line: int) -> Iterator[InheritedMember]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            tree = ast.parse(checkout.text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
        if node.module.partition(".")[0] not in checkout.own_modules
    }
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases = [each for each in map(ast.unparse, node.bases) if each.partition("[")[0] not in _PLAIN_BASES]
            for base in bases:
                if base in names:
                    yield from _of_class(node, names[base], f"{path}:", line, is_only_base=len(bases) == 1)


def _of_class(
    node: ast.ClassDef, base: tuple[str, str], place: str, line: int, *, is_only_base: bool
) -> Iterator[InheritedMember]:
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        defaults = zip(each.args.kwonlyargs, each.args.kw_defaults, strict=True)
        required = tuple(argument.arg for argument, default in defaults if default is None)
        if required:
            yield InheritedMember(line, *base, each.name, f"{place}{each.lineno}", node.name, required)
        for call in _calls_of_super(each) if is_only_base else ():
            yield InheritedMember(line, *base, call.attr, f"{place}{call.lineno}", node.name)


def _calls_of_super(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Attribute]:
    """The members that `super().name(...)` calls, outside of a `try`."""
    guarded = {id(node) for each in ast.walk(function) if isinstance(each, ast.Try) for node in ast.walk(each)}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[])) as member):
                if id(node) not in guarded and not member.attr.startswith("__"):
                    yield member
