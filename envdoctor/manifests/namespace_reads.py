"""Attributes that a program reads from the namespace of its parser, and that no option of the parser has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.parser_options import Parser

# The program can add attributes to the namespace, or replace it.
_CHANGES = lazy_pattern(
    r"\bNamespace\b|\bvars\(|__dict__|\bparse_known_args\b|\bset_defaults\b|\bsetattr\(|\bdest\s*=|\bnamespace\s*="
    r"|\bparents\s*=|\bregister\(|\bargument_default\b|\byaml\b|\bjson\.load|\bConfig\b|\bEasyDict\b|\bdeepcopy\b"
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class NamespaceRead(NamedTuple):
    """A read of an attribute that the namespace does not have."""

    name: str  # of the variable
    attribute: str
    line: int


def absent_attributes(text: str, parser: Parser, further: Sequence[str]) -> list[NamespaceRead]:
    """The attributes that the file of a program reads and that no option of its only parser sets, in their order.

    `further` are the texts of the files that the program loads: one that assigns such an attribute, or names it as
    text, can set it.
    """
    if _CHANGES.search(text) or not parser.is_decided or parser.libraries or parser.is_of_dataclasses:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    name = _namespace(tree)
    options = {each for names in parser.options for each in (names.lstrip("-").replace("-", "_"),)}
    options |= {each for option in parser.positionals for each in option.names}
    texts = "\n".join((text, *further))
    found = []
    for each in _reads(tree, name) if name else ():
        is_set = re.search(rf"\.{each.attribute}\s*(?::[^=\n]*)?=(?!=)|[\"'](?:--)?{each.attribute}[\"']", texts)
        if each.attribute not in options and not each.attribute.startswith("_") and not is_set:
            found.append(each)
    return found


def _namespace(tree: ast.Module) -> str:
    """The name of the variable with the only namespace; empty if there are several, or it is assigned again."""
    names = [
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_parsed(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return names[0] if len(names) == 1 and stored.count(names[0]) == 1 else ""


def _is_parsed(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parse_args"


def _reads(tree: ast.Module, name: str) -> Iterator[NamespaceRead]:
    """The reads in the scope of the namespace, and in functions of the file that get it as an argument."""
    functions = {each.name: each for each in tree.body if isinstance(each, _Function)}
    owner = next((each for each in functions.values() if _assigns(each, name)), None)
    # Other functions have a variable of their own with this name, or the global one.
    waiting: list[tuple[Sequence[ast.stmt], str]] = [
        (
            owner.body if owner else [each for each in tree.body if not isinstance(each, _Function | ast.ClassDef)],
            name,
        )
    ]
    seen: set[tuple[str, str]] = set()
    while waiting:
        body, variable = waiting.pop(0)
        for node in (node for statement in body for node in ast.walk(statement)):
            match node:
                case ast.Attribute(value=ast.Name(id=found), attr=attribute, ctx=ast.Load()) if found == variable:
                    yield NamespaceRead(variable, attribute, node.lineno)
                case ast.Call(func=ast.Name(id=called), args=arguments) if called in functions:
                    parameters = [each.arg for each in functions[called].args.args]
                    for parameter, argument in zip(parameters, arguments, strict=False):
                        is_passed = isinstance(argument, ast.Name) and argument.id == variable
                        if is_passed and (called, parameter) not in seen:
                            seen.add((called, parameter))
                            waiting.append((functions[called].body, parameter))


def _assigns(function: _Function, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(function)
    )
