"""The commands and groups of the registry: they parse their words, print their help and run.

Only the invoked command is built: `envdoctor --help` imports no module of a command. The words are parsed as those of
most programs: `--name VALUE`, `--name=VALUE`, `-n VALUE`, `-nVALUE`, `-qv` for two flags, options and arguments in
any order, and only arguments after `--`. The import of a library for this took a fifth of the time of `check`.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.cli.common import CommonOptions, ProgressOptions
from envdoctor.cli.parameters import HELP, POSITIONAL, Parameter, make_request, record_parameters
from envdoctor.cli.usage import check_format, present_spelling, setting_of
from envdoctor.commands.registry import BY_NAME, GROUPS, child_names, load_run, request_type, summary_of
from envdoctor.core.errors import EXIT_BAD_INPUT, EXIT_OK, BadInput, closest_match, unknown_name

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

VERSION = Parameter(
    name="version", help="Print the version and the date of the tables.", flags=("--version",), kind=bool
)


class Words(NamedTuple):
    """The words of a command line: each option with its value, and the arguments."""

    options: list[tuple[Parameter, str]]
    arguments: list[str]

    def has(self, option: Parameter) -> bool:
        """Whether an option was given."""
        return any(given is option for given, _ in self.options)


class Command:
    """A command, or a group of commands, which may be a command as well."""

    def __init__(self, name: str, parameters: Sequence[Parameter], run: Callable[..., Any] | None = None):
        self.name = name  # the full name, as `fleet check`; empty for envdoctor itself
        self.parameters = tuple(parameters)
        self.run = run  # None: a group that is no command
        self.is_group = not name or name in GROUPS
        self.path = f"envdoctor {name}".rstrip()

    @property
    def details(self) -> str:
        """The description in the help."""
        if self.run is None:
            return f"{summary_of(self.name)}.\n\nExample: {GROUPS[self.name].example}"
        from inspect import cleandoc

        text = cleandoc(request_type(self.run).__doc__ or "")
        return text if self.is_group else f"{summary_of(self.name)}.\n\n{text}"

    @property
    def usage(self) -> str:
        """The words that the command accepts."""
        arguments = [each.usage for each in self.parameters if not each.flags]
        return " ".join(["[OPTIONS]", *arguments, *(["COMMAND", "[ARGS]..."] if self.is_group else [])])

    def bad_input(self, message: str, expected: str = "", hint: str = "") -> BadInput:
        """A usage error of this command."""
        return BadInput(
            message, expected=expected.rstrip(".") or f"{self.path} {self.usage}", hint=hint or f"{self.path} --help"
        )

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """The values of the parameters that were given, by name; only `help` with --help. Raises BadInput."""
        self._reject_old_spelling(list(words))
        options, arguments = given = self.split(self._with_rest_option(list(words)))
        if given.has(HELP):
            return {HELP.name: True}
        found: dict[str, list[str]] = {}
        self._reject_alternatives([option for option, _ in options])
        for option, word in options:
            found.setdefault(option.name, []).append(f"{option.prefix}{word}" if word else word)
        for parameter in self.parameters:
            if not parameter.flags and arguments:
                count = len(arguments) if parameter.repeats else 1
                found[parameter.name], arguments = arguments[:count], arguments[count:]
        known = {parameter.name: parameter for parameter in self.parameters} | {
            each.name: each for each, _ in options
        }
        values = {name: self._convert(known[name], each) for name, each in found.items()}
        for parameter in self.parameters:
            if parameter.required and parameter.name not in values:
                example = re.search(r"Example: (.+)", self.details)
                raise self.bad_input(f"{parameter.label} is missing", parameter.help, example[1] if example else "")
        if arguments:
            raise self.bad_input(
                f"unexpected argument: {' '.join(arguments)}", hint=self._with_venv_option(words, arguments)
            )
        return values

    def _reject_alternatives(self, options: Sequence[Parameter]) -> None:
        """Raise BadInput if two options that set the same value are given: --machine and --gpu."""
        first = {option.name: option for option in reversed(options)}
        for option in options:
            if option.flags != (other := first[option.name].flags):
                message = f"{other[0]} cannot be combined with {option.flags[0]}"
                raise self.bad_input(message, f"{other[0]} or {option.flags[0]}")

    def split(self, words: Sequence[str]) -> Words:
        """Split the words into options and arguments. A group's options end at the name of its command."""
        flags = {flag: each for each in (*self.parameters, HELP) for flag in each.flags}
        found = Words([], [])
        rest = deque(words)
        while rest:
            word = rest.popleft()
            if word == "--":
                break
            if word != "-" and word.startswith("-"):
                found.options.append(self._read_option(word, rest, flags))
                continue
            found.arguments.append(word)
            if self.is_group:
                break
        found.arguments.extend(rest)
        return found

    def _read_option(self, word: str, rest: deque[str], flags: Mapping[str, Parameter]) -> tuple[Parameter, str]:
        """The option of a word and its value, which may be the first word of the rest. Of `-qv`, `-v` is put back."""
        is_long = word.startswith("--")
        name, has_value, value = word.partition("=") if is_long else (word[:2], word[2:], word[2:])
        option = flags.get(name)
        if option is None:
            raise self._unknown_option(name, flags)
        if option.takes_value:
            if not has_value and not rest:
                raise self.bad_input(f"option '{name}' requires an argument")
            return option, value if has_value else rest.popleft()
        if has_value and is_long:
            raise self.bad_input(f"option '{name}' does not take a value")
        if value.startswith("-"):
            raise self._unknown_option("--", flags)
        if value:
            rest.appendleft(f"-{value}")
        return option, ""

    def _convert(self, parameter: Parameter, words: list[str]) -> Any:
        if not parameter.takes_value:
            return True
        try:
            return tuple(map(parameter.convert, words)) if parameter.repeats else parameter.convert(words[-1])
        except ValueError as error:
            raise self.bad_input(f"{parameter.label}: {error}", parameter.valid_values) from None

    def _with_venv_option(self, words: Sequence[str], arguments: list[str]) -> str:
        """The command line with its unexpected argument as --venv; empty if an environment is an argument anyway."""
        names = {each.name: each for each in self.parameters}
        if len(arguments) > 1 or f"venv{POSITIONAL}" in names or "venv" not in names or "--venv" in words:
            return ""
        others = [word for word in words if word != arguments[0]]
        return shlex.join(["envdoctor", *self.name.split(), *others, "--venv", *arguments])

    def _with_rest_option(self, words: list[str]) -> list[str]:
        """The words after `--` as values of the option that takes them, if there is one."""
        flag = next((each.label for each in self.parameters if each.rest), "")
        if not flag or "--" not in words:
            return words
        end = words.index("--")
        return [*words[:end], *(f"{flag}={word}" for word in words[end + 1 :])]

    def _unknown_option(self, name: str, flags: Iterable[str]) -> BadInput:
        if setting := setting_of(self.name, name):
            hint = f"{self.path} RECIPE --set {setting}=VALUE"
            return self.bad_input(f"unknown option '{name}'; {setting} is a setting", hint=hint)
        close = closest_match(name, [flag for flag in flags if flag.startswith("--")], cutoff=0.7)
        return self.bad_input(f"unknown option '{name}'" + (f"; did you mean '{close}'?" if close else ""))

    def _reject_old_spelling(self, words: list[str]) -> None:
        """Raise BadInput with the present command line if an option has the spelling of an earlier version."""
        present, new = present_spelling(self.name, words)
        if (present, new) == (self.name, words):
            return
        try:
            build(present).parse(new)
        except BadInput:  # an option that the new command does not have
            new = []
        raise BadInput(
            f"envdoctor {self.name} {shlex.join(words)}: spelling of an earlier version",
            expected=f"the present spelling, see envdoctor {present} --help",
            hint=shlex.join(["envdoctor", *present.split(), *new]),
        )


