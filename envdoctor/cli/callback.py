"""The function that Typer calls for a command: its parameters come from the command's request record."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from msgspec import NODEFAULT
from msgspec.structs import replace

from envdoctor.cli.common import CommonOptions, ProgressOptions
from envdoctor.cli.finish import finish
from envdoctor.cli.usage import check_format
from envdoctor.commands.registry import request_type
from envdoctor.core.errors import BadInput
from envdoctor.core.options import Argument, Option, record_fields
from envdoctor.core.record import Record

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter


POSITIONAL = "_argument"  # suffix of the parameter of an option's positional argument


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def command_callback(name: str, run: Callable[..., Any]) -> Callable[..., None]:
    """The callback of a command that calls `run` with its request, and with the reporter if `run` takes one."""
    request = request_type(run)
    takes_reporter = "reporter" in inspect.signature(run).parameters

    def callback(**values: Any) -> None:
        options = make_request(CommonOptions, values)
        check_format(name, options.output_format, sys.argv[1:])

        def work(reporter: LazyReporter) -> CommandResult:
            arguments = [reporter] if takes_reporter else []
            return run(make_request(request, values), *arguments)  # type: ignore[no-any-return]

        progress = make_request(ProgressOptions, values) if takes_reporter else ProgressOptions()
        finish(name, options, work, progress)

    records = (request, *([ProgressOptions] if takes_reporter else []), CommonOptions)
    return _with_signature(callback, [each for record in records for each in record_parameters(record)])


def group_callback(name: str, run: Callable[..., Any]) -> Callable[..., None]:
    """The callback of a group that is a command as well: it does nothing if a subcommand is invoked."""
    command = command_callback(name, run)

    def callback(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is None:
            command(**values)

    parameters = [_parameter("context", typer.Context), *inspect.signature(command).parameters.values()]
    return _with_signature(callback, parameters)


def record_parameters(record: type[Record]) -> Iterator[inspect.Parameter]:
    """The Typer parameters of a request record's fields, in their order."""
    for field in record_fields(record):
        if _is_record(field.type):
            yield from record_parameters(field.type)
            continue
        kind, declaration = get_args(field.type)
        default = inspect.Parameter.empty if field.default is NODEFAULT else field.default
        if get_origin(kind) is tuple:  # repeatable: no default in the help
            kind = list[get_args(kind)[0]]  # type: ignore[misc]
            if default is not inspect.Parameter.empty:
                kind, default = kind | None, None
        if metavar := _argument_of(declaration):
            kind, default = kind | None, None
            dots = "..." if get_origin(get_args(field.type)[0]) is tuple else ""
            positional = typer.Argument(metavar=f"[{metavar}]{dots}", help=declaration.help, show_default=False)
            yield _parameter(field.name + POSITIONAL, Annotated[kind, positional], None)
            declaration = replace(declaration, help=f"The same as {metavar}.")
        yield _parameter(field.name, Annotated[kind, _typer_parameter(declaration)], default)


def make_request(record: type[Record], values: Mapping[str, Any]) -> Any:
    """Create a request record from the values of its parameters."""
    arguments = {}
    for field in record_fields(record):
        if _is_record(field.type):
            arguments[field.name] = make_request(field.type, values)
            continue
        declaration, value = get_args(field.type)[1], values[field.name]
        if _argument_of(declaration):
            value = _merge(declaration, values[field.name + POSITIONAL], value)
            if not value and field.default is NODEFAULT:
                raise _missing(record, declaration)
        if value not in (None, [], ()):  # an option that was not given
            arguments[field.name] = tuple(value) if isinstance(value, list) else value
    return record(**arguments)


def _argument_of(declaration: Option | Argument) -> str:
    """The metavar of the positional argument of an option that may also be one."""
    return declaration.argument if isinstance(declaration, Option) else ""


def _merge(option: Option, positional: Any, value: Any) -> Any:
    """The value of a positional argument and its option. BadInput if they differ; lists are combined."""
    if isinstance(positional, list | tuple):
        return [*positional, *(value or ())]
    if positional and value and positional != value:
        raise BadInput(
            f"{option.argument} {positional} and {option.flag} {value} differ",
            expected=f"{option.argument} or {option.flag}, not both",
            hint=f"leave {option.flag} out",
        )
    return positional or value


# The command that lists the values of an argument; its example names only one of them.
LISTS = {"PROFILE": "envdoctor profiles", "RECIPE": "envdoctor recipes"}


def _missing(record: type[Record], option: Option) -> BadInput:
    example = re.search(r"Example: (.+)", record.__doc__ or "")
    return BadInput(
        f"{option.argument} is missing",
        expected=f"{option.argument}, or {option.flag} {option.metavar}",
        hint=LISTS.get(option.argument, example[1] if example else ""),
    )


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


def _typer_parameter(declaration: Option | Argument) -> Any:
    if isinstance(declaration, Argument):
        return typer.Argument(metavar=declaration.metavar, help=declaration.help)
    names = [name for name in (declaration.flag, declaration.short) if name]
    return typer.Option(
        *names,
        metavar=declaration.metavar,
        help=declaration.help,
        min=declaration.minimum,
        max=declaration.maximum,
    )


def _with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Set the signature and the annotations from which Typer builds the parameters."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function
