"""`envdoctor profiles new`: create a profile from a working environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput
from envdoctor.core.options import Option, OutputOption, ReplaceOption, VenvArgument
from envdoctor.core.paths import expand_home
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult, TextOutput, WrittenFile
from envdoctor.environment.managed import size_on_disk
from envdoctor.environment.select import select_stack
from envdoctor.machine.select import select_machine
from envdoctor.profiles.hashes import find_wheel_hashes
from envdoctor.profiles.new import profile_from_stack


class ProfilesNewRequest(Record, frozen=True, kw_only=True):
    """The profile pins every package to its exact version, with the hash of its wheel if it is known.

    Example: envdoctor profiles new ./venv --name mine --output mine.toml
    """

    venv: VenvArgument
    name: Annotated[str, Option("--name", "The profile's id; default: the directory's name.", "NAME")] = ""
    output: OutputOption = ""
    force: ReplaceOption = False


def run(request: ProfilesNewRequest) -> CommandResult:
    """Print the new profile as TOML, or write it to `output`."""
    stack = select_stack(request.venv, "")
    if stack is None:
        raise BadInput(
            "no environment is given", expected="a working environment", hint="envdoctor profiles new ./venv"
        )
    folder = expand_home(request.venv).absolute()
    hashes = find_wheel_hashes(folder, os.environ)
    profile_id = request.name or folder.name.lstrip(".")  # a profile name does not begin with a dot, as .venv does
    toml = profile_from_stack(stack, select_machine("", ()), profile_id, hashes=hashes, size=size_on_disk(folder))
    if request.output:
        hint = "envdoctor profiles new --output mine.toml"
        write_file(Path(request.output), toml, hint=hint, replace=request.force)
        return CommandResult(WrittenFile(request.output, f"{len(hashes)} wheel hashes known"))
    return CommandResult(TextOutput(toml))
