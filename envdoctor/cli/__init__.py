"""The command line: parse, call, render, exit code. No logic.

Importing a module of commands is what puts them on the application.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from envdoctor.cli import diagnosing, environments, fleet, keeping, planning, proving, runs, training
from envdoctor.cli.shared import app
from envdoctor.core.errors import EXIT_FAILED
from envdoctor.core.paths import expanded

__all__ = ["app", "diagnosing", "environments", "fleet", "keeping", "main", "planning", "proving", "runs", "training"]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Doctor and provisioner for GPU training environments.

    Example: envdoctor quickstart
    """
    if version:
        from envdoctor import __version__

        typer.echo(f"envdoctor {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line. Whatever goes wrong in here that nobody foresaw is told without a traceback."""
    from envdoctor.output import streams

    streams.prepare()
    try:
        try:
            app([_with_home(word) for word in sys.argv[1:]])
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except streams.OutputLost as error:
        from envdoctor.output.human import render_error

        render_error(error)
        sys.exit(error.exit_code)
    except Exception as error:
        _print_fault(error)
        sys.exit(EXIT_FAILED)


def _with_home(word: str) -> str:
    """`--venv=~/x` as the shell would give `--venv ~/x`: bash leaves a ~ behind = as it stands."""
    option, _, path = word.partition("=")
    return f"{option}={expanded(path)}" if option.startswith("--") and path.startswith("~/") else word


def _print_fault(error: Exception) -> None:
    """A fault of envdoctor itself: the trace goes into a file, for the report."""
    import tempfile
    import traceback

    typer.echo(f"error: envdoctor itself failed: {type(error).__name__}: {error}", err=True)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="envdoctor-fault-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as full:
        typer.echo(f"hint: please report it; its trace could not be kept: {full}", err=True)
    else:
        typer.echo(f"hint: please report it with {file.name}", err=True)
