"""The keys of a dictionary that a program spreads into a call, `Class(**config)`; parsed, not run."""

from __future__ import annotations

import ast
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from envdoctor.manifests.checkout_code import Checkout

Keys = dict[str, str]  # key -> the file and the line that states it
Function = ast.FunctionDef | ast.AsyncFunctionDef
_READERS = frozenset({
    "json.load", "yaml.safe_load", "yaml.load", "yaml.full_load", "OmegaConf.load", "omegaconf.OmegaConf.load",
    "toml.load", "tomllib.load", "tomli.load",
})  # fmt: skip
_COPIES = frozenset({"dict", "OmegaConf.to_container", "copy.copy", "copy.deepcopy", "OmegaConf.to_object"})
_MAX_DEPTH = 6


class Place(NamedTuple):
    """Where an expression is: its file, its function, and the constants that the function gets."""

    path: str
    body: Sequence[ast.stmt]
    module: ast.Module
    folders: tuple[str, ...]  # in which the program can run
    values: Mapping[str, str] = {}
    functions: Mapping[str, tuple[str, ast.Module, Function]] = {}  # of the checkout by the name in this file


def keys_of(checkout: Checkout, node: ast.expr, place: Place, depth: int = 0) -> Keys | None:
    """The keys that a dictionary certainly has; None if the expression is not read."""
    if depth > _MAX_DEPTH:
        return None
    match node:
        case ast.Dict():
            return _of_literal(checkout, node, place, depth)
        case ast.Name(id=name):
            return _of_name(checkout, name, place, depth)
        case ast.Subscript(slice=ast.Constant()):
            return _shown(_data_of(checkout, node, place, depth))
        case ast.Call():
            return _of_call(checkout, node, place, depth)
    return None


def _of_call(checkout: Checkout, node: ast.Call, place: Place, depth: int) -> Keys | None:
    name = ast.unparse(node.func)
    if name == "dict" and not node.args:
        named = {each.arg: f"{place.path}:{each.value.lineno}" for each in node.keywords if each.arg}
        return named if len(named) == len(node.keywords) else None
    if name in _COPIES and node.args:
        return keys_of(checkout, node.args[0], place, depth + 1)
    if name in _READERS:
        return _shown(_data_of(checkout, node, place, depth))
    return _of_function(checkout, node, place, depth)


def _of_literal(checkout: Checkout, node: ast.Dict, place: Place, depth: int) -> Keys:
    found: Keys = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            found |= keys_of(checkout, value, place, depth + 1) or {}
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            found[key.value] = f"{place.path}:{key.lineno}"
    return found


def _of_name(checkout: Checkout, name: str, place: Place, depth: int) -> Keys | None:
    """The keys of a name with one assignment, without those that the function removes."""
    value = _assigned(name, place)
    found = keys_of(checkout, value, place, depth + 1) if value is not None else None
    if found is None:
        return None
    for node in (each for statement in place.body for each in ast.walk(statement)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner), attr="pop"),
                args=[ast.Constant(value=str(key)), *_],
            ) if owner == name:
                found.pop(key, None)
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key)), ctx=ast.Del()) if (
                owner == name
            ):
                found.pop(key, None)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attr)) if owner == name and (
                attr in ("pop", "popitem", "clear")
            ):
                return None  # which keys it removes is not known
            case ast.Delete(targets=[ast.Subscript(value=ast.Name(id=owner))]) if owner == name:
                if not isinstance(node.targets[0].slice, ast.Constant):  # type: ignore[attr-defined]
                    return None
    return found


def _assigned(name: str, place: Place) -> ast.expr | None:
    """The only value of a name in its function, or else in its module."""
    for body in (place.body, place.module.body):
        nodes = [each for statement in body for each in ast.walk(statement)]
        stored = [each for each in nodes if isinstance(each, ast.Name) and each.id == name]
        stores = [each for each in stored if not isinstance(each.ctx, ast.Load)]
        if not stores:
            continue
        values = [
            each.value
            for each in nodes
            if (isinstance(each, ast.Assign) and any(target is stores[0] for target in each.targets))
            or (isinstance(each, ast.AnnAssign) and each.target is stores[0])
        ]
        return values[0] if len(stores) == 1 and values else None
    return None


