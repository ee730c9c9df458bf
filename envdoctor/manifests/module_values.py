"""Values of a Python module that follow from its text: constants, lists, tables, and calls of simple functions.

The module is not run. What depends on the machine, on other files or on other modules has no value.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from envdoctor.core.patterns import lazy_pattern

_MAX_STEPS = 20_000
_MAX_DEPTH = 20  # of calls
_MAX_SIZE = 5_000  # of a list or a text
_FILE_NAME = lazy_pattern(r"(?:[\w.-]+/)*[\w.-]+\.(?:txt|in)")
_TABLE_OF_REQUIREMENTS = lazy_pattern(r"\bre\.(?:findall|match|search|split)\b|\.split\(")
_NAME_OF_REQUIREMENT = lazy_pattern(r"[A-Za-z0-9][\w.-]*")
_METHODS = frozenset({"copy", "keys", "values", "items", "split", "splitlines", "strip", "rstrip", "lstrip"})
_CONVERSIONS = {"list": list, "tuple": list, "sorted": list, "set": list, "str": str, "dict": dict}

_FINDS = frozenset({"exists", "isfile", "is_file"})


class NoValueError(Exception):
    """An expression whose value does not follow from the text of the module."""


class FileLines(NamedTuple):
    """The requirements in a file that the module reads."""

    path: str


class Unread(NamedTuple):
    """An item of a list without a known value, or a statement about `name` that depends on a condition."""

    line: int
    text: str
    name: str = ""


class Text(str):
    """A text with the line that states it."""

    line = 0

    @classmethod
    def at(cls, value: str, line: int) -> Text:
        """A text on a line."""
        text = cls(value)
        text.line = line
        return text


class ModuleValues:
    """Evaluates the names and expressions of a module. `unread` are statements that depend on a condition."""

    def __init__(self, tree: ast.Module, has_file: Callable[[str], bool]) -> None:
        self.has_file = has_file
        self.names: dict[str, Any] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.used: dict[str, set[str]] = {}  # name -> names in its assignments
        self.unread: list[Unread] = []
        self.steps = 0
        self._run(tree.body)

    def value(self, node: ast.AST) -> Any:
        """The value of an expression. Raises NoValueError."""
        return self._value(node, {}, 0)

    def run_body(self, body: Iterable[ast.stmt]) -> None:
        """Evaluate the statements of a function that calls setup()."""
        self._run(body)

    def _run(self, body: Iterable[ast.stmt], *, is_conditional: bool = False) -> None:
        for each in body:
            if isinstance(each, ast.FunctionDef):
                self.functions[each.name] = each
            elif isinstance(each, ast.With):
                self._open_files(each)
                self._run(each.body, is_conditional=is_conditional)
            elif isinstance(each, ast.Try) or (isinstance(each, ast.If) and self._finds_file(each.test)):
                self._run(each.body, is_conditional=is_conditional)
                for handler in each.handlers if isinstance(each, ast.Try) else ():  # it can add to a list
                    changes = [inner for inner in handler.body if not isinstance(inner, ast.Assign | ast.AnnAssign)]
                    self._run(changes, is_conditional=True)
            elif isinstance(each, ast.If):
                is_main = "__main__" in ast.unparse(each.test)
                for part in (each.body, each.orelse):
                    self._run(part, is_conditional=is_conditional or not is_main)
            elif isinstance(each, ast.For):
                self._repeat(each)
            else:
                self._assign(each, is_conditional=is_conditional)

    def _finds_file(self, test: ast.expr) -> bool:
        """Whether a condition is `os.path.exists(path)` of a text file that the project has."""
        if not isinstance(test, ast.Call) or _called(test) not in _FINDS:
            return False
        read = next((each for arg in test.args if isinstance(each := self._known(arg, {}, 0), FileLines)), None)
        path = read.path if read else self._file_name(test)
        return bool(path) and self.has_file(path)

    def _open_files(self, node: ast.With) -> None:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._bind(item.optional_vars.id, item.context_expr)

    def _repeat(self, node: ast.For) -> None:
        """A loop. One that appends the lines of a file to a list adds the file."""
        lines = self._known(node.iter, {}, 0)
        if not isinstance(lines, FileLines):
            self._run(node.body, is_conditional=True)
            return
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "append":
                holder = self._known(each.func.value, {}, 0)
                if isinstance(holder, list):
                    holder.append(lines)

    def _assign(self, node: ast.stmt, *, is_conditional: bool) -> None:
        """An assignment, or a call that changes a list or a table. In a branch, it is recorded as not read."""
        target, value = _target_and_value(node)
        if target is None or value is None:
            return
        name = next((each.id for each in ast.walk(target) if isinstance(each, ast.Name)), "")
        self.used.setdefault(name, set()).update(names_in(value))
        is_binding = isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign)
        if is_conditional and (name in self.names or not is_binding):
            self.unread.append(Unread(node.lineno, ast.unparse(node), name))
        elif is_binding:
            self._bind(name, value)
        else:
            self._change(target, value, node, name)

    def _bind(self, name: str, node: ast.AST) -> None:
        try:
            self.names[name] = self.value(node)
        except NoValueError:
            self.names.pop(name, None)

    def _change(self, target: ast.expr, value: ast.expr, node: ast.stmt, name: str) -> None:
        """`names += [...]`, `names.append(...)`, `table["key"] = ...`, `table["key"] += ...`, `table.update(...)`."""
        try:
            found = self.value(value)
            if isinstance(target, ast.Subscript) and isinstance(node, ast.Assign):
                holder, key = self.value(target.value), self.value(target.slice)
                if isinstance(holder, dict):
                    holder[key] = found
                return
            holder = self.value(target)
        except NoValueError:
            self.unread.append(Unread(node.lineno, ast.unparse(node), name))
            return
        if isinstance(holder, list) and isinstance(node, ast.Expr) and _called(node.value) == "append":
            holder.append(found)
        elif isinstance(holder, list) and len(holder) < _MAX_SIZE and isinstance(found, list | FileLines):
            holder.extend(_items(found))
        elif isinstance(holder, dict) and isinstance(found, dict):
            holder.update(found)

    def _value(self, node: ast.AST, local: dict[str, Any], depth: int) -> Any:
        self.steps += 1
        if self.steps > _MAX_STEPS or depth > _MAX_DEPTH:
            raise NoValueError
        method = getattr(self, f"_value_of_{type(node).__name__.lower()}", None)
        if method is None:
            raise NoValueError
        value = method(node, local, depth)
        if isinstance(value, str | list | dict) and len(value) > _MAX_SIZE:
            raise NoValueError
        return value

    def _value_of_constant(self, node: ast.Constant, _local: dict[str, Any], _depth: int) -> Any:
        return Text.at(node.value, node.lineno) if isinstance(node.value, str) else node.value

    def _value_of_name(self, node: ast.Name, local: dict[str, Any], _depth: int) -> Any:
        if node.id in local:
            return local[node.id]
        if node.id in self.names:
            return self.names[node.id]
        raise NoValueError

    def _value_of_list(self, node: ast.List | ast.Tuple | ast.Set, local: dict[str, Any], depth: int) -> list[Any]:
        """A list. An item without a value becomes `Unread`: the others are read."""
        found: list[Any] = []
        for each in node.elts:
            inner = each.value if isinstance(each, ast.Starred) else each
            try:
                value = self._value(inner, local, depth)
                found += _items(value) if isinstance(each, ast.Starred) else [value]
            except NoValueError:
                found.append(Unread(each.lineno, ast.unparse(each)))
        return found

    _value_of_tuple = _value_of_set = _value_of_list

    def _value_of_dict(self, node: ast.Dict, local: dict[str, Any], depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, each in zip(node.keys, node.values, strict=True):
            if key is None:
                spread = self._value(each, local, depth)
                found |= spread if isinstance(spread, dict) else {}
                continue
            name = _hashable(self._value(key, local, depth))
            try:
                found[name] = self._value(each, local, depth)
            except NoValueError:
                found[name] = [Unread(each.lineno, ast.unparse(each))]
        return found

    def _value_of_joinedstr(self, node: ast.JoinedStr, local: dict[str, Any], depth: int) -> Text:
        parts = []
        for each in node.values:
            value = self._value(each.value if isinstance(each, ast.FormattedValue) else each, local, depth)
            parts.append(str(value))
        return Text.at("".join(parts), node.lineno)

    def _value_of_binop(self, node: ast.BinOp, local: dict[str, Any], depth: int) -> Any:
        left, right = self._value(node.left, local, depth), self._value(node.right, local, depth)
        if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            return Text.at(left + right, node.lineno)
        if isinstance(node.op, ast.Add) and isinstance(left, list | FileLines):
            return [*_items(left), *_items(right)]
        if isinstance(node.op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
            return left | right
        raise NoValueError

    def _value_of_subscript(self, node: ast.Subscript, local: dict[str, Any], depth: int) -> Any:
        holder, key = self._value(node.value, local, depth), self._value(node.slice, local, depth)
        try:
            return holder[key]
        except (KeyError, IndexError, TypeError) as error:
            raise NoValueError from error

    def _value_of_listcomp(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, local: dict[str, Any], depth: int
    ) -> Any:
        """A list of each item, with its conditions ignored: `[line for line in lines if line]`."""
        source = self._value(node.generators[0].iter, local, depth)
        if isinstance(source, FileLines):
            return source
        found: list[Any] = []
        for each in self._bindings(node.generators, local, depth):
            try:
                found.append(self._value(node.elt, each, depth))
            except NoValueError:
                found.append(Unread(node.lineno, ast.unparse(node.elt)))
        return found

    _value_of_generatorexp = _value_of_setcomp = _value_of_listcomp

    def _bindings(
        self, generators: list[ast.comprehension], local: dict[str, Any], depth: int
    ) -> Iterator[dict[str, Any]]:
        (first, *others) = generators
        for item in _items(self._value(first.iter, local, depth)):
            bound = local | _bound(first.target, item)
            yield from self._bindings(others, bound, depth) if others else (bound,)

    def _value_of_dictcomp(self, node: ast.DictComp, local: dict[str, Any], depth: int) -> dict[Any, Any]:
        """A table; a pattern that separates the names of requirements from their versions makes one of names."""
        if _TABLE_OF_REQUIREMENTS.search(ast.unparse(node)):
            source = node.generators[0].iter
            inner = source.generators[0].iter if isinstance(source, ast.GeneratorExp | ast.ListComp) else source
            texts = [each for each in _items(self._value(inner, local, depth)) if isinstance(each, str)]
            return {match[0]: each for each in texts if (match := _NAME_OF_REQUIREMENT.match(each))}
        return {
            _hashable(self._value(node.key, each, depth)): self._value(node.value, each, depth)
            for each in self._bindings(node.generators, local, depth)
        }

    def _value_of_call(self, node: ast.Call, local: dict[str, Any], depth: int) -> Any:
        name = _called(node)
        if (
            isinstance(node.func, ast.Attribute)
            and (holder := self._known(node.func.value, local, depth)) is not None
        ):
            return _method(holder, name, [self._value(each, local, depth) for each in node.args])
        if isinstance(node.func, ast.Name) and name in self.functions:
            return self._result(self.functions[name], node, local, depth)
        if name == "dict" and not node.args:
            return {each.arg: self._value(each.value, local, depth) for each in node.keywords if each.arg}
        read = next(
            (each for arg in node.args if isinstance(each := self._known(arg, local, depth), FileLines)), None
        )
        if read or (path := self._file_name(node)):
            return read or FileLines(path)
        if isinstance(node.func, ast.Name) and name in _CONVERSIONS and len(node.args) == 1:
            return _CONVERSIONS[name](self._value(node.args[0], local, depth))
        raise NoValueError

    def _known(self, node: ast.AST, local: dict[str, Any], depth: int) -> Any:
        """The value of an expression; None without one."""
        try:
            return self._value(node, local, depth)
        except NoValueError:
            return None

    def _result(self, function: ast.FunctionDef, call: ast.Call, local: dict[str, Any], depth: int) -> Any:
        """The result of a function whose first statement is `return`, or the file that a function reads."""
        arguments = self._value_of_list(ast.List(call.args), local, depth)
        names = [each.arg for each in function.args.args]
        bound = dict(zip(names, arguments, strict=False))
        if function.args.vararg:
            bound[function.args.vararg.arg] = arguments[len(names) :]
        body = [each for each in function.body if not isinstance(each, ast.Expr)]
        if body and isinstance(body[0], ast.Return) and body[0].value is not None:
            return self._value(body[0].value, bound, depth + 1)
        if path := self._joined(function, bound) or self._file_name(call) or self._file_name(function):
            return FileLines(path)
        raise NoValueError

    def _joined(self, node: ast.AST, local: dict[str, Any]) -> str:
        """The first path to a text file that `os.path.join(root, "requirements", name)` makes, without its root."""
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and _called(each) == "join":
                parts = [self._known(part, local, 0) for part in each.args]
                path = "/".join(part for part in parts if isinstance(part, str))
                if _FILE_NAME.fullmatch(path):
                    return path
        return ""

    def _file_name(self, node: ast.AST) -> str:
        """The only text file that an expression or a function names; empty if it names none or several."""
        if path := self._joined(node, {}):
            return path
        values = (self.names.get(each.id) if isinstance(each, ast.Name) else getattr(each, "value", None)
                  for each in ast.walk(node) if isinstance(each, ast.Constant | ast.Name))  # fmt: skip
        found = {each for each in values if isinstance(each, str) and _FILE_NAME.fullmatch(each)}
        return str(next(iter(found))) if len(found) == 1 else ""


def names_in(node: ast.AST) -> set[str]:
    """The names that an expression uses."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _target_and_value(node: ast.stmt) -> tuple[ast.expr | None, ast.expr | None]:
    """What a statement changes, and the new or added value."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return node.targets[0], node.value
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return node.target, node.value
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
        return (call.func.value, call.args[0]) if call.func.attr in ("append", "extend", "update") else (None, None)
    return None, None


def _called(node: ast.expr) -> str:
    """The name of a called function or method."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _method(holder: Any, name: str, arguments: list[Any]) -> Any:
    """The result of a method of a list, a table or a text. A file stays the same file."""
    if isinstance(holder, FileLines):
        return holder
    if name not in _METHODS or not isinstance(holder, list | dict | str) or not hasattr(holder, name):
        raise NoValueError
    try:
        found = getattr(holder, name)(*arguments)
    except (TypeError, ValueError) as error:
        raise NoValueError from error
    line = getattr(holder, "line", 0)
    if isinstance(found, str):
        return Text.at(found, line)
    return [Text.at(each, line) if isinstance(each, str) else each for each in found] if name != "copy" else found


def _items(value: Any) -> list[Any]:
    """The items of a list, or a file as the only item."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, FileLines | Unread):
        return [value]
    raise NoValueError


def _bound(target: ast.expr, item: Any) -> dict[str, Any]:
    """The names of the target of a loop, with their values."""
    if isinstance(target, ast.Name):
        return {target.id: item}
    if isinstance(target, ast.Tuple) and isinstance(item, list | tuple) and len(target.elts) == len(item):
        parts = [_bound(part, each) for part, each in zip(target.elts, item, strict=True)]
        return {name: value for part in parts for name, value in part.items()}
    raise NoValueError


def _hashable(value: Any) -> Any:
    """The value as a key of a table."""
    if not isinstance(value, str | int | float | bool):
        raise NoValueError
    return value
