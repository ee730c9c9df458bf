"""The calls of functions of other packages that a program makes without a condition. It is parsed, not run."""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from envdoctor.manifests.import_statements import CALLING, EXITS, ImportStatement, imported_by, is_guard, is_main
from envdoctor.manifests.option_values import Values, decides, option_values
from envdoctor.manifests.program_launches import Program
from envdoctor.manifests.subcommands import entry_functions
from envdoctor.manifests.user_input import with_user_input

MAX_FILES = 150
_MAX_IMPORTS = 4  # that a name passes through
# Conditions that hold on a machine with a GPU.
_HOLDS = frozenset({"torch.cuda.is_available()", "True"})
# Methods that libraries call of an object, which is then certainly used.
_CALLED_BY_LIBRARIES = frozenset({
    "__init__", "__post_init__", "__new__", "__call__", "__getitem__", "__iter__", "forward", "training_step",
    "validation_step", "configure_optimizers", "train_dataloader", "val_dataloader", "setup", "prepare_data",
})  # fmt: skip

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Body = Sequence[ast.stmt]


class SourceFiles(Protocol):
    """The files of a checkout."""

    def code(self, path: str) -> str:
        """The Python code of a file."""


class Call(NamedTuple):
    """A call of a function of another package, of `open`, or of a method of an object: `.to_markdown`."""

    name: str  # dotted, with its module
    node: ast.Call
    file: str

    @property
    def place(self) -> str:
        """The file and the line of the call."""
        return f"{self.file}:{self.node.lineno}"

    def argument(self, name: str, position: int = -1) -> str:
        """The expression of an argument; empty without it."""
        found = next((ast.unparse(each.value) for each in self.node.keywords if each.arg == name), "")
        is_there = not found and 0 <= position < len(self.node.args)
        return ast.unparse(self.node.args[position]) if is_there else found


class _Import(NamedTuple):
    module: str
    name: str
    level: int


