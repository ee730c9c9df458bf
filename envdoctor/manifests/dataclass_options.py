"""The options that HfArgumentParser makes of the fields of dataclasses."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from envdoctor.manifests.parser_options import Option, Parser
from envdoctor.manifests.parser_values import External, OwnClass, Reader

_PLAIN_BASES = frozenset({"object", "abc.ABC"})
_ANNOTATIONS = (ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.Expr, ast.Pass, ast.Assign, ast.ClassDef)


def add_dataclasses(reader: Reader, parser: Parser, classes: Iterable[object]) -> None:
    """Add the options of dataclasses. The parser is open if one of them is not known."""
    for each in classes:
        if isinstance(each, OwnClass):
            _add_class(reader, parser, each)
        elif isinstance(each, External) and "." in each.name:
            package, _, name = each.name.partition(".")
            parser.libraries.append((package, name.rpartition(".")[2]))
        else:
            parser.is_open = True


def _add_class(reader: Reader, parser: Parser, owner: OwnClass) -> None:
    bases = [each for each in reader.bases(owner) if not (isinstance(each, External) and each.name in _PLAIN_BASES)]
    if owner.node.keywords or len(reader.parsers) > 20:
        parser.is_open = True
    add_dataclasses(reader, parser, bases)
    for node in owner.node.body:
        if not isinstance(node, _ANNOTATIONS):
            parser.is_open = True
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _add_field(parser, node, node.target.id, f"{owner.scope.file}:{node.lineno}")


def _add_field(parser: Parser, node: ast.AnnAssign, name: str, place: str) -> None:
    annotation = ast.unparse(node.annotation)
    if "ClassVar" in annotation:
        return
    call = node.value if isinstance(node.value, ast.Call) else None
    options = {word.arg: word.value for word in call.keywords if word.arg} if call else {}
    settings = ast.unparse(node.value) if node.value else ""
    is_dynamic = "**" in settings or (call is not None and not ast.unparse(call.func).endswith("field"))
    if "aliases" in settings or is_dynamic:
        parser.is_open = True
    is_settable = ast.unparse(options["init"]) != "False" if "init" in options else True
    has_default = (node.value is not None and call is None) or "default" in options or "default_factory" in options
    if is_settable:
        names = option_names(name)
        parser.add(Option(names, place, nargs="?", is_required=not has_default and not is_dynamic))
        if "bool" in annotation:
            negative = (f"--no_{name}", f"--no-{name.replace('_', '-')}")
            parser.add(Option(negative, place, takes_value=False))


def option_names(field: str) -> tuple[str, ...]:
    """The options of a field; newer releases also accept hyphens."""
    return tuple(dict.fromkeys((f"--{field.replace('_', '-')}", f"--{field}")))
