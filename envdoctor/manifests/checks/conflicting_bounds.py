"""Checks on requirements of a step that exclude each other, with the built-in release tables."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import steps
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import is_measured, releases_that_pin
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.actions import torch_source
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.resolver import Bound
from envdoctor.resolution.torch_sources import TORCH_FAMILY
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import COMPANIONS
from envdoctor.rules.violations import NEEDED_BY_FEATURES

SPECIFIERS = "https://packaging.python.org/en/latest/specifications/version-specifiers/"
_LOCAL_VERSION = lazy_pattern(r"\+[\w.-]+")


@rule("RUN002", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=SPECIFIERS)
def requirements_conflict(context: GuideContext) -> Iterator[Problem]:
    """No release satisfies all requirements of a step and the requirements of its pinned releases."""
    for install in context.trace.installs:
        named: list[set[str]] = []  # the packages of each conflict: torchvision and its torch contradict vLLM at once
        found = ((name, _contradicting(name, bounds)) for name, bounds in contradicting_bounds(install))
        for name, bounds in sorted(found, key=lambda each: all(bound.required_by for bound in each[1])):
            packages = {bound.required_by or name for bound in bounds}
            if packages not in named:
                yield _conflict(context, install, name, bounds)
            named.append(packages)


def _contradicting(name: str, bounds: list[Bound]) -> list[Bound]:
    """The bounds of a conflict without those that the conflict does not need."""
    needed = bounds
    for bound in reversed(bounds):
        others = [each for each in needed if each is not bound]
        ranges = ",".join(_LOCAL_VERSION.sub("", each.specifier) for each in others)
        if len(others) > 1 and not releases_in_range(name, ranges):
            needed = others
    return needed


def contradicting_bounds(install: InstallStep) -> Iterator[tuple[str, list[Bound]]]:
    """The packages of which no release of the tables is in all ranges of a step, though each range has one."""
    for conflict in install.resolution.conflicts:
        bounds = [bound for bound in conflict.bounds if bound.specifier]
        # A range without any release is a problem of RUN001.
        # A local version (+cu128) is one of another index, and its release is that of its public version.
        ranges = [_LOCAL_VERSION.sub("", bound.specifier) for bound in bounds]
        if len(bounds) < 2 or not all(releases_in_range(conflict.name, each) for each in ranges):
            continue
        fixed = [each for bound, each in zip(bounds, ranges, strict=True) if not _is_of_open_release(install, bound)]
        if len(fixed) == len(ranges) or not releases_in_range(conflict.name, ",".join(fixed)):
            yield conflict.name, bounds


def _is_of_open_release(install: InstallStep, bound: Bound) -> bool:
    """Whether a bound is that of a release which the guide leaves open, and which no solver has chosen."""
    if install.resolution.state != "unresolved":
        return False
    named = {each.name: each for each in install.action.requirements}
    requiring = named.get(bound.required_by.partition(" ")[0])
    return requiring is not None and not requiring.pin


def _conflict(context: GuideContext, install: InstallStep, name: str, bounds: list[Bound]) -> Problem:
    in_guide = next((bound for bound in bounds if not bound.required_by), bounds[0])
    required = next((bound for bound in bounds if bound.required_by), bounds[-1])
    pin = f"{name}{required.specifier}"
    fix, remedies = "Keep the requirement that is meant.", steps()
    if required.required_by:
        fix = f"Use {pin}, which {required.required_by} requires."
        backend = build_of_step(install, name, in_guide.specifier)
        remedies = install_step(pin, *_companions(install, pin), backend=backend)
    requiring = {bound.required_by.partition(" ")[0] for bound in bounds if bound.required_by}
    is_partial = bool(requiring) and requiring <= NEEDED_BY_FEATURES
    effect = f": the compiled code of {' and '.join(sorted(requiring))} does not load" if is_partial else ""
    return Problem(
        "warning" if is_partial else "error",
        f"no release satisfies {' and '.join(dict.fromkeys(bound.text for bound in bounds))}{effect}",
        tuple(
            table_evidence(bound.required_by, bound.text, _source(name, bound))
            if bound.required_by
            else guide_evidence(context, name, bound.text, bound.line)
            for bound in bounds
        ),
        fix,
        remedies,
        line=line_of(context, in_guide.line or install.action.line, in_guide.text),
        cause="torch-abi-mismatch" if is_partial else _cause_of_conflict(name, {each.required_by for each in bounds}),
    )


def _source(name: str, bound: Bound) -> str:
    """Where a bound of a package comes from: torch's can be one that its compiled code has."""
    package = bound.required_by.partition(" ")[0]
    is_of_code = name == "torch" and is_measured(package, bound.specifier)
    return "symbols of the wheel, compared with torch's" if is_of_code else "METADATA of the wheel on PyPI"


def _companions(install: InstallStep, pin: str) -> list[str]:
    """The packages of a step that follow another torch: the newest torchaudio requires none, and uv would take it."""
    name, _, torch = pin.partition("==")
    names = [each.name for each in install.action.requirements if each.name in COMPANIONS] if name == "torch" else []
    pins = {each.name: each.pin for each in install.action.requirements}
    fitting = {each: releases_that_pin(each, "torch", public_part(torch)) for each in names}
    chosen = {each: pins[each] if pins[each] in found else next(iter(found), "") for each, found in fitting.items()}
    return [f"{each}=={version}" if version else each for each, version in chosen.items()]


def build_of_step(install: InstallStep, name: str, specifier: str) -> str:
    """The build of torch that a step selects with its index or with a local version."""
    if name not in TORCH_FAMILY:
        return ""
    local = _LOCAL_VERSION.search(specifier)
    return torch_source(install.action).backend or (local[0].removeprefix("+") if local else "")


def _cause_of_conflict(name: str, required_by: set[str]) -> str:
    if name == "torch" and "vllm" in required_by:
        return "vllm-torch-mismatch"
    if name in COMPANIONS or COMPANIONS & required_by:
        return "torch-companion-mismatch"
    return "transformers-too-new" if name == "transformers" else ""
