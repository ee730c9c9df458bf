"""How a command runs and ends: its result or error is printed, and its exit code returned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from envdoctor.cli.common import CommonOptions, Format, ProgressFormat, ProgressOptions
from envdoctor.core.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from envdoctor.core.errors import EnvdoctorError
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

DATED_COMMANDS = ("check", "audit", "resolve")  # their results depend on what was released since the tables


def finish(
    command: str,
    options: CommonOptions,
    work: Callable[[LazyReporter], CommandResult],
    progress: ProgressOptions = ProgressOptions(),  # noqa: B008  immutable
) -> int:
    """Run a command and print its result or its error. Returns its exit code."""
    from envdoctor.core.errors import as_envdoctor_error
    from envdoctor.core.processes import sigterm_as_interrupt
    from envdoctor.output.display import Display, set_display
    from envdoctor.output.reporter import LazyReporter

    set_display(Display(verbose=options.verbose, color=options.color.value))
    reporter = LazyReporter(
        json_lines=progress.progress is ProgressFormat.json,
        quiet=options.quiet,
        prints_results=options.output_format is Format.human,
    )
    try:
        with sigterm_as_interrupt():  # in the main thread: probes run in threads, which receive no signal
            result = work(reporter)
    except Exception as exception:
        reporter.close()
        error = as_envdoctor_error(exception)
        if error is None:
            raise
        print_error(command, options.output_format, error)
        return error.exit_code
    except KeyboardInterrupt:
        reporter.close()
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    reporter.close()
    _print_result(command, options.output_format, result)
    return result.exit_code


def _print_result(command: str, form: Format, result: CommandResult) -> None:
    if form is Format.human:
        from envdoctor.output.human import render

        render(result)
        if command in DATED_COMMANDS:
            from envdoctor.knowledge.age import age_note

            for line in age_note():
                print(line, file=sys.stderr)
    else:
        _print_for_programs(form, _formatter(form)(command, result, None))


def print_error(command: str, form: Format, error: EnvdoctorError) -> None:
    """Print an error in the requested format."""
    if form is Format.human:
        from envdoctor.output.human import render_error

        render_error(error)
    else:
        _print_for_programs(form, _formatter(form)(command, None, error))


def _print_for_programs(form: Format, text: str) -> None:
    """Print output for programs: always in UTF-8, independent of the encoding of the terminal."""
    from envdoctor.core.printable import printable
    from envdoctor.redact.output import without_secrets

    sys.stdout.flush()
    text = without_secrets(printable(text)) if form is Format.github else text  # JSON was cleaned before its encoding
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "replace") if text else b"")
    sys.stdout.buffer.flush()


def _formatter(form: Format) -> Callable[[str, CommandResult | None, EnvdoctorError | None], str]:
    if form is Format.json:
        from envdoctor.output.envelope import to_json

        return to_json
    if form is Format.github:
        from envdoctor.output.github import to_github

        return to_github
    from envdoctor.output.sarif import to_sarif

    return to_sarif