def _of_function(checkout: Checkout, node: ast.Call, place: Place, depth: int) -> Keys | None:
    """The keys of what a function of the checkout returns, where it has one `return`."""
    found = place.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if found is None:
        return None
    path, module, function = found
    returned = [each for each in ast.walk(function) if isinstance(each, ast.Return)]
    if len(returned) != 1 or returned[0].value is None:
        return None
    names = [each.arg for each in function.args.args]
    given = [*zip(names, node.args, strict=False), *((each.arg or "", each.value) for each in node.keywords)]
    values = {name: text for name, value in given if (text := _text(value, place))}
    inner = Place(path, function.body, module, place.folders, values)
    return keys_of(checkout, returned[0].value, inner, depth + 1)


def _text(node: ast.expr, place: Place) -> str:
    """A text that is a constant of the source; empty for others."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if name in place.values:
            return place.values[name]
        case ast.Name(id=name):
            value = _assigned(name, place)
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
        case ast.Call(func=func, args=[inner]) if ast.unparse(func) in ("Path", "pathlib.Path", "str"):
            return _text(inner, place)
    return ""


class _Data(NamedTuple):
    path: str
    content: object


def _data_of(checkout: Checkout, node: ast.expr, place: Place, depth: int) -> _Data | None:
    """The content of a file of the checkout that an expression reads."""
    if depth > _MAX_DEPTH:
        return None
    match node:
        case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
            data = _data_of(checkout, inner, place, depth + 1)
            content = data.content.get(key) if data and isinstance(data.content, dict) else None
            return _Data(data.path, content) if data and content is not None else None
        case ast.Name(id=name):
            value = _assigned(name, place)
            return _data_of(checkout, value, place, depth + 1) if value is not None else None
        case ast.Call(func=func, args=[source, *_]) if ast.unparse(func) in _READERS:
            opened = _opened(source, place)
            path = file_of(checkout, _text(opened, place), place.folders) if opened is not None else ""
            return _Data(path, read_data(checkout, path)) if path else None
    return None


def _opened(node: ast.expr, place: Place) -> ast.expr | None:
    """The path of a file that is open, or that a reader opens by itself."""
    if isinstance(node, ast.Name):
        for each in (each for statement in place.body for each in ast.walk(statement)):
            if isinstance(each, ast.With):
                for item in each.items:
                    if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == node.id:
                        return _opened(item.context_expr, place)
        return node
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "io.open") and node.args:
        return node.args[0]
    return node


def file_of(checkout: Checkout, name: str, starts: Iterable[str]) -> str:
    """The file of the checkout with a relative path; empty if several have it."""
    if not name or name.startswith("/"):
        return ""
    nested = (("", *accumulate(each.split("/"), posixpath.join)) for each in starts)
    folders = dict.fromkeys((*(each for folder in nested for each in reversed(folder)), ""))
    paths = [posixpath.normpath(posixpath.join(folder, name)) for folder in folders]
    return next((path for path in paths if path in checkout.paths), "")


def read_data(checkout: Checkout, path: str) -> object:
    """The content of a JSON, YAML or TOML file; None for others, and where it cannot be read."""
    import tomllib

    from envdoctor.manifests.inputs.yaml_nodes import load_yaml

    text = checkout.text(path)
    try:
        if path.endswith(".json"):
            return json.loads(text)
        if path.endswith(".toml"):
            return tomllib.loads(text)
        return load_yaml(text) if path.endswith((".yaml", ".yml")) else None
    except (ValueError, RecursionError):
        return None


def _shown(data: _Data | None) -> Keys | None:
    """The keys of a table of a file."""
    is_table = data is not None and isinstance(data.content, dict)
    return {str(name): data.path for name in data.content} if data and is_table else None  # type: ignore[attr-defined]
