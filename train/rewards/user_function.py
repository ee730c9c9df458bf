"""A reward function of a person's own, in TRL's signature: checked by reading its source, loaded in the run alone.

    def f(prompts, completions, completion_ids, **columns):   # also trainer_state; every column of the data by name
        return [1.0 if "yes" in text else None for text in completions]   # None: does not apply

Where prompts are messages, so are completions: [{"role": "assistant", "content": text}]. Named as FILE.py:function,
or as module:function with the module in the working directory or installed in the stack.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from settings import BadInput, expand_user, suggest

MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
# What TRL gives by these names is not a column; TRL 1.16 gives the two logs, to functions that name them.
GIVEN = (
    "prompt",
    "prompts",
    "completion",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
)


def is_user_reward(name: str) -> bool:
    """Whether the name has the form of FILE.py:function or module:function."""
    where, _, function = name.rpartition(":")
    return function.isidentifier() and (where.endswith(".py") or bool(MODULE.fullmatch(where)))


def check_user_reward(name: str) -> str:
    """The name with its file made absolute, since a run may start elsewhere. Nothing of the file is executed.

    A module that is not in the working directory may be installed in the stack: the run will tell.
    """
    where, _, function = name.rpartition(":")
    path = expand_user(where) if where.endswith(".py") else _find_module(where)
    if path is None:
        return name
    path = path.resolve()
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        reason = getattr(error, "strerror", None) or getattr(error, "msg", None) or error
        raise BadInput(
            f"settings: rewards: {name}: {path} cannot be read: {reason}{line}",
            expected="a file of Python that defines the function",
            hint="--set rewards=FILE.py:function",
        ) from None
    names = _defined(tree.body)
    if function not in names:
        raise BadInput(
            f"settings: rewards: {name}: {path} defines no {function}{suggest(function, names)}",
            expected=f"a function of it: {', '.join(names[:10]) or 'it defines none'}",
            hint=f"--set rewards={where}:{names[0] if names else 'FUNCTION'}",
        )
    return f"{path}:{function}"


def _find_module(module: str) -> Path | None:
    place = Path.cwd().joinpath(*module.split("."))
    found = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in found if path.is_file()), None)


def _defined(body: list[ast.stmt]) -> list[str]:
    """Names of functions, and names assigned or imported, at the top level and under its if and try."""
    names: list[str] = []
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names += [(alias.asname or alias.name).split(".")[0] for alias in node.names]
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            handlers = [handler.body for handler in getattr(node, "handlers", [])]
            for inner in (node.body, getattr(node, "orelse", []), *handlers):
                names += _defined(inner)
    return names


class UserReward:
    """A function, loaded at its first use, that is called as TRL calls it."""

    def __init__(self, name: str, encode: Callable[[str], list[int] | None]) -> None:
        """`encode` makes ids of a completion where TRL gave none, in a look at the held-out rows."""
        self.name, self._encode = name, encode
        self._function: Callable[..., Any] | None = None

    def give(self, rows: Sequence[dict[str, Any]], texts: Sequence[str], given: dict[str, Any]) -> object:
        """What the function returns for a batch."""
        if self._function is None:
            self._function = load_function(self.name)
        function, prompts = self._function, given.get("prompts") or [row["prompt"] for row in rows]
        talks = not isinstance(prompts[0], str)
        plain = [[{"role": "assistant", "content": text}] if talks else text for text in texts]
        columns = {name: [row["columns"].get(name) for row in rows] for name in rows[0].get("columns", {})}
        arguments = {name: values for name, values in columns.items() if name not in GIVEN} | {
            "prompts": list(prompts),  # copies: a function may take its lists apart, and others read them after it
            "completions": list(given.get("completions") or plain),
            "completion_ids": list(given.get("completion_ids") or [self._encode(text) for text in texts]),
            "trainer_state": given.get("trainer_state"),
            "log_extra": given.get("log_extra") or _ignore,
            "log_metric": given.get("log_metric") or _ignore,
        }
        returned = function(**_take(function, arguments))
        return asyncio.run(returned) if inspect.iscoroutine(returned) else returned


def _take(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """All of them for a function with **kwargs, else those that it names."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return arguments
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return arguments
    named = {one.name for one in parameters}
    return {name: value for name, value in arguments.items() if name in named}


def _ignore(*_: object) -> None:
    """TRL before 1.0 has no log for rewards, and a look at the held-out rows belongs to no step."""


def load_function(name: str) -> Callable[..., Any]:
    """Import the function; whatever its module does wrong while it is imported is told."""
    where, _, function = name.rpartition(":")
    try:
        module = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        found = getattr(module, function)
    except (Exception, SystemExit) as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise BadInput(
            f"settings: rewards: {name} cannot be imported by {sys.executable}: {cause}",
            expected="a function that this Python can import: FILE.py:function, or module:function installed in it",
            hint=f'try it: {sys.executable} -c "import runpy; runpy.run_path({where!r})"',
        ) from error
    if not callable(found):
        raise BadInput(
            f"settings: rewards: {name} is a {type(found).__name__}", expected="a function",
            hint="--set rewards=FILE.py:function",
        )  # fmt: skip
    return found


def _load_file(path: Path) -> Any:
    """The file as a module: within its package where it has one, else under a name that hides none of ours."""
    folder, names = path.parent, [path.stem] if path.stem != "__init__" else []
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last: a file of theirs called settings.py must not hide ours
    if len(names) > 1 or path.stem == "__init__":
        return importlib.import_module(".".join(names))
    name = f"user_reward_of_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses and pickle want it
    spec.loader.exec_module(module)
    return module
