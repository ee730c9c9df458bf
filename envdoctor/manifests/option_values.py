"""The values that the options of a program have in a command, and the conditions that they decide."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.shell_records import is_known

# The usual names of what a parser returns.
_NAMESPACES = frozenset({"args", "arg", "opt", "opts", "options", "flags", "FLAGS", "parsed_args", "cmd_args"})
# Code that sets further values.
_CHANGES = lazy_pattern(
    r"set_defaults|setattr\(|__dict__|vars\([^)]*\)\.update|configargparse|jsonargparse|fromfile_prefix_chars"
)
_PARSES = lazy_pattern(r"pars|arg|opt|flag", re.IGNORECASE)
_PLACEHOLDER = lazy_pattern(r"\.{3}|…|^[\[<]")
_TYPES: Mapping[str, Callable[[str], object]] = {"": str, "str": str, "int": int, "float": float}

Values = Mapping[str, object]


class _Option(NamedTuple):
    names: tuple[str, ...]
    action: str
    type: str
    value: object  # without the option in a command
    is_single: bool  # takes one value


def option_values(tree: ast.Module, arguments: Sequence[str]) -> Values:
    """The values of the options of argparse that a file defines, as far as they are certain.

    None if the command has arguments that only a shell on the target machine can determine.
    """
    nodes = [*ast.walk(tree)]
    if not all(map(is_known, arguments)) or any(map(_PLACEHOLDER.search, arguments)):
        return {}
    definitions = [each for each in nodes if isinstance(each, ast.Call) and _is_definition(each)]
    if not definitions or _CHANGES.search(ast.unparse(tree)) or not _is_parsed(nodes):
        return {}
    stored = {each.attr for each in nodes if isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load)}
    options: dict[str, list[_Option]] = {}
    for call in definitions:
        name, option = _option(call)
        options.setdefault(name, []).append(option)
    values: dict[str, object] = {}
    for name, found in options.items():
        if len(found) == 1 and name not in stored:
            values |= _value(name, found[0], arguments)
    return values


def decides(test: ast.expr, values: Values) -> bool | None:
    """Whether a condition holds with the values of options; None if they do not decide it."""
    match test:
        case ast.Attribute() if (name := _name(test)) in values:
            return bool(values[name])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            holds = decides(operand, values)
            return None if holds is None else not holds
        case ast.BoolOp(op=op, values=parts):
            found = [decides(each, values) for each in parts]
            ending = isinstance(op, ast.Or)
            return ending if ending in found else None if None in found else not ending
        case ast.Compare(left=left, ops=[op], comparators=[right]) if (name := _name(left)) in values:
            return _compared(values[name], op, right)
    return None


def _compared(value: object, op: ast.cmpop, right: ast.expr) -> bool | None:
    try:
        other = ast.literal_eval(right)
    except (ValueError, TypeError, SyntaxError):
        return None
    match op:
        case ast.Eq() | ast.Is():
            return bool(value == other)
        case ast.NotEq() | ast.IsNot():
            return bool(value != other)
        case ast.In() if isinstance(other, list | tuple | set):
            return value in other
        case ast.NotIn() if isinstance(other, list | tuple | set):
            return value not in other
    return None


def _name(node: ast.expr) -> str:
    """The name of an option that is read: `args.model`; empty for others."""
    is_option = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _NAMESPACES
    return node.attr if is_option and isinstance(node, ast.Attribute) else ""


def _is_definition(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"


def _is_parsed(nodes: Sequence[ast.AST]) -> bool:
    """Whether all values of the usual names come from a parser, and no function changes them."""
    for each in nodes:
        if not isinstance(each, ast.Assign) or not any(map(_has_namespace, each.targets)):
            continue
        if not isinstance(each.value, ast.Call) or not _PARSES.search(ast.unparse(each.value.func)):
            return False
        is_method = isinstance(each.value.func, ast.Attribute) and each.value.func.attr.startswith("parse")
        if not is_method and any(map(_has_namespace, each.value.args)):
            return False  # `args = update_args(args)`
    return True


def _has_namespace(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id in _NAMESPACES for each in ast.walk(node))


def _option(call: ast.Call) -> tuple[str, _Option]:
    names = tuple(each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str))
    named = {each.arg or "": each.value for each in call.keywords}
    long = next((each for each in names if each.startswith("--")), next(iter(names), ""))
    dest, default = named.get("dest"), named.get("default")
    name = str(dest.value) if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    action = ast.unparse(named["action"]).strip("'\"") if "action" in named else "store"
    kind = ast.unparse(named["type"]) if "type" in named else ""
    value: object = {"store_true": False, "store_false": True}.get(action)
    if default is not None:
        value = default.value if isinstance(default, ast.Constant) else ...
    is_certain = long.startswith("-") and "" not in named and "required" not in named
    if not is_certain or (isinstance(value, str) and kind not in ("", "str")):
        value = ...  # unknown
    return name, _Option(names, action, kind, value, "nargs" not in named)


def _value(name: str, option: _Option, arguments: Sequence[str]) -> Values:
    """The value of an option; nothing if it is not known."""
    value = option.value
    for index, word in enumerate(arguments):
        given, is_joined, text = word.partition("=")
        is_given = given in option.names or (
            len(given) > 2 and given.startswith("--") and any(each.startswith(given) for each in option.names)
        )
        if not is_given:
            continue
        following = text if is_joined else next(iter(arguments[index + 1 :]), "-")
        if option.action in ("store_true", "store_false"):
            value = option.action == "store_true"
        elif option.action != "store" or not option.is_single or option.type not in _TYPES or following[:1] == "-":
            return {}
        else:
            try:
                value = _TYPES[option.type](following)
            except ValueError:
                return {}
    return {} if value is ... else {name: value}
