"""The command line: parse arguments, call a command, render its result. It contains no logic."""

from __future__ import annotations

import sys

from envdoctor.commands.registry import GROUPS
from envdoctor.core.errors import (
    EXIT_CLOSED_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    BadInput,
    EnvdoctorError,
    as_envdoctor_error,
)

__all__ = ["main"]

ROOT_OPTIONS = ("-h", "--help", "--version")


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
            code = _run(words)
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
            _print_internal_error(words, error)
        code = known.exit_code if known else EXIT_FAILED
    sys.exit(EXIT_CLOSED_PIPE if streams.output_was_closed() else code)


def _run(words: list[str]) -> int:
    """Run a command line and return its exit code."""
    if words in (["-h"], ["--help"]):  # this page needs neither msgspec nor a command
        from envdoctor.cli.help import application_help

        print(application_help())
        return EXIT_OK
    from envdoctor.cli.application import run

    try:
        return run(words)
    except KeyboardInterrupt:  # before the work of the command begins
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _print_usage_error(words: list[str], error: EnvdoctorError) -> None:
    from envdoctor.cli.finish import print_error
    from envdoctor.cli.usage import command_of, requested_format

    print_error(command_of(words), requested_format(words), error)


def _expand_home(argument: str) -> str:
    """Expand `~` in `--venv=~/x`, which bash does only in `--venv ~/x`."""
    option, _, path = argument.partition("=")
    if not (option.startswith("--") and path.startswith("~/")):
        return argument
    from envdoctor.core.paths import expand_home

    return f"{option}={expand_home(path)}"


def _print_internal_error(words: list[str], error: Exception) -> None:
    """Report a bug in envdoctor. The traceback goes to a file to attach to the report."""
    import tempfile
    import traceback

    from envdoctor.cli.common import Format
    from envdoctor.cli.usage import requested_format
    from envdoctor.core.errors import internal_error

    if requested_format(words) is not Format.human:  # its reader expects a document
        _print_usage_error(words, internal_error(error))

    from envdoctor.core.printable import printable
    from envdoctor.redact.output import without_secrets

    message = without_secrets(printable(f"error: internal error: {type(error).__name__}: {error}"))
    print(message, file=sys.stderr)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="envdoctor-fault-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(without_secrets("".join(traceback.format_exception(error))))
    except OSError as write_error:
        print(f"hint: please report it; the traceback could not be written: {write_error}", file=sys.stderr)
    else:
        print(f"hint: please report it and attach {file.name}", file=sys.stderr)
