"""Checks on commands that stop at once: an option that a program lacks, an address without a program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from envdoctor.knowledge.guides import RemovedOption, guide_tables
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence, install_step, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.own_names import repository_name
from envdoctor.manifests.shell_records import Command
from envdoctor.rules.registry import Problem, rule

PIP_INSTALL = "https://pip.pypa.io/en/stable/cli/pip_install/"
ARGPARSE = "https://docs.python.org/3/library/argparse.html#exiting-methods"
GIT_CLONE = "https://git-scm.com/docs/git-clone"
_PIP_INSTALL = re.compile(r"(?:uv pip|pip3?|python3? -m pip) install ")
_REPOSITORY = re.compile(r"https?://(?:www\.)?(?:github|gitlab)\.com/[\w.-]+/[\w.-]+?(?:\.git)?/?")


@rule("RUN179", kind="guide", severity="error", cause="dependency-pin-violated", url=PIP_INSTALL)
def pip_install_has_no_option_yes(context: GuideContext) -> Iterator[Problem]:
    """`pip install` has no option -y: pip and uv stop before they install something. Only `pip uninstall` has it."""
    for command in map(unwrap, context.guide.commands):
        text = " ".join(("", *command.words[1:]))
        option = next((word for word in command.words if word in ("-y", "--yes")), "")
        if option and _PIP_INSTALL.match(f"{command.name}{text}"):
            yield Problem(
                "error",
                f"`{command}` stops before it installs something: there is no option {option}",
                command_evidence(context, command),
                f"Remove {option}.",
                line=command.line,
            )


@rule("RUN180", kind="guide", severity="error", cause="dependency-pin-violated", url=GIT_CLONE)
def address_of_a_repository_is_no_command(context: GuideContext) -> Iterator[Problem]:
    """A line has only the address of a repository, and `cd` enters its directory, which nothing has cloned."""
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

    A warning if the release is not known because a step installs the package without a version.
    """
    for command in map(unwrap, context.guide.commands):
        for row in guide_tables().removed_option:
            if command.name != row.program or row.option not in command.words[1:]:
                continue
            version = context.version(row.package)
            if satisfies(version, f">={row.first}") if version else _installs_newest(context, row.package):
                yield _removed_option(context, command, row, version)


def _installs_newest(context: GuideContext, package: str) -> bool:
    """Whether steps install a package, and none limits its release."""
    requirements = [
        each for step in context.trace.installs for each in step.action.requirements if each.name == package
    ]
    return bool(requirements) and not any(each.specifier or each.url for each in requirements)


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
