"""The registry of commands: complete, resolvable, and the only source of summaries."""

from __future__ import annotations

import pytest
from typer.main import get_command

from envdoctor.cli import app
from envdoctor.commands.registry import COMMANDS, GROUPS, Command, load, renderer_name, result_types

MAX_SUMMARY = 50


def cli_commands() -> dict[str, str]:
    """The summary of every command of the command line by its full name."""
    root = get_command(app)
    summaries = {}
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        subcommands = getattr(command, "commands", {})
        if not subcommands or command.invoke_without_command:
            summaries[name] = command.short_help
        summaries |= {f"{name} {sub}": each.short_help for sub, each in subcommands.items()}
    return summaries


def test_every_cli_command_is_in_the_registry() -> None:
    summaries = {command.name: GROUPS.get(command.name, command.summary) for command in COMMANDS}
    assert cli_commands() == summaries


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_record_and_renderer_resolves(command: Command) -> None:
    for record in result_types(command.name):
        assert callable(load(renderer_name(record)))


@pytest.mark.parametrize("summary", [*(command.summary for command in COMMANDS), *GROUPS.values()])
def test_summaries_are_short_phrases(summary: str) -> None:
    assert len(summary) <= MAX_SUMMARY
    assert summary[0].isupper()
    assert not summary.endswith(".")


def test_an_unregistered_record_has_no_renderer() -> None:
    with pytest.raises(KeyError):
        renderer_name(int)