def run(words: Sequence[str], name: str = "") -> int:
    """Run a command line, or the words of the command with this name. Returns its exit code. Raises BadInput."""
    command = build(name)
    if not command.is_group:
        return _run_command(command, words)
    given = command.split(words)
    if given.has(HELP):
        return _print_help(command)
    if given.has(VERSION):
        return _print_version()
    if given.arguments:
        child, *rest = given.arguments
        names = child_names(f"{name} ".lstrip())
        if child not in names:
            raise unknown_name("command", child, list(names), hint=f"{command.path} --help")
        return run(rest, f"{name} {child}".lstrip())
    if command.run:
        return _run_command(command, words)
    _print_help(command, sys.stderr)
    return EXIT_BAD_INPUT


def _print_help(command: Command, stream: Any = None) -> int:
    from envdoctor.cli.help import application_help, help_page

    if command.name:
        parameters = (*command.parameters, HELP)
        text = help_page(command.path, command.usage, command.details, parameters, command.is_group)
    else:
        text = application_help()
    print(text, file=stream)
    return EXIT_OK


def _print_version() -> int:
    from envdoctor import __version__
    from envdoctor.knowledge.tables import tables_date

    print(f"envdoctor {__version__} (compatibility tables of {tables_date()})")
    return EXIT_OK


def _run_command(command: Command, words: Sequence[str]) -> int:
    from envdoctor.cli.defaults import config_values
    from envdoctor.cli.finish import finish

    values = command.parse(words)
    if HELP.name in values:
        return _print_help(command)
    values |= config_values(command.name, command.parameters, values)
    options = make_request(CommonOptions, values)
    check_format(command.name, options.output_format, sys.argv[1:])
    function = command.run
    assert function
    takes_reporter = _takes_reporter(function)

    def work(reporter: LazyReporter) -> CommandResult:
        arguments = [reporter] if takes_reporter else []
        return function(make_request(request_type(function), values), *arguments)  # type: ignore[no-any-return]

    return finish(command.name, options, work, make_request(ProgressOptions, values))


def build(name: str) -> Command:
    """Build the command or the group with this full name; envdoctor itself without one."""
    if not name:
        return Command("", [VERSION])
    if name not in BY_NAME:
        return Command(name, [])
    function = load_run(name)
    records = (request_type(function), *([ProgressOptions] if _takes_reporter(function) else []), CommonOptions)
    parameters = [each for record in records for each in record_parameters(record)]
    return Command(name, parameters, function)


def _takes_reporter(function: Callable[..., Any]) -> bool:
    return "reporter" in function.__annotations__
