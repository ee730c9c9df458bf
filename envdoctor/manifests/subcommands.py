"""The functions with which a program starts: that of its entry point, and that of its subcommand."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from envdoctor.manifests.program_launches import Program

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def entry_functions(body: Sequence[ast.stmt], program: Program) -> tuple[str, ...]:
    """The functions of a file that the start of a program calls, without those that its code calls.

    A subcommand is a function with a decorator of click or Typer: `@cli.command("pre-train")`.
    """
    word = program.subcommand
    commands = (each.name for each in body if isinstance(each, _Function) and word and _command(each) == word)
    return tuple(filter(None, (program.function, next(commands, ""))))


def _command(function: _Function) -> str:
    """The name of the subcommand that a function is; empty for others."""
    for each in function.decorator_list:
        if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Attribute) or each.func.attr != "command":
            continue
        stated = [*each.args[:1], *(keyword.value for keyword in each.keywords if keyword.arg == "name")]
        name = stated[0].value if stated and isinstance(stated[0], ast.Constant) else None
        return name if isinstance(name, str) else "" if stated else function.name.lower().replace("_", "-")
    return ""
