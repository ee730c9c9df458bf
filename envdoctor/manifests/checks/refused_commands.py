"""Checks on commands that stop at once: an option that a program lacks, an address without a program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.guides import RemovedOption, guide_tables, options_of_program
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import UseImage
from envdoctor.manifests.checks.evidence import (
    command_evidence,
    guide_command,
    guide_evidence,
    install_step,
    table_evidence,
)
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.own_names import repository_name
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

PIP_INSTALL = "https://pip.pypa.io/en/stable/cli/pip_install/"
ARGPARSE = "https://docs.python.org/3/library/argparse.html#exiting-methods"
GIT_CLONE = "https://git-scm.com/docs/git-clone"
_MIXED_ADDRESS = lazy_pattern(r"(https?://[\w.-]+):([A-Za-z][\w.-]*)/[^@]+")
_PIP_INSTALL = lazy_pattern(r"(?:uv pip|pip3?|python3? -m pip) install ")
_NEEDS_PATH = {"-e": "project", "--editable": "project", "-r": "file", "--requirement": "file"}
_PROJECT = ("setup.py", "pyproject.toml")
_RELEASE = lazy_pattern(r"[A-Za-z][\w.-]*(?:\[[\w,-]*\])?(?:[=~!<>]=|[<>])\d[\w.,<>=!*]*")
_LAST_PIP = {"3.6": "21.3.1", "3.7": "24.0", "3.8": "25.0.1"}  # for a Python that newer releases do not support
_PASSES_ON = frozenset({"-C", "--config-settings", "--config-setting", "--global-option", "--build-option"})
_LONG_OPTION = lazy_pattern(r"--[a-z][a-z0-9-]*(?:=.*)?")
_REPOSITORY = lazy_pattern(r"https?://(?:www\.)?(?:github|gitlab)\.com/[\w.-]+/[\w.-]+?(?:\.git)?/?")


@rule("RUN179", kind="guide", severity="error", cause="dependency-pin-violated", url=PIP_INSTALL)
def pip_install_refuses_its_options(context: GuideContext) -> Iterator[Problem]:
    """`pip install` has no option -y: pip and uv stop before they install something. Only `pip uninstall` has it.

    The same holds for another option that no release of pip has, for -e or -r without a path, and for -e before a
    requirement of an index such as `einops>=0.6`.
    """
    for command in map(unwrap, context.guide.commands):
        text = " ".join(("", *command.words[1:]))
        if not _PIP_INSTALL.match(f"{command.name}{text} "):
            continue
        option = next((word for word in command.words if word in ("-y", "--yes")), "")
        option = option or (_unknown_option(command) if command.name != "uv" else "")
        last = command.words[-1]
        if editable := _editable_release(context, command):
            yield Problem(
                "error",
                f"`{command}` stops before it installs something: {editable} is no directory, and -e needs one",
                command_evidence(context, command),
                f"Remove -e: it is for a directory or a repository, and {editable} is a package of an index.",
                line=command.line,
            )
        elif option or last in _NEEDS_PATH:
            reason = f"there is no option {option}" if option else f"{last} needs the path of a {_NEEDS_PATH[last]}"
            yield Problem(
                "error",
                f"`{command}` stops before it installs something: {reason}",
                command_evidence(context, command),
                f"Remove {option}." if option else f"Write the path after {last}.",
                line=command.line,
            )


def _editable_release(context: GuideContext, command: Command) -> str:
    """The requirement with a version after -e. The shell can end an unquoted one before its bound: a directory."""
    found = (word for before, word in pairwise(command.words) if before in ("-e", "--editable"))
    release = next((word for word in found if _RELEASE.fullmatch(word)), "")
    name, checkout = re.split(r"[^\w.-]", release)[0], context.guide.checkout
    folders = checkout.of_name(name) if name and checkout else ()
    has_project = (
        any(f"{each}/{file}" in checkout.paths for each in folders for file in _PROJECT) if checkout else False
    )
    return "" if has_project else release


def _unknown_option(command: Command) -> str:
    """The first long option of a command that no release of pip has. pip accepts the start of an option as well."""
    known = options_of_program("pip install")
    options = (word.partition("=")[0] for word in _arguments(command) if _LONG_OPTION.fullmatch(word))
    return next((option for option in options if not any(each.startswith(option) for each in known)), "")


def _arguments(command: Command) -> list[str]:
    """The arguments of a command without the values of options that pass options on."""
    return [word for before, word in pairwise(command.words) if before not in _PASSES_ON]


@rule("RUN180", kind="guide", severity="error", cause="dependency-pin-violated", url=GIT_CLONE)
def address_of_a_repository_is_no_command(context: GuideContext) -> Iterator[Problem]:
    """A line has only the address of a repository, and `cd` enters its directory, which nothing has cloned.

    Also an address that mixes the forms of HTTPS and SSH, as `https://github.com:org/name`: git takes `org` as the
    number of a port.
    """
    for command in context.guide.commands:
        address = next(filter(None, map(_MIXED_ADDRESS.fullmatch, command.words)), None)
        if address and command.name == "git":
            yield Problem(
                "error",
                f"`{command}` stops: git expects the number of a port after {address[1]}:, not {address[2]}",
                (guide_evidence(context, "command", str(command), command.line),),
                "Write a slash in place of the colon.",
                guide_command(str(command).replace(f"{address[1]}:", f"{address[1]}/")),
                line=command.line,
            )
    for command, following in pairwise(context.guide.commands):
        is_address = len(command.words) == 1 and _REPOSITORY.fullmatch(command.words[0])
        name = repository_name(command.words[0]) if is_address else ""
        if name and following.words == ("cd", name):
            yield Problem(
                "error",
                f"`{command}` is no command: `git clone` is missing before the address",
                (
                    guide_evidence(context, "command", str(command), command.line),
                    guide_evidence(context, "next command", str(following), following.line),
                ),
                f"Use git clone {command.words[0]}.",
                line=command.line,
            )


@rule("RUN236", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=ARGPARSE)
def program_no_longer_has_the_option(context: GuideContext) -> Iterator[Problem]:
    """A release removed an option of a program: `gdown --id` stops with `unrecognized arguments` from gdown 6.0.0 on.

    A warning if the release is not known because a step installs the package without a version. conda installs the
    newest pip for a Python.
    """
    for command in map(unwrap, context.guide.commands):
        options = {word.partition("=")[0] for word in _arguments(command)}
        for row in guide_tables().removed_option:
            if not _starts(command, row.program) or row.option not in options:
                continue
            version = _pip(context) if row.package == "pip" else context.version(row.package)
            if satisfies(version, f">={row.first}") if version else _installs_newest(context, row.package):
                yield _removed_option(context, command, row, version)


def _starts(command: Command, program: str) -> bool:
    """Whether a command starts a program: `pip3` and `python -m pip` are pip."""
    is_pip = program == "pip" and bool(_PIP_INSTALL.match(f"{' '.join(command.words)} ")) and command.name != "uv"
    return command.name == program or is_pip


def _pip(context: GuideContext) -> str:
    """The release of pip that installs, if it is stated, or if no newer one supports the Python; otherwise empty."""
    stated = (each.state.pip for each in reversed(context.environments))
    python = context.environments[-1].state.python if context.environments else ""
    python = python or ("3.6" if context.actions(UseImage) else "")  # an image can have an old Python
    last = next((pip for old, pip in _LAST_PIP.items() if python and satisfies(python, f"<={old}.99")), "")
    return last or context.version("pip") or next(filter(None, stated), "")


def _installs_newest(context: GuideContext, package: str) -> bool:
    """Whether steps install a package, and none limits its release. conda installs pip with a Python."""
    requirements = [
        each for step in context.trace.installs for each in step.action.requirements if each.name == package
    ]
    is_of_conda = package == "pip" and any(each.state.tool == "conda" for each in context.environments)
    is_installed = bool(requirements) or is_of_conda
    return is_installed and not any(each.specifier or each.url for each in requirements)


def _removed_option(context: GuideContext, command: Command, row: RemovedOption, version: str) -> Problem:
    release = f"{row.package} {version}" if version else f"the newest {row.package}"
    return Problem(
        "error" if version else "warning",
        f"`{command}` stops: {release} has no option {row.option}, which {row.package} {row.first} removed",
        (
            *command_evidence(context, command),
            table_evidence(f"{row.program} {row.option}", f"up to {row.package} {row.last}", row.source, row.date),
        ),
        f"Use {row.instead}, or {row.package}<{row.first}.",
        install_step(f"{row.package}<{row.first}"),
        line=command.line,
    )
