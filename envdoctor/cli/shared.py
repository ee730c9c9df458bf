"""What every command shares: the applications, the options that several take, and how a command ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from envdoctor.core.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from envdoctor.core.errors import EnvdoctorError
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

Work = TypeVar("Work", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command that takes no empty value for one that is left out: `--venv "$VENV"` with VENV not set."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; where the default says something, as that of --hub, an empty value says "nothing"."""
        rest = super().parse_args(ctx, args)
        for each in self.params:
            value = ctx.params.get(each.name)
            empty = value == "" or (isinstance(value, list | tuple) and "" in value)
            if empty and not each.default and ctx.get_parameter_source(each.name).name == "COMMANDLINE":
                raise typer.BadParameter("it is empty; leave it out, or give a value", ctx=ctx, param=each)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run; Ctrl-C before the work itself begins ends as it does later."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None


class App(typer.Typer):
    """An application of such commands."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Work], Work]:
        """Add a command."""
        return super().command(name, cls=Command, **options)


app = App(
    name="envdoctor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it starts 90 ms sooner and reads well in a pipe
    context_settings={"help_option_names": ["-h", "--help"]},
)
profiles_app = App(no_args_is_help=False, rich_markup_mode=None)
app.add_typer(profiles_app, name="profiles")
facts_app = App(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(facts_app, name="facts")


class Format(str, Enum):
    """How a result is printed."""

    human = "human"
    json = "json"
    github = "github"
    sarif = "sarif"


FormatOption = Annotated[
    Format, typer.Option("--format", help="human; json: one envelope; github: annotations; sarif.")
]
MachineOption = Annotated[
    str, typer.Option("--machine", metavar="FILE|NAME", help="A recorded machine instead of this one.")
]
FactOption = Annotated[
    list[str] | None,
    typer.Option("--fact", metavar="NAME=VALUE", help="Replace one fact, as driver.version=570.26."),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME|FILE", help="A bundled profile, or a TOML file of yours.")
]
VenvOption = Annotated[str, typer.Option("--venv", metavar="PATH", help="The environment's folder.")]
PythonOption = Annotated[
    str, typer.Option("--python", metavar="PATH", help="What holds the stack: a path, or a name on PATH.")
]
PythonVersionOption = Annotated[
    str, typer.Option("--python", metavar="X.Y", help="The Python version to resolve for.")
]


class ProgressForm(str, Enum):
    """How progress is told on stderr."""

    auto = "auto"
    json = "json"


ProgressOption = Annotated[
    ProgressForm, typer.Option("--progress", help="auto: a live line, or lines in a pipe; json: an object a line.")
]


def finish(
    command: str,
    form: Format,
    work: Callable[[LazyReporter], CommandResult],
    progress: ProgressForm = ProgressForm.auto,
) -> None:
    """Do the work, print its answer or its error, and end with its exit code."""
    from envdoctor.core.errors import foreseen
    from envdoctor.core.processes import ended_as_by_ctrl_c
    from envdoctor.output.reporter import LazyReporter

    reporter = LazyReporter(json_lines=progress is ProgressForm.json)
    try:
        with ended_as_by_ctrl_c():  # probes run in threads, where no signal arrives
            answer = work(reporter)
    except Exception as error:
        reporter.close()
        told = foreseen(error)
        if told is None:
            raise
        _print_error(command, form, told)
        raise typer.Exit(told.exit_code) from None
    except KeyboardInterrupt:
        reporter.close()
        typer.echo("interrupted", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    reporter.close()
    _print(command, form, answer)
    raise typer.Exit(answer.exit_code)


def alone(option: str, others: Mapping[str, object], *, why: str, hint: str) -> None:
    """Raise BadInput if `option` is combined with options that it would ignore."""
    from envdoctor.core.errors import BadInput

    if given := [name for name, value in others.items() if value]:
        raise BadInput(
            f"{option} cannot be combined with {', '.join(given)}",
            expected=f"{option} without {' and '.join(given)}: {why}",
            hint=hint,
        )


def _print(command: str, form: Format, answer: CommandResult) -> None:
    if form is Format.human:
        from envdoctor.output.human import render

        render(answer)
    else:
        _print_for_programs(_machine_form(form)(command, answer, None))


def _print_error(command: str, form: Format, error: EnvdoctorError) -> None:
    if form is Format.human:
        from envdoctor.output.human import render_error

        render_error(error)
    else:
        _print_for_programs(_machine_form(form)(command, None, error))


def _print_for_programs(text: str) -> None:
    """Bytes of UTF-8, whatever the terminal's encoding is: JSON and annotations are read by programs."""
    typer.echo(text.encode("utf-8", "replace"), nl=bool(text))


def _machine_form(form: Format) -> Callable[[str, CommandResult | None, EnvdoctorError | None], str]:
    """What prints a result for programs; each is imported only when it is asked for."""
    if form is Format.json:
        from envdoctor.output.envelope import to_json

        return to_json
    if form is Format.github:
        from envdoctor.output.github import to_github

        return to_github
    from envdoctor.output.sarif import to_sarif

    return to_sarif
