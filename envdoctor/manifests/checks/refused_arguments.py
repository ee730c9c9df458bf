"""Checks on what pip refuses: invalid requirements, egg fragments, --user; and on installs that have no effect."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Install
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, line_of
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.shell_records import Command, is_known
from envdoctor.resolution.requirement import InstallRequirement, is_file_name, is_stated_requirement
from envdoctor.rules.registry import Problem, rule

EGG = "https://pip.pypa.io/en/stable/news/#v25-1"
USER = "https://pip.pypa.io/en/stable/user_guide/#user-installs"
SYNC = "https://docs.astral.sh/uv/concepts/projects/sync/"
_SEVERAL = lazy_pattern(r"[A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?\s*==\s*[\w.+*]+\s+[A-Za-z][\w.-]*(?:==|>=|$)")
_CORRECTIONS = (
    (
        lazy_pattern(r"[\w.-]+=[\w.!+]+=[\w.]+"),
        "A list of conda: write torch and the lines with =pypi_0 as NAME==VERSION, and remove the others.",
    ),
    (lazy_pattern(r".*\.txt"), r"Write -r \g<0>."),
    (lazy_pattern(r"([\w.-]+)\s*([=<>!~]=\s*[\w.+*]+)\s*(\[[^\]]*\])"), r"Write \1\3\2."),
    (lazy_pattern(r"([\w.-]+(?:\[[^\]]*\])?)\s*=\s*([\d.]+)"), r"Write \1==\2."),
    (lazy_pattern(r"([\w.-]+(?:\[[^\]]*\])?)\s*=([<>])\s*([\d.]+)"), r"Write \1\2=\3."),
    (lazy_pattern(r"([\w.-]+(?:\[[^\]]*\])?),"), r"Write \1 without the comma."),
)
_PLACEHOLDER = lazy_pattern(
    r"[=<>~]=?\s*(?:v?[xXyYzZN]\b|VERSION|version|\d+(?:\.\d+)*\.[xXyY]\b|\.\.\.)|[<{]\w|\.\.\."
)
_EGG = lazy_pattern(r"#(?:.*&)?egg=([A-Za-z0-9][\w.-]*)\s*(\[[^\]&]*\]|[=<>!~]=?[^&]*)")
_ENVIRONMENTS = frozenset({"venv", "uv"})
_ACTIVATES = lazy_pattern(r"(?:^|\s)(?:source|\.)\s+\S*activate|conda activate")
_MAX_SHOWN = 3  # of one step; a file with more is in another format
_NO_SYNC = frozenset({"--no-sync", "--inexact", "--frozen", "--isolated", "--no-project", "--script", "--with"})


@rule("RUN166", kind="guide", severity=("error", "info"), cause="dependency-pin-violated", url=SPECIFIERS)
def requirement_is_not_valid(context: GuideContext) -> Iterator[Problem]:
    """A requirement that pip and uv refuse, so that they install nothing: `torch=2.0`, `name==1.0[extra]`, `torch,`.

    `pip install requirements.txt` without `-r` is one as well: there is no package of this name.

    What can be a placeholder in the commands of a guide, such as `==2.x`, is a note.
    """
    for install in context.trace.installs:
        found = list(_invalid(install))
        for requirement in found[:_MAX_SHOWN]:
            line = line_of(context, requirement.line, requirement.text)
            is_placeholder = bool(_PLACEHOLDER.search(requirement.text))
            further = f"; {len(found) - 1} further lines are not valid" if len(found) > _MAX_SHOWN else ""
            is_conda = install.action.tool == "conda"
            reason = (
                ": no channel has a build of pip" if is_conda else " is not a valid requirement: pip and uv refuse"
            )
            yield Problem(
                "info" if is_placeholder and context.guide.commands else "error",
                f"`{requirement.text[:120]}`{reason}{', and conda refuses' if is_conda else ''} the step{further}",
                (guide_evidence(context, "requirement", requirement.text[:120], line),),
                "Remove these lines, and install the packages with pip."
                if is_conda
                else _correction(requirement.text),
                line=line,
            )
            if further:
                break


def _invalid(install: InstallStep) -> Iterator[InstallRequirement]:
    """The texts that packaging refuses. Of conda, whose grammar is another one, the packages that pip installed."""
    from packaging.requirements import InvalidRequirement, Requirement

    action = install.action
    named = [each for each in action.unknown if each.name and not each.has_valid_specifier]
    yield from (each for each in action.requirements if _is_list(each))
    yield from action.invalid if action.tool == "conda" else ()
    for each in (*action.invalid, *named) if action.tool != "conda" else ():
        text = each.text.strip().strip("'\"")
        if not is_known(text) or not (is_stated_requirement(text) or _SEVERAL.match(text)):
            continue
        try:
            Requirement(text)
        except InvalidRequirement:
            yield each._replace(text=text)


def _is_list(each: InstallRequirement) -> bool:
    """Whether a requirement is a list of requirements, without the option that reads it."""
    path = re.match(r"[^:?#]*\.txt$", each.url)
    return bool(path) if each.url else is_file_name(each.name)


def _correction(text: str) -> str:
    """What to write instead, where the text determines it."""
    found = ((pattern.fullmatch(text), correction) for pattern, correction in _CORRECTIONS)
    if found_first := next(((match, correction) for match, correction in found if match), None):
        match, correction = found_first
        return match.expand(correction)
    if _SEVERAL.match(text):
        return "Write each requirement on a line of its own."
    name, _, version = text.partition("==")
    if normalize_name(name.strip()) == normalize_name(version.strip()):  # the name twice
        return f"Write {version.strip()}."
    return "Write the name, the extras in brackets, and then the version: NAME[EXTRA]==VERSION."


@rule("RUN167", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=EGG)
def egg_fragment_is_not_a_name(context: GuideContext) -> Iterator[Problem]:
    """`#egg=NAME[extra]` and `#egg=NAME==1.0`: pip from 25.3 on refuses the line, and installs nothing.

    uv accepts it. A warning where the file does not name its installer.
    """
    for install in context.trace.installs:
        is_file = not context.guide.commands
        for requirement in install.action.requirements:
            match = _EGG.search(requirement.url)
            if not match or (install.action.tool != "pip" and not is_file):
                continue
            line = line_of(context, requirement.line, match[0])
            address = requirement.url.partition("#")[0]
            extras = match[2] if match[2].startswith("[") else ""
            yield Problem(
                "warning" if is_file else "error",
                f"`egg={match[1]}{match[2]}`: pip from 25.3 on accepts a name alone, and refuses this line",
                (guide_evidence(context, "requirement", requirement.text[:160], line),),
                f"Write '{match[1]}{extras} @ {address}'.",
                line=line,
            )


@rule("RUN168", kind="guide", severity="error", cause="wrong-python-env", url=USER)
def pip_installs_outside_the_environment(context: GuideContext) -> Iterator[Problem]:
    """`pip install --user` stops in a virtual environment, and `sudo pip` installs into the Python of the system."""
    commands = context.guide.commands
    first_activation = min((each.line for each in commands if _ACTIVATES.search(each.text)), default=math.inf)
    by_line: dict[int, list[Command]] = {}
    for command in commands:
        by_line.setdefault(command.line, []).append(command)
    for install in context.trace.installs:
        if install.action.tool != "pip":
            continue
        for command in by_line.get(install.action.line, ()):
            if "install" not in command.words:
                continue
            inner = unwrap(command)
            tool = install.before.tool if first_activation <= command.line else ""
            is_user = tool in _ENVIRONMENTS and "--user" in inner.words and "/" not in command.words[0]
            is_sudo = command.name == "sudo" and tool in (*_ENVIRONMENTS, "conda") and _is_by_name(inner)
            if is_user or is_sudo:
                yield Problem(
                    "error",
                    f"`{command}` "
                    + ("stops: a virtual environment has no --user" if is_user
                       else "runs the pip of the system, not that of the environment"),
                    (guide_evidence(context, "environment", install.before.name, install.before.python_line),
                     guide_evidence(context, "command", str(command), command.line)),
                    f"Remove {'--user' if is_user else 'sudo'}.",
                    guide_command(inner.text.replace(" --user", "")),
                    line=command.line,
                )  # fmt: skip


def _is_by_name(command: Command) -> bool:
    return bool(re.fullmatch(r"pip3?|python3?", command.name))


@rule("RUN169", kind="guide", severity=("warning", "info"), cause="dependency-pin-violated", url=SYNC)
def uv_undoes_an_installation(context: GuideContext) -> Iterator[Problem]:
    """`uv sync` removes what uv.lock does not contain, and `uv run` restores the releases of the lock.

    Packages that `uv pip install` has installed before are removed, or replaced: a warning for `uv sync`, and for
    `uv run` after torch of another index.
    """
    own = [each for each in context.guide.commands if each.words[:3] == ("uv", "pip", "install")]
    own = [each for each in own if _names(context, each)]
    for command in context.guide.commands:
        before = [each for each in own if each.line < command.line]
        is_sync, is_run = command.words[:2] == ("uv", "sync"), command.words[:2] == ("uv", "run")
        is_repeated = any(each.line >= command.line for each in own)
        if not before or is_repeated or not (is_sync or is_run) or not _NO_SYNC.isdisjoint(command.words):
            continue
        if is_run and not _is_project(context, command.line):
            return
        last = before[-1]
        is_replaced = is_run and any("index" in word or "torch-backend" in word for word in last.words)
        yield Problem(
            "warning" if is_sync or is_replaced else "info",
            f"`{command}` {'removes' if is_sync else 'can replace'} what `{last}` has installed: it installs uv.lock",
            (guide_evidence(context, "installation", str(last), last.line),
             guide_evidence(context, "command", str(command), command.line)),
            f"Add the packages to the project with uv add, or use {command.words[0]} {command.words[1]} "
            f"{'--inexact' if is_sync else '--no-sync'}.",
            line=command.line,
        )  # fmt: skip
        return


def _names(context: GuideContext, command: Command) -> bool:
    """Whether a command installs packages by name, not the project itself or a file."""
    actions = (each for each in context.actions(Install) if each.line == command.line)
    requirements = [requirement for action in actions for requirement in action.requirements]
    return any(each.name and not each.url and each.text in command.words for each in requirements)


def _is_project(context: GuideContext, line: int) -> bool:
    """Whether an earlier command installs the project in whose folder `uv run` is called."""
    return any(
        each.words[:2] == ("uv", "sync") or (each.words[:3] == ("uv", "pip", "install") and "-e" in each.words)
        for each in context.guide.commands if each.line < line
    )  # fmt: skip
