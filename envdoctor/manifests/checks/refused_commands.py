"""Checks on commands that stop at once: an option that pip lacks, an address without a program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.own_names import repository_name
from envdoctor.rules.registry import Problem, rule

PIP_INSTALL = "https://pip.pypa.io/en/stable/cli/pip_install/"
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