class _File:
    """The functions, the classes and the imports of a file."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.tree = tree
        self.body = tree.body
        self.functions = {each.name: each for each in tree.body if isinstance(each, _Function)}
        self.classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
        self.imports: dict[str, _Import] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                self.imports |= {
                    each.asname or each.name: _Import(node.module or "", each.name, node.level) for each in node.names
                }
            elif isinstance(node, ast.Import):
                self.imports |= {
                    each.asname or each.name.partition(".")[0]:
                    _Import(each.name if each.asname else each.name.partition(".")[0], "", 0)
                    for each in node.names
                }  # fmt: skip


Finder = Callable[[str, Sequence[str], int], str]  # the file of a module: imported in a path, its parts, its level


def program_calls(checkout: SourceFiles, start: str, program: Program, files: Sequence[str]) -> Iterator[Call]:
    """The calls that a program certainly reaches: of its modules, and of the functions and classes that these use.

    Code under a condition, in a loop that can be empty, or in a `try` with a handler is left out, as is a function
    that only such code uses. Conditions of the program on its options hold as they do with its arguments.
    """
    paths = tuple(files[:MAX_FILES])
    reader = _Reader(checkout, start, program, lambda *module: _with_end(paths, *module))
    found = [file for path in paths if (file := reader.file(path))]
    if start in paths:
        reader.read_methods_of_objects(found)
        yield from (each for each in reader.reached(found) if isinstance(each, Call))


def called_imports(
    checkout: SourceFiles, start: str, program: Program, find: Finder
) -> Iterator[tuple[str, ImportStatement]]:
    """The imports in the program and in the functions that it certainly calls, each with its file."""
    reader = _Reader(checkout, start, program, find)
    file = reader.file(start)
    for each in reader.reached([file] if file else []):
        if not isinstance(each, Call):
            yield each


def _with_end(paths: Sequence[str], path: str, module: Sequence[str], level: int) -> str:
    """The path, among some, that has the parts of a module at its end."""
    if level:
        above = path.split("/")[:-level]
        base = posixpath.join("/".join(above), *module)
        return next((each for each in (f"{base}.py", posixpath.join(base, "__init__.py")) if each in paths), "")
    tails = ("/".join(module) + ".py", "/".join((*module, "__init__.py"))) if module else ()
    found = ((tail, each) for tail in tails for each in paths)
    return next((each for tail, each in found if each == tail or each.endswith(f"/{tail}")), "")


@lru_cache(maxsize=1024)  # programs of a checkout share files
def _read(path: str, code: str) -> _File | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            return _File(path, with_user_input(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Reader:
    """Follows the code of a program from its modules into the functions that it uses."""

    def __init__(self, checkout: SourceFiles, start: str, program: Program, find: Finder) -> None:
        self.checkout = checkout
        self.start = start
        self.program = program
        self.find = find
        self.files: dict[str, _File | None] = {}
        self.seen: set[tuple[str, str, str]] = set()  # file, class, function
        self.waiting: list[tuple[_File, str, _Body]] = []  # with the class of a method
        self.modules: dict[tuple[str, tuple[str, ...], int], _File | None] = {}
        self.owners: dict[str, list[tuple[_File, str]]] = {}  # of methods

    def file(self, path: str) -> _File | None:
        """A file of the checkout; None if it cannot be parsed, and for more than the largest number of files."""
        if path not in self.files and len(self.files) < MAX_FILES:
            self.files[path] = _read(path, self.checkout.code(path))
        return self.files.get(path)

    def read_methods_of_objects(self, files: Sequence[_File]) -> None:
        """Read the methods that the program calls of its objects, if one class of all its files has them."""
        for file in files:
            for node in file.classes.values():
                for each in node.body:
                    if isinstance(each, _Function):
                        self.owners.setdefault(each.name, []).append((file, node.name))

    def reached(self, files: Sequence[_File]) -> Iterator[Call | tuple[str, ImportStatement]]:
        """The calls and the imports of files, and of the functions that these use."""
        self.waiting = [(file, "", file.body) for file in files]
        if start := self.file(self.start):
            entries = entry_functions(start.body, self.program)
            self.waiting.append((start, "", ast.parse("\n".join(f"{each}()" for each in entries)).body))
        values = option_values(start.tree, self.program.arguments) if start else {}
        while self.waiting:
            file, owner, body = self.waiting.pop(0)
            is_start = file.path == self.start
            for node in _certain(
                body, is_script=is_start and not self.program.function, values=values if is_start else {}
            ):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield from ((file.path, each) for each in imported_by(node))
                else:
                    yield from self._of_expression(file, owner, node)

    def _of_expression(self, file: _File, owner: str, node: ast.AST) -> Iterator[Call]:
        for each in _evaluated(node):
            if isinstance(each, ast.Call):
                functions = [each.func, *(each.args[:1] if dotted(each.func) in CALLING else ())]
                for function in functions:
                    yield from self._of_call(file, owner, each, function)

    def _of_call(self, file: _File, owner: str, call: ast.Call, function: ast.expr) -> Iterator[Call]:
        if not isinstance(function, ast.Name | ast.Attribute):
            return
        first, *rest = dotted(function).split(".")
        if first in ("self", "cls") and owner and len(rest) == 1:
            self._use_method(file, owner, rest[0])
        elif first in file.functions or first in file.classes:
            yield from self._use(file, [first, *rest], call)
        elif imported := file.imports.get(first):
            yield from self._of_import(file, imported, rest, call)
        elif isinstance(function, ast.Name) and first == "open":
            yield Call(first, call, file.path)
        elif isinstance(function, ast.Attribute):
            self._use_method_of_object(function.attr)
            yield Call(f".{function.attr}", call, file.path)

    def _of_import(self, file: _File, imported: _Import, rest: list[str], call: ast.Call) -> Iterator[Call]:
        for _ in range(_MAX_IMPORTS):
            dotted = [each for each in imported.module.split(".") if each]
            names = [imported.name] if imported.name else []
            module = self._file(file.path, [*dotted, *names], imported.level)
            if module is not None:
                yield from self._use(module, rest, call)
                return
            module = self._file(file.path, dotted, imported.level)
            if module is None or not names:
                break
            if imported.name in module.functions or imported.name in module.classes:
                yield from self._use(module, [*names, *rest], call)
                return
            if imported.name not in module.imports:
                return
            file, imported = module, module.imports[imported.name]
        if not imported.level:
            yield Call(".".join([*dotted, *names, *rest]), call, file.path)

    def _file(self, path: str, module: Sequence[str], level: int) -> _File | None:
        """The file of the checkout with a module, which the program loads."""
        key = (path if level else "", tuple(module), level)
        if key not in self.modules:
            found = self.find(path, module, level)
            self.modules[key] = self.file(found) if found else None
        return self.modules[key]

    def _use(self, file: _File, names: Sequence[str], call: ast.Call) -> Iterator[Call]:
        """Read a function of the checkout, or a class: what it runs, and the class of another package above it."""
        first, *rest = names or [""]
        if first in file.functions:
            self._add(file, "", file.functions[first])
        elif first in file.classes:
            node = file.classes[first]
            for method in (*_CALLED_BY_LIBRARIES, *rest[:1]):
                self._use_method(file, first, method)
            key = (file.path, first, "")
            if key not in self.seen and not rest:
                self.seen.add(key)
                for base in node.bases:
                    yield from self._of_call(file, "", call, base)

    def _use_method_of_object(self, name: str) -> None:
        """Read a method that one class of the program has, if the program makes an object of it."""
        owners = self.owners.get(name, [])
        if len(owners) == 1 and (owners[0][0].path, owners[0][1], "") in self.seen:
            self._use_method(*owners[0], name)

    def _use_method(self, file: _File, owner: str, name: str) -> None:
        node = file.classes.get(owner)
        for each in node.body if node else ():
            if isinstance(each, _Function) and each.name == name:
                self._add(file, owner, each)

    def _add(self, file: _File, owner: str, function: _Function) -> None:
        key = (file.path, owner, function.name)
        is_generator = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function))
        if key not in self.seen and not is_generator:
            self.seen.add(key)
            self.waiting.append((file, owner, function.body))


def dotted(node: ast.expr) -> str:
    """A name with its attributes, `torch.nn.Linear`; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


