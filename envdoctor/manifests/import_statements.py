"""The imports that run whenever a Python file is loaded, or started as a program."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from envdoctor.core.import_guards import permits_absence

# What a handler catches that makes the import in its `try` optional.
_GUARDING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError", "RuntimeError"})
# Functions that call the function which is their argument.
CALLING = frozenset({
    "fire.Fire", "Fire", "tyro.cli", "typer.run", "app.run", "absl.app.run", "asyncio.run", "mp.spawn", "launch",
    "torch.multiprocessing.spawn", "multiprocessing.spawn", "notebook_launcher",
})  # fmt: skip
EXITS = frozenset({"exit", "quit", "sys.exit", "os._exit"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ImportStatement(NamedTuple):
    """An import that loading a file runs: of a module, or of a name of it."""

    line: int
    module: str
    name: str = ""
    level: int = 0  # leading dots
    is_of_script: bool = False  # runs only if the file is the program

    @property
    def top(self) -> str:
        """The top-level module."""
        return self.module.partition(".")[0]


def import_statements(module: ast.Module) -> tuple[ImportStatement, ...]:
    """The imports that run without a condition, and without a handler for a missing module.

    Those in a function of the file are among them if the file calls it without a condition: `main()`.
    """
    functions = {each.name: each for each in module.body if isinstance(each, _Function)}
    return tuple(_statements(module.body, functions))


def _statements(body: Iterable[ast.stmt], functions: Mapping[str, _Function]) -> Iterator[ImportStatement]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported_by(node)
        elif isinstance(node, ast.Try) and not any(map(is_guard, node.handlers)):
            yield from _statements((*node.body, *node.orelse, *node.finalbody), functions)
        elif isinstance(node, ast.With) and not permits_absence(node):
            yield from _statements(node.body, functions)
        elif isinstance(node, ast.If) and is_main(node.test):
            yield from (each._replace(is_of_script=True) for each in _statements(node.body, functions))
        elif isinstance(node, ast.Expr | ast.Assign | ast.Return) and (called := _called(node.value, functions)):
            others = {name: each for name, each in functions.items() if each is not called}
            yield from _statements(_certain_start(called), others)


def imported_by(node: ast.Import | ast.ImportFrom) -> Iterator[ImportStatement]:
    """The imports of a statement."""
    if isinstance(node, ast.Import):
        yield from (ImportStatement(node.lineno, alias.name) for alias in node.names)
        return
    names = ("" if alias.name == "*" else alias.name for alias in node.names)
    yield from (ImportStatement(node.lineno, node.module or "", name, node.level) for name in names)


def _called(value: ast.expr | None, functions: Mapping[str, _Function]) -> _Function | None:
    """The function of the file that an expression calls: `main()`, `sys.exit(main())`, `fire.Fire(main)`."""
    if not isinstance(value, ast.Call):
        return None
    inner = value.args[0] if value.args else None
    if isinstance(value.func, ast.Name) and value.func.id in functions:
        return functions[value.func.id]
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
        return functions.get(inner.func.id)
    if isinstance(inner, ast.Name) and isinstance(value.func, ast.Name | ast.Attribute):
        return functions.get(inner.id) if ast.unparse(value.func) in CALLING else None
    return None


def _certain_start(function: _Function) -> Iterator[ast.stmt]:
    """The statements of a function up to the first one that can end it; none of a generator."""
    parts = list(ast.walk(function))
    if any(isinstance(each, ast.Yield | ast.YieldFrom) for each in parts):
        return
    for node in function.body:
        yield node
        if any(map(_can_end, ast.walk(node))):
            return


def _can_end(node: ast.AST) -> bool:
    is_exit = isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    return isinstance(node, ast.Return | ast.Raise) or (is_exit and ast.unparse(node.func) in EXITS)  # type: ignore[attr-defined]


def is_guard(handler: ast.ExceptHandler) -> bool:
    """Whether a handler replaces what cannot be imported."""
    return catches(handler, _GUARDING)


def catches(handler: ast.ExceptHandler, names: Container[str]) -> bool:
    """Whether a handler is for one of these exceptions, or for all."""
    if handler.type is None:
        return True
    named = (each for each in ast.walk(handler.type) if isinstance(each, ast.Name | ast.Attribute))
    return any((each.id if isinstance(each, ast.Name) else each.attr) in names for each in named)


def is_main(test: ast.expr) -> bool:
    """Whether a condition holds for the program alone."""
    return ast.unparse(test) == "__name__ == '__main__'"
