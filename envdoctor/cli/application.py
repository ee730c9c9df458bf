"""The application with its commands, built from the registry of commands and their request records.

Only the invoked command is built: `envdoctor --help` imports no module of a command.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from envdoctor.commands.registry import (
    BY_NAME,
    GROUPS,
    child_names,
    load_run,
    request_type,
    summary_of,
)
from envdoctor.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, BadInput, unknown_name

# Typer's own click is private; BadParameter is the only class of its usage errors that Typer exports.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class Command(TyperCommand):
    """A command that rejects empty values, as in `--venv "$VENV"` with VENV not set, and earlier spellings."""

    full_name = ""
    rest_option = ""  # the option whose values are the words after `--`

    def get_help(self, ctx: Any) -> str:
        """The page of --help."""
        from envdoctor.cli.help import help_page

        return help_page(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises BadInput."""
        _reject_old_spelling(self.full_name, args)
        if self.rest_option and "--" in args:
            end = args.index("--")
            args = [*args[:end], *(f"{self.rest_option}={word}" for word in args[end + 1 :])]
        with _usage_errors(ctx):
            rest = super().parse_args(ctx, list(args))
            self._reject_empty_values(ctx)
        if not ctx.resilient_parsing:
            from envdoctor.cli.defaults import apply_config

            apply_config(self.full_name, self, ctx)
        return rest

    def _reject_empty_values(self, ctx: Any) -> None:
        """An empty value is valid only for an option whose default is not empty, as --hub."""
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            empty = value == "" or (isinstance(value, list | tuple) and "" in value)
            given = ctx.get_parameter_source(parameter.name).name == "COMMANDLINE"
            if empty and given and not parameter.default:
                raise typer.BadParameter("it is empty; leave it out, or give a value", ctx=ctx, param=parameter)


class Group(TyperGroup):
    """A group of commands. It lists their names and summaries, and builds only the invoked one."""

    prefix = ""  # of the full names of its commands

    def get_help(self, ctx: Any) -> str:
        """The page of --help, with the summaries of the commands."""
        from envdoctor.cli.help import application_help, help_page

        return help_page(self, ctx, self.prefix) if self.prefix else application_help()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the command. Raises BadInput. Without arguments, a group prints its help."""
        if not args and self.no_args_is_help:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(EXIT_BAD_INPUT)
        with _usage_errors(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Build the command that the arguments name."""
        if args[0] not in self.commands:
            hint = f"{ctx.command_path} --help"
            raise unknown_name("command", args[0], list(self.commands), hint=hint)
        name, command, rest = super().resolve_command(ctx, args)
        return name, build(self.prefix + name) if name else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C before its work begins ends it as it does later."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    def build_all(self) -> Group:
        """Build every command, for a program that lists all commands with their options."""
        for name in self.commands:
            command = build(self.prefix + name)
            self.commands[name] = command.build_all() if isinstance(command, Group) else command
        return self


@contextmanager
def _usage_errors(ctx: Any) -> Iterator[None]:
    """Raise BadInput for an error of the parser."""
    try:
        yield
    except UsageError as error:
        from envdoctor.cli.usage import as_bad_input

        raise as_bad_input(error, ctx) from None


def _reject_old_spelling(name: str, words: list[str]) -> None:
    """Raise BadInput with the present command line if an option has the spelling of an earlier version."""
    from envdoctor.cli.usage import present_spelling

    present, new = present_spelling(name, words)
    if (present, new) == (name, words):
        return
    try:
        build(present).make_context(present, list(new))
    except BadInput:  # an option that the new command does not have
        new = []
    raise BadInput(
        f"envdoctor {name} {shlex.join(words)}: spelling of an earlier version",
        expected=f"the present spelling, see envdoctor {present} --help",
        hint=shlex.join(["envdoctor", *present.split(), *new]),
    )


def build(name: str) -> Command | Group:
    """Build the command or the group with this full name. A command's module is imported."""
    if name in GROUPS:
        return _build_registered_group(name)
    from envdoctor.cli.callback import command_callback

    run = load_run(name)
    application = typer.Typer(rich_markup_mode=None, add_completion=False)
    summary = summary_of(name)
    details = f"{summary}.\n\n{_details(run)}"
    register = application.command(name.rpartition(" ")[2], cls=Command, help=details, short_help=summary)
    register(command_callback(name, run))
    command = get_command(application)
    assert isinstance(command, Command)
    command.full_name = name
    command.rest_option = _rest_option(run)
    return command


def _rest_option(run: Callable[..., Any]) -> str:
    from envdoctor.core.options import record_fields

    declarations = [get_args(field.type)[1] for field in record_fields(request_type(run)) if get_args(field.type)]
    return next((each.flag for each in declarations if getattr(each, "rest", False)), "")


def build_group(name: str, callback: Callable[..., None], prefix: str = "", **options: Any) -> Group:
    """Build a group whose commands are only names and summaries. `callback` declares the options of the group."""
    # Plain help instead of Rich's starts 90 ms sooner and suits a pipe.
    application = typer.Typer(name=name, cls=Group, rich_markup_mode=None, add_completion=False, **options)
    application.callback()(callback)
    group = get_command(application)
    assert isinstance(group, Group)
    group.prefix = prefix
    for child in child_names(prefix):
        group.add_command(TyperCommand(child, short_help=summary_of(prefix + child)))
    return group


def _build_registered_group(name: str) -> Group:
    """Build a group of the registry. Without a subcommand it runs the command of the same name, if there is one."""
    summary = summary_of(name)
    if name not in BY_NAME:
        details = f"{summary}.\n\nExample: {GROUPS[name].example}"
        return build_group(name, lambda: None, f"{name} ", short_help=summary, help=details, no_args_is_help=True)
    from envdoctor.cli.callback import group_callback

    run = load_run(name)
    callback, details = group_callback(name, run), _details(run)
    return build_group(name, callback, f"{name} ", short_help=summary, help=details, invoke_without_command=True)


def _details(run: Callable[..., Any]) -> str:
    return inspect.getdoc(request_type(run)) or ""
