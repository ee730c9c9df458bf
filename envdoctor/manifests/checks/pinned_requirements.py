"""Checks on exact versions against the requirements of others, where no package index was read."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.environment.markers import Markers
from envdoctor.knowledge.bounds import bounds_of_release
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import Requirement, parse_requirement
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.rules.registry import Problem, rule

_MAX_REPORTED = 6  # of one step


@rule("RUN174", kind="guide", severity="error", cause="dependency-pin-violated", url=SPECIFIERS, needs=("python",))
def pins_exclude_each_other(context: GuideContext) -> Iterator[Problem]:
    """A step pins a release, and another one whose requirements exclude it: pip and uv refuse both together.

    From the METADATA in the built-in tables, where no index was read; otherwise uv reports it.
    """
    for install in context.trace.installs:
        if install.resolution.state not in ("tables", "unresolved") or install.action.no_deps:
            continue
        found = list(_excluded(install, context)) if install.action.tool in ("pip", "uv") else []
        for requiring, pinned, bound in found[:_MAX_REPORTED]:
            line = line_of(context, pinned.line, pinned.text)
            required = f"{bound.name}{bound.specifier}"
            yield Problem(
                "error",
                f"{requiring.name}=={requiring.pin} requires {required}, and the step names {pinned.text}",
                (
                    guide_evidence(context, pinned.name, pinned.text, line),
                    table_evidence(f"{requiring.name} {requiring.pin}", required, "METADATA on PyPI"),
                ),
                f"Take a {bound.name} in this range.",
                install_step(required),
                line=line,
            )


def _excluded(
    install: InstallStep, context: GuideContext
) -> Iterator[tuple[InstallRequirement, InstallRequirement, Requirement]]:
    """The pairs of exact releases of which the first excludes the second; RUN002 has those of other tables."""
    pins = {each.name: each for each in install.action.requirements if each.pin and not each.url}
    markers = Markers(install.before.python or context.trace.python, context.platform)
    for requiring in pins.values():
        is_known = published_releases(requiring.name)
        for line in markers.applicable(bounds_of_release(requiring.name, public_part(requiring.pin))):
            bound = parse_requirement(line)
            pinned = pins.get(bound.name) if bound else None
            if not bound or not pinned or (is_known and published_releases(bound.name)):
                continue
            if satisfies(public_part(pinned.pin), bound.specifier) is False:
                yield requiring, pinned, bound
