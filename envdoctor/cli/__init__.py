"""The command line: parse arguments, call a command, render its result. It contains no logic."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer

from envdoctor.cli.application import build_group
from envdoctor.commands.registry import GROUPS
from envdoctor.core.errors import EXIT_FAILED, BadInput, EnvdoctorError, as_envdoctor_error
from envdoctor.core.paths import expand_home

__all__ = ["app", "main"]

ROOT_OPTIONS = ("-h", "--help", "--version")


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and the date of the tables.")] = False,
) -> None:
    """Diagnose, install, verify and train in GPU environments.

    Example: envdoctor quickstart
    """
    if version:
        from envdoctor import __version__
        from envdoctor.knowledge.tables import tables_date

        typer.echo(f"envdoctor {__version__} (compatibility tables of {tables_date()})")
        raise typer.Exit


app = build_group(
    "envdoctor",
    _root,
    help=inspect.getdoc(_root),
    invoke_without_command=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line. An unexpected exception is reported without a traceback."""
    from envdoctor.output import streams

    streams.prepare()
    words = [_expand_home(argument) for argument in sys.argv[1:]]
    option_first = words and words[0].startswith("-") and words[0] not in ROOT_OPTIONS
    if option_first or (words[1:] and words[0] in GROUPS and words[1].startswith("-")):
        from envdoctor.cli.usage import common_options_last

        words = common_options_last(words)
    try:
        try:
            code = app(words, prog_name="envdoctor", standalone_mode=False)
        except BadInput as error:
            _print_usage_error(words, error)
            code = error.exit_code
        finally:
            sys.stdout.flush()  # here, where an error on a full disk can still be reported
    except streams.OutputLost as error:
        from envdoctor.output.human import render_error

        render_error(error)
        code = error.exit_code
    except Exception as error:
        if known := as_envdoctor_error(error):
            _print_usage_error(words, known)
        else:
            _print_internal_error(error)
        code = known.exit_code if known else EXIT_FAILED
    sys.exit(code)


def _print_usage_error(words: list[str], error: EnvdoctorError) -> None:
    from envdoctor.cli.finish import print_error
    from envdoctor.cli.usage import command_of, requested_format

    print_error(command_of(words), requested_format(words), error)


def _expand_home(argument: str) -> str:
    """Expand `~` in `--venv=~/x`, which bash does only in `--venv ~/x`."""
    option, _, path = argument.partition("=")
    return f"{option}={expand_home(path)}" if option.startswith("--") and path.startswith("~/") else argument


def _print_internal_error(error: Exception) -> None:
    """Report a bug in envdoctor. The traceback goes to a file to attach to the report."""
    import tempfile
    import traceback

    typer.echo(f"error: internal error: {type(error).__name__}: {error}", err=True)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="envdoctor-fault-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            traceback.print_exception(error, file=file)
    except OSError as write_error:
        typer.echo(f"hint: please report it; the traceback could not be written: {write_error}", err=True)
    else:
        typer.echo(f"hint: please report it and attach {file.name}", err=True)
