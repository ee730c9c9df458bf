"""Checks on what the lowest permitted release lacks, and on names that a release does not have."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.fast_names import is_still_found
from envdoctor.knowledge.names import (
    Span,
    compared_wheels,
    find_member,
    find_name,
    packages,
    project_of,
    single_period,
)
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.checks.absent_releases import iter_requirements
from envdoctor.manifests.checks.arguments import arguments
from envdoctor.manifests.checks.conflicting_bounds import SPECIFIERS
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, install_with, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import bounded

_LOWER_BOUND = lazy_pattern(r"(?:>=|~=|>)\s*([\d.]+\w*)")
_QUOTES = "'\""
_IMPORT = lazy_pattern(r"\s*from\s+(\w+)[\w.]*\s+import\s+([\w, ]+)")


def _uses(context: GuideContext) -> Iterator[tuple[int, str, str, str, str]]:
    """What the code needs: line, package, the first release with it, the last one before, and its name."""
    for line, owner, name, value in arguments(context):
        span = single_period(find_member("arguments", owner, name))
        if span and span.first:
            yield line, span.package, span.first, span.before, f"{owner}({name})"
        span = single_period(find_member("values", owner, f"{name}={value.strip(_QUOTES)}"))
        if span and span.first:
            yield line, span.package, span.first, span.before, f"{name}={value}"
    for line, package, name, span in _imports(context):
        if span.first:
            yield line, package, span.first, span.before, f"{package}.{name}"


def _imports(context: GuideContext) -> Iterator[tuple[int, str, str, Span]]:
    """The names that Python code imports and only some releases of their package have."""
    for block in context.guide.python_blocks:
        for number, text in block:
            match = _IMPORT.match(text)
            if not match or match[1] not in packages():
                continue
            for name in match[2].replace(",", " ").split():
                if span := single_period(find_name(match[1], name)):
                    yield number, match[1], name, span


@rule("RUN006", kind="guide", severity=("warning", "info"), cause="library-too-old", url=SPECIFIERS)
def lowest_release_lacks_what_the_guide_uses(context: GuideContext) -> Iterator[Problem]:
    """A lower bound permits a release without an argument or a name that the code of the guide uses.

    Where an older release is installed already, or another package limits the version, installers keep it.
    A note where the packages of the step were solved with a release that has it.
    """
    seen: set[tuple[str, str]] = set()
    for line, package, first, before, use in _uses(context):
        for install, requirement, place in iter_requirements(context):
            bound = _LOWER_BOUND.search(requirement.specifier)
            if (
                requirement.name != project_of(package)
                or requirement.pin
                or not bound
                or (package, requirement.text) in seen
            ):
                continue
            too_low = satisfies(bound[1], f"<={before}" if before else f"<{first}")
            if too_low:
                seen.add((package, requirement.text))
                solved = install.resolution.packages.get(requirement.name)
                version = public_part(solved.version) if solved and install.resolution.state == "solved" else ""
                yield Problem(
                    "info" if version and satisfies(version, f">={first}") else "warning",
                    f"`{requirement.text}` permits {package} {bound[1]}, which has no {use} of line {line}; "
                    f"{first} has it",
                    (
                        guide_evidence(context, package, requirement.text, place),
                        guide_evidence(context, use, use, line),
                        table_evidence(use, f"{first} and newer", *compared_wheels(package)),
                    ),
                    f"Use {package}>={first}.",
                    install_with(install, _with_lower_bound(requirement, first), without=requirement.name),
                    line=place,
                )


def _with_lower_bound(requirement: InstallRequirement, first: str) -> str:
    """A requirement from a release on, below its own limit; without one, below the next major release."""
    others = [each for each in requirement.specifier.split(",") if not each.strip().startswith(">")]
    return requirement.name_with_extras + bounded(",".join([f">={first}", *others]))


@rule(
    "RUN077",
    kind="guide",
    severity="error",
    cause="library-too-old",
    url="https://github.com/huggingface/trl/releases",
)
def imported_name_is_not_in_this_release(context: GuideContext) -> Iterator[Problem]:
    """Python code imports a name that the release of the guide does not have, though other releases do."""
    for line, package, name, span in _imports(context):
        version = context.version(project_of(package))
        if not version or span.can_be_in(version):
            continue
        gone = bool(span.next) and satisfies(version, f">={span.next}")
        if gone and is_still_found(package, name, span.next):
            continue
        in_range = f"<={span.last}" if gone else f">={span.first}"
        state = f"is gone from {span.next}" if gone else f"exists from {span.first}"
        unpinned = next(
            (r for _, r, _ in iter_requirements(context) if r.name == project_of(package) and not r.specifier), None
        )
        yield Problem(
            "error",
            f"{package} {version} does not have {name}, which {state} on"
            + (f"; `{unpinned.text}` names no version" if unpinned else ""),
            (
                guide_evidence(context, name, f"from {package} import {name}", line),
                table_evidence(
                    name, f"{span.first or 'first'} to {span.last or 'newest'}", *compared_wheels(package)
                ),
            ),
            f"Use {package}{in_range}, or code for {package} {version}.",
            install_step(f"{project_of(package)}{bounded(in_range)}"),
            line=line,
            cause="dependency-pin-violated" if gone else "library-too-old",
        )