def _certain(body: _Body, *, is_script: bool, values: Values) -> Iterator[ast.AST]:
    """The expressions and simple statements that run without a condition, up to one that can end the body."""
    for node in body:
        if not isinstance(node, _Function):
            yield from _parts(node, is_script=is_script, values=values)
        if _ends(node, values):
            return


def _parts(node: ast.stmt, *, is_script: bool, values: Values) -> Iterator[ast.AST]:
    """The parts of a statement that run."""
    match node:
        case ast.ClassDef(body=body):
            yield from _certain(body, is_script=False, values=values)
        case ast.If(test=test, body=body, orelse=other):
            branch = body if ast.unparse(test) in _HOLDS or (is_script and is_main(test)) else _branch(node, values)
            yield test
            yield from (
                _in_both(body, other) if branch is None else _certain(branch, is_script=is_script, values=values)
            )
        case ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.While(test=value) | ast.Match(subject=value):
            yield value
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            yield from (each.context_expr for each in items)
            is_guarded = "suppress" in ast.unparse(items[0])
            yield from () if is_guarded else _certain(body, is_script=is_script, values=values)
        case ast.Try(body=body, handlers=handlers, finalbody=last):
            is_guarded = any(map(is_guard, handlers))
            yield from _certain(last if is_guarded else (*body, *last), is_script=is_script, values=values)
        case ast.TryStar():
            return
        case _:
            yield node


def _branch(node: ast.If, values: Values) -> _Body | None:
    """The branch of a condition that runs with the values of options; None if they do not decide it."""
    holds = decides(node.test, values)
    return None if holds is None else node.body if holds else node.orelse


def _in_both(body: _Body, other: _Body) -> Iterator[ast.Call]:
    """The calls of a class in both branches of a condition: `Chroma.from_documents(...)`, else `Chroma(...)`."""
    used = {_class_of(each) for each in _calls(other)}
    yield from (each for each in _calls(body) if _class_of(each) in used)


def _calls(body: _Body) -> list[ast.Call]:
    nodes = (each for node in _certain(body, is_script=False, values={}) for each in _evaluated(node))
    return [each for each in nodes if isinstance(each, ast.Call) and _class_of(each)]


def _class_of(call: ast.Call) -> str:
    """The name of a class that is called, or whose method is; empty for other functions."""
    first = dotted(call.func).partition(".")[0]
    return first if first[:1].isupper() and not first.isupper() else ""


def _ends(node: ast.stmt, values: Values) -> bool:
    """Whether a statement can end the body: a return, also under a condition; not one that raises an exception."""
    if isinstance(node, _Function | ast.ClassDef):
        return False
    branch = _branch(node, values) if isinstance(node, ast.If) else None
    if branch is not None:
        return any(_ends(each, values) for each in branch)
    if isinstance(node, ast.Raise):
        return True
    return any(
        isinstance(each, ast.Return)
        or (isinstance(each, ast.Call) and isinstance(each.func, ast.Name | ast.Attribute)
            and dotted(each.func) in EXITS)
        for each in ast.walk(node)
    )  # fmt: skip


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that are evaluated: not those of a lambda, or after `and`, `or` and `if`.

    Without recursion, because an expression can have thousands of levels.
    """
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.Lambda():
                continue
            case ast.IfExp(test=test):
                children: list[ast.AST] = [test]
            case ast.BoolOp(values=[first, *_]):
                children = [first]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                children = [node.generators[0].iter]
            case _:
                children = list(ast.iter_child_nodes(node))
        waiting += reversed(children)
