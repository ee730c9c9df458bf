"""The directories that a Python file adds to `sys.path`: in its checkout, or others, whose modules are unknown."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.own_names import name_key

_FINDERS = lazy_pattern(r"\bsite\.addsitedir\b|\bimportlib\b.*\bspec_from_file")
_VARIABLE = lazy_pattern(r"""\bPYTHONPATH[ \t]{0,3}\+?=[ \t]{0,3}["']?([^\s"';&|`]{1,300})""")
_ENTERED = lazy_pattern(r"(?m)^[ \t$]*cd[ \t]+([\w./-]+)[ \t]*$")
_OWN_VALUE = lazy_pattern(r"\$\{?PYTHONPATH\b.*|\.?/?|\$\{?PWD\}?/?|\$\(pwd\)?/?|\{?\$?env:PYTHONPATH\}?")
# A directory of the project: `ROOT="$(cd "$(dirname "$0")" && pwd)"`, `ROOT=$PWD`, `ROOT=$(git rev-parse ...)`.
_OWN_DIRECTORY = r"(?m)^[ \t]*(?:export[ \t]+)?{}=.*(?:\bpwd\b|\$\{{?PWD\b|\bdirname\b|BASH_SOURCE|rev-parse)"
_NAME = lazy_pattern(r"\$\{?([A-Za-z_]\w*)\}?/?")
_SAME = frozenset({"abspath", "realpath", "normpath", "str", "Path", "resolve", "absolute", "as_posix", "fspath"})
_CURRENT = frozenset({"os.getcwd()", "os.curdir", "Path.cwd()", "pathlib.Path.cwd()"})
_MAX_DEPTH = 20  # of nested expressions


def added_directories(tree: ast.Module, text: str, path: str, root: Path) -> tuple[bool, tuple[str, ...]]:
    """Whether modules can come from directories outside of the checkout, and the added directories of the checkout.

    `path` is relative to the root. The program runs in the directory of its file, or in one above it.
    """
    if _FINDERS.search(text):
        return True, ()
    values = _single_values(tree) if "sys.path" in text else {}
    reader = _PathReader(path, values)
    added = [reader.paths(each) for each in (_added(tree) if "sys.path" in text else ())]
    inside = [[each for each in paths if _has_files(root, each)] for paths in added]
    found = dict.fromkeys(each for paths in inside for each in paths if each != "..")
    return not all(inside), tuple("" if each == "." else each for each in found)


def names_other_directories(text: str, paths: Collection[str], own_names: Collection[str] = ()) -> bool:
    """Whether a text sets PYTHONPATH to a directory that a checkout with these paths does not have: a clone.

    `..` is relative to the directory that the last `cd` before it enters. A path of the target machine to the project
    ends with one of its names: `/path/to/project`.
    """
    for match in _VARIABLE.finditer(text):
        for each in match[1].split(":"):
            inner = re.sub(r"^(?:\$\{?PWD\}?|\$\(pwd\)|\.)/", "", each).rstrip("/")
            if inner.startswith(".."):
                entered = next(reversed(_ENTERED.findall(text, 0, match.start())), "").strip("/")
                joined = posixpath.normpath(posixpath.join(entered, inner)) if entered in paths else inner
                inner = "" if joined == "." else joined
            has_files = any(path.startswith(f"{inner}/") for path in paths)
            name = _NAME.fullmatch(each)
            is_own = (
                _OWN_VALUE.fullmatch(each)
                or (name and re.search(_OWN_DIRECTORY.format(name[1]), text))
                or name_key(inner.rpartition("/")[2]) in own_names
            )
            if not is_own and inner and not has_files:
                return True
    return False


def _single_values(tree: ast.Module) -> dict[str, ast.expr]:
    """The values of the names that a file assigns once."""
    values: dict[str, ast.expr] = {}
    repeated: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            repeated |= {node.id} & values.keys()
            values.setdefault(node.id, node)
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
    return {name: value for name, value in values.items() if name not in repeated}


def _added(tree: ast.Module) -> Iterator[ast.expr]:
    """What a file adds to `sys.path`; the whole expression where it is none of the usual calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr="append" | "insert"), args=[*_, added]):
                yield from (added,) if _is_path(target) else ()
            case ast.Call(func=ast.Attribute(value=target, attr="extend"), args=[added]):
                yield from _elements(added) if _is_path(target) else ()
            case ast.AugAssign(target=target, value=added):
                yield from _elements(added) if _is_path(target) else ()
            case ast.Assign(targets=targets, value=added):
                yield from (added,) if any(map(_is_path, targets)) else ()


def _is_path(node: ast.AST) -> bool:
    """Whether an expression is `sys.path`, or an item of it."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path"


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else [node]


class _PathReader:
    """Evaluates expressions of a file to the paths, relative to the root, that they can be; none if unknown."""

    def __init__(self, path: str, values: Mapping[str, ast.expr]) -> None:
        self.path = path
        self.values = values

    def paths(self, node: ast.AST, depth: int = 0) -> list[str]:
        if depth > _MAX_DEPTH:
            return []
        if isinstance(node, ast.expr) and ast.unparse(node) in _CURRENT:
            return _relative(self.path, ".")
        match node:
            case ast.Constant(value=str(text)):
                return _relative(self.path, text)
            case ast.Name(id=name):
                value = self.values.get(name, node)
                return [self.path] if name == "__file__" else self.paths(value, depth + 1)
            case ast.Call():
                return self._of_call(node, depth + 1)
            case _:
                return self._of_operation(node, depth + 1)

    def _of_call(self, call: ast.Call, depth: int) -> list[str]:
        """The paths of `os.path.dirname(path)`, `os.path.join(path, "part")`, `Path(path)` and `path.resolve()`."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        first, *rest = [*call.args, call.func.value] if isinstance(call.func, ast.Attribute) else call.args or [call]
        if name == "join" and call.args:
            parts = [_text(each) for each in call.args[1:]]
            found = self.paths(first, depth) if all(parts) else []
            return [posixpath.normpath(posixpath.join(each, *parts)) for each in found]
        if name == "dirname" and rest:
            return _above(self.paths(first, depth))
        return self.paths(first, depth) if name in _SAME else []

    def _of_operation(self, node: ast.AST, depth: int) -> list[str]:
        """The paths of `path.parent`, `path.parents[1]`, `path / "part"` and `path + "/part"`."""
        match node:
            case ast.Attribute(value=value, attr="parent"):
                return _above(self.paths(value, depth))
            case ast.Subscript(
                value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(count))
            ):
                found = self.paths(value, depth)
                for _ in range(min(count, _MAX_DEPTH) + 1):
                    found = _above(found)
                return found
            case ast.BinOp(left=left, op=ast.Div() | ast.Add() as operator, right=ast.Constant(value=str(text))):
                separator = "/" if isinstance(operator, ast.Div) else ""
                return [posixpath.normpath(f"{each}{separator}{text}") for each in self.paths(left, depth)]
        return []


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ".." if ast.unparse(node) in ("os.pardir", "os.path.pardir") else ""


def _relative(path: str, text: str) -> list[str]:
    """A relative path, named in the directory of the file, in those above it and in the root."""
    if text.startswith(("/", "~")):
        return []
    parts = path.split("/")[:-1]
    folders = dict.fromkeys("/".join(parts[:end]) for end in range(len(parts), -1, -1))
    return [posixpath.normpath(posixpath.join(folder, text)) for folder in folders]


def _above(paths: list[str]) -> list[str]:
    return [posixpath.normpath(posixpath.join(each, "..")) for each in paths]


def _has_files(root: Path, path: str) -> bool:
    """Whether a directory is in the checkout and is not empty, as that of a submodule can be."""
    if path == "..":  # contains the clone, and no modules
        return True
    if path.startswith(("../", "/")):
        return False
    try:
        return any((root / path).iterdir())
    except (OSError, ValueError):
        return False
