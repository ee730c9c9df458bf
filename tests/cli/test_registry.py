"""The registry of commands: complete, resolvable, and the only source of the command line."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import fields
from support.cases import each_case
from support.recorded_results import assert_as_recorded

from envdoctor.cli.application import build
from envdoctor.cli.parameters import make_request
from envdoctor.commands.registry import (
    COMMANDS,
    GROUPS,
    Command,
    child_names,
    load,
    load_run,
    renderer_name,
    request_type,
    result_types,
)
from envdoctor.core.errors import BadInput
from envdoctor.core.options import Argument, Option
from envdoctor.core.record import Record

MAX_SUMMARY = 50

every_command = each_case("command", COMMANDS, ids=lambda command: command.name)


def declarations(record: type[Record]) -> Iterator[tuple[str, Any]]:
    """The declaration of every option and argument of a request record, also of nested records."""
    for field in fields(record):
        if isinstance(field.type, type) and issubclass(field.type, Record):
            yield from declarations(field.type)
        else:
            yield field.name, getattr(field.type, "__metadata__", (None,))[0]


def test_every_command_can_be_reached() -> None:
    found = [f"{group} {name}".strip() for group in ("", *GROUPS) for name in child_names(f"{group} ".lstrip())]
    assert set(found) == {command.name for command in COMMANDS} | set(GROUPS)


@every_command
def test_an_argument_that_repeats_is_the_last(command: Command) -> None:
    """The parser gives it all words that are left. Values of options and arguments have a name in the help."""
    parameters = build(command.name).parameters
    arguments = [each for each in parameters if not each.flags]
    assert [each.name for each in arguments[:-1] if each.repeats] == []
    assert [each.name for each in parameters if each.takes_value and not each.metavar] == []


@every_command
def test_every_record_and_renderer_resolves(command: Command) -> None:
    for record in result_types(command.name):
        assert callable(load(renderer_name(record)))


@every_command
def test_every_option_of_a_request_has_a_help_text(command: Command) -> None:
    run = load_run(command.name)
    request = request_type(run)
    assert issubclass(request, Record)
    assert list(inspect.signature(run).parameters)[1:] in ([], ["reporter"])
    for name, declaration in declarations(request):
        assert isinstance(declaration, Option | Argument), name
        assert declaration.help.endswith("."), name


@every_command
def test_a_command_accepts_its_examples(command: Command) -> None:
    examples = re.findall(r"Example: envdoctor (.*)", inspect.getdoc(request_type(load_run(command.name))) or "")
    assert examples
    for example in examples:
        words = shlex.split(example)
        name, arguments = words[0], words[1:]
        if name in GROUPS:
            name, arguments = f"{name} {words[1]}", words[2:]
        build(name).parse(arguments)


@each_case("summary", [entry.summary for entry in (*COMMANDS, *GROUPS.values())])
def test_summaries_are_short_phrases(summary: str) -> None:
    assert len(summary) <= MAX_SUMMARY
    assert summary[0].isupper()
    assert not summary.endswith(".")


def test_an_unregistered_record_has_no_renderer() -> None:
    with pytest.raises(KeyError):
        renderer_name(int)


def test_an_option_with_an_argument_is_both() -> None:
    """`check VENV` is `check --venv VENV`; both with different values are an error, repeatable ones are combined."""
    for words in (["check", "a"], ["check", "--venv", "a"], ["check", "a", "--venv", "a"]):
        assert parsed(words).venv == "a"
    with pytest.raises(BadInput, match="VENV a and --venv b differ"):
        parsed(["check", "a", "--venv", "b"])
    assert parsed(["lock", "a", "b", "--profile", "c"]).profiles == ("a", "b", "c")
    with pytest.raises(BadInput, match="PROFILE is missing") as caught:
        parsed(["fetch", "--dest", "a"])
    assert caught.value.hint == "envdoctor profiles"


def parsed(words: list[str]) -> Any:
    """The request record of a command line."""
    return make_request(request_type(load_run(words[0])), build(words[0]).parse(words[1:]))


def test_commands_are_as_recorded() -> None:
    """What the registry declares of each command besides its options, which its help shows."""
    found = {
        command.name: [[command.summary, sorted(command.renderers), command.has_findings, command.module]]
        for command in COMMANDS
    }
    assert_as_recorded("commands", found)
