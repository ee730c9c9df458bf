"""`envdoctor profiles new`: create a profile from a working environment."""

from __future__ import annotations

import os
from pathlib import Path

from envdoctor.core.decoding import write_file
from envdoctor.core.errors import BadInput
from envdoctor.core.paths import expand_home
from envdoctor.core.results import CommandResult, TextOutput, WrittenFile
from envdoctor.environment.managed import size_on_disk
from envdoctor.environment.select import select_stack
from envdoctor.machine.select import select_machine
from envdoctor.profiles.hashes import find_wheel_hashes
from envdoctor.profiles.new import profile_from_stack


def run(venv: str, name: str, output: str) -> CommandResult:
    """Print the new profile as TOML, or write it to `output`."""
    stack = select_stack(venv, "", search=False)
    if stack is None:
        raise BadInput(
            "--from-venv is empty", expected="a working environment", hint="envdoctor profiles new --from-venv ./venv"
        )
    folder = expand_home(venv).absolute()
    hashes = find_wheel_hashes(folder, os.environ)
    profile_id = name or folder.name.lstrip(".")  # a profile name does not begin with a dot, as .venv does
    toml = profile_from_stack(stack, select_machine("", ()), profile_id, hashes=hashes, size=size_on_disk(folder))
    if output:
        write_file(Path(output), toml, hint="envdoctor profiles new --output mine.toml")
        return CommandResult(WrittenFile(output, f"{len(hashes)} wheel hashes known"))
    return CommandResult(TextOutput(toml))
