"""Checks on commands that activate an environment of venv: the path of the script, and the shell that reads it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.block_actions import is_shell_block
from envdoctor.manifests.checks.evidence import guide_evidence, shown_line
from envdoctor.manifests.checks.windows_commands import SHELLS, names_windows
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.options import parse_options
from envdoctor.manifests.shell_records import Command, is_known
from envdoctor.rules.registry import Problem, rule

VENV = "https://docs.python.org/3/library/venv.html#how-venvs-work"
_SCRIPTS = lazy_pattern(
    r"\s*(?:(?:source|\.|call)\s+)?(?:\.[\\/])?((?:[\w.-]+[\\/])+)[Ss]cripts[\\/][Aa]ctivate\s*(?:$|[&;#])"
)
_OTHER_ACTIVATION = lazy_pattern(r"bin/activate|conda activate")
_TOOLS = frozenset({"uv", "poetry", "pdm", "pipenv", "hatch", "rye", "make"})
_PLACEHOLDER = lazy_pattern(r"(?i:path|your|name|dir\b|<|>|\[|^my)|[A-Z]{4}")


class Made(NamedTuple):
    """An environment that a step creates."""

    name: str  # its directory
    command: Command


@rule("RUN265", kind="guide", severity="error", cause="wrong-python-env", url=VENV)
def activation_of_an_environment_fails(context: GuideContext) -> Iterator[Problem]:
    """A step activates an environment of venv in a way that a shell on Linux does not find or does not keep.

    `venv/Scripts/activate` is the path on Windows: on Linux it is `venv/bin/activate`. Reported where the guide names
    neither Windows nor another activation. Also reported: `source activate NAME` and `source NAME/activate` for an
    environment that venv creates, `NAME/bin/activate` without `source`, and the name of another environment.
    """
    yield from _of_windows(context)
    made = {each.name: each.command for each in _made(context)}
    others = any(
        unwrap(each).name in _TOOLS or ("conda" in each.name and "create" in each.words)
        for each in context.guide.commands
    )
    for command in context.guide.commands:
        name = _meant(command, {each for each, maker in made.items() if maker.line <= command.line}, others=others)
        if name:
            yield Problem(
                "error",
                f"`{command}` does not activate {name}, which line {made[name].line} creates",
                (
                    guide_evidence(context, "command", str(command), command.line),
                    guide_evidence(context, "environment", str(made[name]), made[name].line),
                ),
                f"Use {shell_command('source {}', f'{name}/bin/activate')}.",
                line=command.line,
            )


def _of_windows(context: GuideContext) -> Iterator[Problem]:
    if names_windows(context) or _OTHER_ACTIVATION.search("\n".join(context.guide.lines)):
        return
    for block in filter(is_shell_block, context.guide.blocks):
        for number, line in block.lines if block.language in SHELLS else ():
            if match := _SCRIPTS.match(line):
                folder = match[1].replace("\\", "/").rstrip("/")
                yield Problem(
                    "error",
                    f"`{shown_line(line)}` is the path on Windows: on Linux, {folder} has bin/activate",
                    (guide_evidence(context, "command", shown_line(line), number),),
                    f"Use {shell_command('source {}', f'{folder}/bin/activate')}.",
                    line=number,
                )


def _made(context: GuideContext) -> Iterator[Made]:
    """The environments that steps create with venv, virtualenv or uv."""
    for command in map(unwrap, context.guide.commands):
        words = command.words
        if words[1:3] == ("-m", "venv") or words[1:3] == ("-m", "virtualenv") or words[:2] == ("uv", "venv"):
            rest = words[3:] if words[1] == "-m" else words[2:]
        elif command.name == "virtualenv":
            rest = words[1:]
        else:
            continue
        for name in parse_options(rest).arguments or (() if words[0] != "uv" else (".venv",)):
            yield Made(posixpath.normpath(name), command)


def _meant(command: Command, names: set[str], *, others: bool) -> str:
    """The environment that a command means and does not activate; empty for other commands.

    `others`: a tool of the guide creates one that no command names, such as .venv of `uv sync`.
    """
    words = command.words
    if not names or not all(map(is_known, words)):
        return ""
    if words[:2] in (("source", "activate"), ("conda", "activate")) and len(words) == len(
        ("conda", "activate", "env")
    ):
        return "" if others else next(iter(names & {posixpath.normpath(words[2])}), "")
    is_sourced = len(words) > 1 and words[0] in ("source", ".")
    folder, _, script = (words[1] if is_sourced else command.text).rpartition("/")
    if script != "activate":
        return ""
    if not is_sourced or not folder.endswith("/bin"):
        return next(iter(names & {posixpath.normpath(folder.removesuffix("/bin"))}), "")
    other, (name, *further) = posixpath.normpath(folder.removesuffix("/bin")), sorted(names)
    is_other = not others and not further and other != name and "/" not in other + name and other[0] not in "~."
    return name if is_other and not _PLACEHOLDER.search(f"{other} {name}") else ""
