"""Shared parts of the command line: applications, common options, and how a command runs and ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from envdoctor.commands.registry import COMMANDS, GROUPS, summary_of
from envdoctor.core.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from envdoctor.core.errors import EnvdoctorError
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command that rejects empty values, as in `--venv "$VENV"` with VENV not set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. An empty value is valid only for an option whose default is not empty, as --hub."""
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            empty = value == "" or (isinstance(value, list | tuple) and "" in value)
            given = ctx.get_parameter_source(parameter.name).name == "COMMANDLINE"
            if empty and given and not parameter.default:
                raise typer.BadParameter("it is empty; leave it out, or give a value", ctx=ctx, param=parameter)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C before its work begins ends it as it does later."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None


class Group(TyperGroup):
    """The application, which lists its commands in the order of the registry."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands and groups."""
        order = [command.name.split()[0] for command in COMMANDS]
        return sorted(super().list_commands(ctx), key=order.index)


class App(typer.Typer):
    """An application whose commands take their summaries from the registry of commands."""

    def __init__(self, group: str = "", **options: Any) -> None:
        super().__init__(rich_markup_mode=None, **options)  # plain help starts 90 ms sooner and suits a pipe
        self.group = group

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Add a command. Its docstring follows the summary in the help."""

        def add(function: Function) -> Function:
            own_name = name or function.__name__
            summary = summary_of(f"{self.group} {own_name}".strip())
            details = f"{summary}.\n\n{cleandoc(function.__doc__ or '')}"
            register = typer.Typer.command(self, own_name, cls=Command, help=details, short_help=summary, **options)
            return register(function)

        return add

    def select_command(self, names: list[str]) -> None:
        """Drop all commands except the named one, if it exists: Typer builds every command, which takes 40 ms."""
        commands = [command for command in self.registered_commands if command.name in names]
        groups = [group for group in self.registered_groups if group.name in names]
        if commands or groups:
            self.registered_commands, self.registered_groups = commands, groups

    def add_group(self, name: str, *, no_args_is_help: bool = True) -> App:
        """Add a group of commands. Its callback's docstring is its help."""
        group = App(name, no_args_is_help=no_args_is_help, short_help=GROUPS[name])
        self.add_typer(group, name=name)
        return group


app = App(
    name="envdoctor",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(str, Enum):
    """Format of the result on stdout."""

    human = "human"
    json = "json"
    github = "github"
    sarif = "sarif"


class ProgressFormat(str, Enum):
    """Format of the progress on stderr."""

    auto = "auto"
    json = "json"


FormatOption = Annotated[
    Format, typer.Option("--format", help="Output format: human, json, github (annotations) or sarif.")
]
MachineOption = Annotated[
    str, typer.Option("--machine", metavar="FILE|NAME", help="Use a recorded machine instead of this one.")
]
FactOption = Annotated[
    list[str] | None,
    typer.Option("--fact", metavar="NAME=VALUE", help="Override one fact, such as driver.version=570.26."),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME|FILE", help="A bundled profile, or your own TOML file.")
]
VenvOption = Annotated[str, typer.Option("--venv", metavar="PATH", help="The folder of the environment.")]
PythonOption = Annotated[
    str, typer.Option("--python", metavar="PATH", help="The environment's interpreter: a path, or a name on PATH.")
]
PythonVersionOption = Annotated[
    str, typer.Option("--python", metavar="X.Y", help="The Python version to resolve for.")
]
OutputOption = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of printing.")
]
ProgressOption = Annotated[
    ProgressFormat,
    typer.Option("--progress", help="Progress format: auto (live line, or lines in a pipe), or json (one per line)."),
]


def finish(
    command: str,
    form: Format,
    work: Callable[[LazyReporter], CommandResult],
    progress: ProgressFormat = ProgressFormat.auto,
) -> None:
    """Run a command, print its result or its error, and exit with its exit code."""
    from envdoctor.core.errors import as_envdoctor_error
    from envdoctor.core.processes import sigterm_as_interrupt
    from envdoctor.output.reporter import LazyReporter

    reporter = LazyReporter(json_lines=progress is ProgressFormat.json)
    try:
        with sigterm_as_interrupt():  # in the main thread: probes run in threads, which receive no signal
            result = work(reporter)
    except Exception as exception:
        reporter.close()
        error = as_envdoctor_error(exception)
        if error is None:
            raise
        _print_error(command, form, error)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        reporter.close()
        typer.echo("interrupted", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    reporter.close()
    _print_result(command, form, result)
    raise typer.Exit(result.exit_code)


def reject_combination(option: str, others: Mapping[str, object], *, reason: str, hint: str) -> None:
    """Raise BadInput if `option` is combined with options that it would ignore."""
    from envdoctor.core.errors import BadInput

    if given := [name for name, value in others.items() if value]:
        raise BadInput(
            f"{option} cannot be combined with {', '.join(given)}",
            expected=f"{option} without {' and '.join(given)}: {reason}",
            hint=hint,
        )


def _print_result(command: str, form: Format, result: CommandResult) -> None:
    if form is Format.human:
        from envdoctor.output.human import render

        render(result)
    else:
        _print_utf8(_formatter(form)(command, result, None))


def _print_error(command: str, form: Format, error: EnvdoctorError) -> None:
    if form is Format.human:
        from envdoctor.output.human import render_error

        render_error(error)
    else:
        _print_utf8(_formatter(form)(command, None, error))


def _print_utf8(text: str) -> None:
    """Print output for programs: always in UTF-8, independent of the encoding of the terminal."""
    typer.echo(text.encode("utf-8", "replace"), nl=bool(text))


def _formatter(form: Format) -> Callable[[str, CommandResult | None, EnvdoctorError | None], str]:
    if form is Format.json:
        from envdoctor.output.envelope import to_json

        return to_json
    if form is Format.github:
        from envdoctor.output.github import to_github

        return to_github
    from envdoctor.output.sarif import to_sarif

    return to_sarif
