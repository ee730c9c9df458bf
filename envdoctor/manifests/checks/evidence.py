"""Evidence and remedies of the findings on a guide: its lines, rows of the built-in tables, and its own commands."""

from __future__ import annotations

import shlex
from itertools import pairwise

from envdoctor.core.records import Evidence
from envdoctor.core.remedies import Install, Remedy, UserCommand, remedy_of
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.shell_records import Command
from envdoctor.manifests.stated_python import USER, python_origin
from envdoctor.resolution.requirement import parse_install_requirement

_FILE_OPTIONS = ("-r", "--requirement", "--requirements")
_MAX_SHOWN = 100  # characters of a line
_MAX_REQUIREMENTS = 20  # of a command that a person reads


def line_of(context: GuideContext, start: int, text: str) -> int:
    """The line of a word in a command that spans several lines; `start` if it is not found.

    A dependency, `required by NAME VERSION`, has the line of the package that requires it.
    """
    lines = context.guide.lines
    word = text.strip()
    if word.startswith("required by "):
        word = word.split()[2]
    for number in range(max(start, 1), min(start + 40, len(lines) + 1)):
        if word and word in lines[number - 1]:
            return number
        if number > start and not lines[number - 1].strip():
            break
    return start


def shown_line(text: str) -> str:
    """The start of a line, without the backslash at its end."""
    return text.strip().rstrip("\\").strip()[:_MAX_SHOWN]


def guide_evidence(context: GuideContext, fact: str, value: str, line: int) -> Evidence:
    """A text of the guide as evidence."""
    return Evidence(fact, value, context.guide.place(line))


def python_evidence(context: GuideContext, state: EnvironmentState) -> Evidence:
    """The Python of an environment, with the place that states it."""
    python = state.python or context.trace.python
    by_user = USER if context.guide.python else "assumed: the guide names none"
    return Evidence("Python", python, python_origin(context.guide, state) or by_user)


def command_evidence(context: GuideContext, command: Command) -> tuple[Evidence, ...]:
    """A command of the guide as the only evidence."""
    return (guide_evidence(context, "command", str(command), command.line),)


def table_evidence(fact: str, value: str, source: str, date: str = "") -> Evidence:
    """A row of a table as evidence."""
    return Evidence(fact, value, f"{source}{f', {date}' if date else ''}")


def guide_command(command: str) -> tuple[Remedy, ...]:
    """A corrected command of the guide. It may have options that envdoctor's own remedies do not use."""
    return (remedy_of([UserCommand(command=command)]),)


def install_step(*packages: str, backend: str = "", no_build_isolation: bool = False) -> tuple[Remedy, ...]:
    """Install requirements of the guide with others."""
    return (remedy_of([Install(packages=packages, backend=backend, no_build_isolation=no_build_isolation)]),)


def install_with(
    install: InstallStep, *more: str, backend: str = "", without: str = "", no_build_isolation: bool = False
) -> tuple[Remedy, ...]:
    """Install the requirements of a step with others in one command, in which its requirements files stay files.

    `without` is a package whose requirement is left out. There is no command for a long list of a manifest.
    """
    words = _words(install.action.command)
    files = [file for word, file in pairwise(words) if word in _FILE_OPTIONS]
    texts = [
        each.text
        for each in install.action.requirements
        if each.name != without and parse_install_requirement(each.text, 0) and (not files or each.text in words)
    ]
    if files:
        command = shell_command("uv pip install {} {}", [f"--requirements={file}" for file in files], [*texts, *more])
        command += " --no-build-isolation" if no_build_isolation else ""
        return (remedy_of([UserCommand(command=command + (f" --torch-backend={backend}" if backend else ""))]),)
    if len(texts) > _MAX_REQUIREMENTS:
        return ()
    return install_step(*texts, *more, backend=backend, no_build_isolation=no_build_isolation)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an unclosed quote
        return []
