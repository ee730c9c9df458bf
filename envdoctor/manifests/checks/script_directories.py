"""A check on the directory in which a guide starts a shell script of its checkout."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, table_evidence
from envdoctor.manifests.checks.started_scripts import INTERPRETER, started_scripts
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.program_launches import Launch, started_program
from envdoctor.manifests.shell import parse_commands
from envdoctor.manifests.shell_records import Command, ShellState, is_known
from envdoctor.rules.registry import Problem, rule

_ENTERS = frozenset({"cd", "pushd", "popd"})
_RELATIVE = lazy_pattern(r"(?:\./)?(?:[\w.-]+/)*[\w.-]+")


class _Misplaced(NamedTuple):
    """A command of a script that works in the directory of the script alone."""

    command: Command
    path: str  # that it names

    @property
    def name(self) -> str:
        """What a step that makes the path would name."""
        return self.path if self.command.name in _ENTERS else posixpath.basename(self.path)


@rule("RUN293", kind="guide", severity="error", cause="dependency-pin-violated", url=INTERPRETER)
def script_is_written_for_its_own_directory(context: GuideContext) -> Iterator[Problem]:
    """A command starts `scripts/run.sh` from the root, and the script runs `python eval.py` of its own directory.

    Also `cd ../src` of a script, which from the root leaves the checkout. The files that the script names before it
    enters a directory are compared; no step may make the file in the root.
    """
    for launch, path, found in _misplaced_commands(context):
        folder = posixpath.dirname(path)
        command = f"{found.command.name} {found.path}"
        yield Problem(
            "error",
            f"{path} runs `{command}` in line {found.command.line}, and `{launch.command}` starts it where "
            f"{found.path} does not exist: it is relative to {folder}",
            (
                guide_evidence(context, "command", launch.command, launch.line),
                table_evidence("line", str(found.command), f"{path}, line {found.command.line}"),
            ),
            f"Start the script in {folder}.",
            guide_command(f"cd {folder} && bash {posixpath.basename(path)}"),
            line=launch.line,
        )


def misplaced_programs(context: GuideContext) -> frozenset[tuple[int, str]]:
    """The programs that RUN293 reports: the line of the guide that starts the script, and the path in the script."""
    return frozenset((launch.line, found.path) for launch, _, found in _misplaced_commands(context))


def _misplaced_commands(context: GuideContext) -> Iterator[tuple[Launch, str, _Misplaced]]:
    """The scripts that a guide starts in the root, with their first command that works in their directory alone."""
    checkout = context.guide.checkout
    for launch, path, lines in started_scripts(context) if checkout else ():
        folder = posixpath.dirname(path)
        if checkout is None or not folder or not _starts_in_root(checkout, launch, path):
            continue
        found = _misplaced(checkout, folder, lines)
        if found and found.name not in "\n".join(context.guide.lines):
            yield launch, path, found


def _starts_in_root(checkout: Checkout, launch: Launch, path: str) -> bool:
    """Whether a command certainly runs in the root of the checkout: it names the script by its path from there."""
    is_path = posixpath.normpath(launch.program.script) == path
    return is_path and checkout.is_clone and checkout.root in launch.folders and not launch.instruction


def _misplaced(checkout: Checkout, folder: str, lines: Sequence[str]) -> _Misplaced | None:
    """The first command whose file exists below the directory of the script, and not below the root.

    None if the script also names a file below the root: then neither directory has all of them.
    """
    found: _Misplaced | None = None
    for command in parse_commands(tuple(enumerate(lines, 1)), ShellState()):
        program = started_program(command)
        entered = command.words[1] if command.name in _ENTERS and len(command.words) > 1 else ""
        for word in map(_value, command.words[1:]):
            if word != entered and _RELATIVE.fullmatch(word) and re.search("[./]", word) and word in checkout.paths:
                return None
        if found is None and entered and _leaves_root(checkout, folder, entered):
            found = _Misplaced(command, entered)
        name = program.script if program else ""
        is_own = is_known(name) and posixpath.normpath(f"{folder}/{name}") in checkout.paths
        if found is None and name and not name.startswith("/") and is_own and not _exists(checkout, name):
            found = _Misplaced(command, name)
        if command.name in _ENTERS:
            break
    return found if found and sum(found.name in line for line in lines) == 1 else None


def _value(word: str) -> str:
    return word.rpartition("=")[2].removeprefix("./")


def _leaves_root(checkout: Checkout, folder: str, path: str) -> bool:
    """Whether a directory is above the root from there, and below it from the directory of the script."""
    joined = posixpath.normpath(f"{folder}/{path}")
    first = joined.partition("/")[0]
    is_above = is_known(path) and posixpath.normpath(path).startswith("../")
    return is_above and first != ".." and any(each.startswith(f"{first}/") for each in checkout.paths)


def _exists(checkout: Checkout, name: str) -> bool:
    return posixpath.normpath(name) in checkout.paths
