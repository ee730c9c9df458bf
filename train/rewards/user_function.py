"""User reward functions with TRL's signature. The check parses their source; only the run imports them.

    def f(prompts, completions, completion_ids, trainer_state, **columns):   # every column of the data by name
        return [1.0 if "yes" in text else None for text in completions]   # None: does not apply

If prompts are messages, so are completions: [{"role": "assistant", "content": text}]. The name is FILE.py:function,
or module:function for a module in the working directory or installed in the stack.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regular_files import read_regular_file
from rewards.state import preserve_state
from settings import BadInput, expand_user, suggest

MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
MAX_SOURCE_BYTES = 4 << 20
# Arguments of TRL with these names take precedence over columns. TRL 1.16 passes log_extra and log_metric.
TRL_ARGUMENTS = (
    "prompt",
    "prompts",
    "completion",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
)

OWN_ARGUMENTS = ("step", "evaluation")  # of this trainer, not of TRL


def is_user_reward(name: str) -> bool:
    """Return whether the name has the form FILE.py:function or module:function."""
    location, _, function = name.rpartition(":")
    return function.isidentifier() and (location.endswith(".py") or bool(MODULE.fullmatch(location)))


def check_user_reward(name: str) -> str:
    """Return the name of a reward with an absolute path."""
    return check_user_function(name, "rewards")


def check_user_function(name: str, setting: str) -> str:
    """Return the name with an absolute path, since a run may start in another directory. No code is executed.

    A module that is not in the working directory may be installed in the stack, which only the run can check.
    """
    location, _, function = name.rpartition(":")
    path = expand_user(location) if location.endswith(".py") else _find_module(location)
    if path is None:
        return name
    path = Path(os.path.realpath(path))  # of links that form a loop, too
    try:
        tree = ast.parse(read_regular_file(path, MAX_SOURCE_BYTES), str(path))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        reason = getattr(error, "strerror", None) or getattr(error, "msg", None) or error
        raise BadInput(
            f"settings: {setting}: {name}: {path} cannot be read: {reason}{line}",
            expected="a Python file that defines the function",
            hint=f"--set {setting}=FILE.py:function",
        ) from None
    names = _defined_names(tree.body)
    if function not in names:
        raise BadInput(
            f"settings: {setting}: {name}: {path} defines no {function}{suggest(function, names)}",
            expected=f"one of its functions: {', '.join(names[:10]) or 'none'}",
            hint=f"--set {setting}={location}:{names[0] if names else 'FUNCTION'}",
        )
    return f"{path}:{function}"


def _find_module(module: str) -> Path | None:
    path = Path.cwd().joinpath(*module.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _defined_names(body: list[ast.stmt]) -> list[str]:
    """Return the names that a module defines or imports at its top level, including its if, try and with blocks."""
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
                names += _defined_names(inner)
    return names


class UserReward:
    """A function that is loaded at its first use and called with TRL's arguments."""

    def __init__(self, name: str, encode: Callable[[str], list[int] | None]) -> None:
        """`encode` tokenises completions in an evaluation, where TRL passes no ids."""
        self.name, self._encode = name, encode
        self._function: Callable[..., Any] | None = None

    def compute(self, rows: Sequence[dict[str, Any]], texts: Sequence[str], passed: dict[str, Any]) -> object:
        """Return the result of the function for a batch; `passed` are the arguments from TRL."""
        if self._function is None:
            self._function = load_function(self.name)
        function, prompts = self._function, passed.get("prompts") or [row["prompt"] for row in rows]
        are_messages = not isinstance(prompts[0], str)
        plain = [[{"role": "assistant", "content": text}] if are_messages else text for text in texts]
        columns = {name: [row["columns"].get(name) for row in rows] for name in rows[0].get("columns", {})}
        arguments = {name: values for name, values in columns.items() if name not in TRL_ARGUMENTS} | {
            "prompts": list(prompts),  # copies: a function may modify its lists
            "completions": list(passed.get("completions") or plain),
            "completion_ids": list(passed.get("completion_ids") or [self._encode(text) for text in texts]),
            "trainer_state": passed.get("trainer_state"),
            "log_extra": passed.get("log_extra") or _ignore,
            "log_metric": passed.get("log_metric") or _ignore,
        }
        # The environments of the completions, and what a rollout function returns for them.
        arguments |= {name: passed[name] for name in passed if name not in (*arguments, *OWN_ARGUMENTS)}
        with preserve_state(function) if passed.get("evaluation") else contextlib.nullcontext():
            result = function(**_accepted_arguments(function, arguments))
            return asyncio.run(result) if inspect.iscoroutine(result) else result


def _accepted_arguments(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments for a function with **kwargs, otherwise those that it names."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return arguments
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name in names}


def _ignore(*_: object) -> None:
    """Stand in for the logs that TRL before 1.0 and evaluations do not have."""


def load_function(name: str, setting: str = "rewards") -> Callable[..., Any]:
    """Import the function; any error of its module becomes a BadInput."""
    location, _, function = name.rpartition(":")
    try:
        module = _load_file(Path(location)) if location.endswith(".py") else importlib.import_module(location)
        loaded = getattr(module, function)
    except (Exception, SystemExit) as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise BadInput(
            f"settings: {setting}: {name} cannot be imported by {sys.executable}: {cause}",
            expected="a function that this Python can import: FILE.py:function, or module:function installed in it",
            hint=f'try it: {sys.executable} -c "import runpy; runpy.run_path({location!r})"',
        ) from error
    if not callable(loaded):
        raise BadInput(
            f"settings: {setting}: {name} is a {type(loaded).__name__}", expected="a function",
            hint=f"--set {setting}=FILE.py:function",
        )  # fmt: skip
    return loaded


def _load_file(path: Path) -> Any:
    """Load the file as a module of its package, or under a unique name so that it cannot hide a trainer module."""
    folder, names = path.parent, [path.stem] if path.stem != "__init__" else []
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last, so that a user file settings.py does not hide the trainer's
    if len(names) > 1 or path.stem == "__init__":
        return importlib.import_module(".".join(names))
    return _load_single_file(path, path.stat().st_mtime_ns)


@functools.cache
def _load_single_file(path: Path, _changed: int) -> Any:
    """Load a file once: its functions share their state, and a model that it loads is loaded once."""
    name = f"user_reward_of_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look it up here
    spec.loader.exec_module(module)
    return module
