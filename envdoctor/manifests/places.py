"""Where the text of a guide has the requirements of an environment."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.record import Record
from envdoctor.manifests.checks.evidence import line_of
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment


class Place(Record, frozen=True):
    """A requirement in the text of a guide."""

    line: int
    name: str
    text: str  # as written
    tool: str = ""  # that installs it: "conda" has another notation, and some other names


def places_of(environment: CorrectedEnvironment, context: GuideContext) -> Iterator[Place]:
    """The requirements of the steps that created an environment."""
    for install in context.trace.installs:
        if install.after.name != environment.state.name:
            continue
        for requirement in install.action.requirements:
            if not requirement.url:
                line = _line_in_command(context, requirement.line, requirement.text)
                yield Place(line, requirement.name, requirement.text, install.action.tool)


def first_place_of_torch(environment: CorrectedEnvironment, context: GuideContext) -> Place | None:
    """The requirement of the first step that brings torch: torch itself, else one that requires it."""
    for install in context.trace.installs:
        if install.after.name != environment.state.name or "torch" not in install.resolution.packages:
            continue
        if "torch" in install.before.packages or install.action.tool == "conda":
            return None
        named = [each for each in install.action.requirements if not each.url]
        requiring = install.resolution.packages["torch"].reason.removeprefix("required by ").partition(" ")[0]
        first = next((each for each in named if each.name in ("torch", requiring)), next(iter(named), None))
        if not first:
            return None
        line = _line_in_command(context, first.line, first.text)
        return Place(line, first.name, first.text, install.action.tool)
    return None


def _line_in_command(context: GuideContext, start: int, text: str) -> int:
    """The line of a requirement within its command; `start` if a file that the command names has it."""
    line = line_of(context, start, text)
    if not context.guide.commands:  # a manifest has no commands
        return line
    between = context.guide.lines[start - 1 : line - 1]
    is_within = all(each.rstrip().endswith("\\") or each.lstrip().startswith("#") for each in between)
    return line if is_within else start
