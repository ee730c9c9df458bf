"""Actions of the commands that select an environment or its Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.manifests.actions import Action, SelectEnvironment
from envdoctor.manifests.files import Files
from envdoctor.manifests.options import parse_options
from envdoctor.manifests.shell_records import Command


def python_version(text: str) -> str:
    """The minor version in a text such as `python3.10`, `=3.10.4`; empty without one."""
    match = re.search(r"(\d\.\d+)", text)
    return match[1] if match else ""


def pyenv(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    """`pyenv local 3.8.6`, and `pyenv virtualenv 3.8.6 NAME`. `pyenv install` does not select what it installs."""
    words = [word for word in command.words[1:] if not word.startswith("-")]
    python = python_version(words[1]) if len(words) > 1 else ""
    if words[:1] == ["virtualenv"] and len(words) > 2:
        yield SelectEnvironment(command.line, str(command), "venv", words[2], python, seeded=True)
    elif python and words[0] in ("local", "global", "shell"):
        yield SelectEnvironment(command.line, str(command), "", "", python, new=False)


def source(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    """`source .venv/bin/activate`, and `source activate NAME` of conda."""
    path = command.words[1] if len(command.words) > 1 else ""
    if path.endswith("/bin/activate"):
        yield SelectEnvironment(command.line, str(command), "venv", path.removesuffix("/bin/activate"), new=False)
    elif path == "activate":
        yield SelectEnvironment(
            command.line, str(command), "conda", command.words[2] if len(command.words) > 2 else "", new=False
        )


def virtualenv(command: Command, files: Files) -> Iterator[Action]:  # noqa: ARG001
    """`virtualenv -p python3.10 .venv`."""
    options = parse_options(command.words[1:])
    name = options.arguments[0] if options.arguments else ".venv"
    yield SelectEnvironment(
        command.line, str(command), "venv", name, python_version(options.last("-p", "--python")), seeded=True
    )
