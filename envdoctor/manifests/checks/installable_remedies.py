"""Releases in the commands of findings that the environment can install: its Python, and its build of torch."""

from __future__ import annotations

from msgspec.structs import replace

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, Remedy, remedy_of
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.python_limits import supports_python
from envdoctor.knowledge.versions import major_minor
from envdoctor.manifests.checks.certainty import step_of
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.step_resolution import COMPANIONS
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import torch_of_companion
from envdoctor.resolution.torch_sources import cuda_builds, cuda_name, torch_has_build


def with_installable_releases(finding: Finding, context: GuideContext) -> Finding:
    """The finding without the commands whose releases are for newer Pythons only than that of their environment.

    Where an index lacks the release for the CUDA version of the step, a command takes the nearest build.
    """
    step = step_of(context, finding.line)
    python = (step.before.python if step else "") or context.trace.python
    excluded = {text: None for remedy in finding.remedies for text in _for_newer_pythons(remedy, python)}
    remedies = tuple(
        _with_build(each, context.platform) for each in finding.remedies if not _for_newer_pythons(each, python)
    )
    if remedies == finding.remedies:
        return finding
    needed = f" It needs a newer Python: no release of `{'` and `'.join(excluded)}` supports {python}."
    return replace(finding, remedies=remedies, fix=finding.fix if remedies else f"{finding.fix}{needed}")


def _for_newer_pythons(remedy: Remedy, python: str) -> list[str]:
    """The requirements of a remedy whose releases are all for newer Pythons."""
    named = (
        (text, parse_install_requirement(text, 0))
        for step in remedy.steps
        if isinstance(step, Install) and not step.python
        for text in step.packages
    )
    ranges = [(text, each.name, releases_in_range(each.name, each.specifier)) for text, each in named if each]
    return [
        text for text, name, rows in ranges if rows and not any(supports_python(name, row, python) for row in rows)
    ]


def _with_build(remedy: Remedy, platform: str) -> Remedy:
    steps = [
        replace(step, backend=backend)
        if isinstance(step, Install) and (backend := _backend(step, platform)) != step.backend
        else step
        for step in remedy.steps
    ]
    return remedy if tuple(steps) == tuple(remedy.steps) else remedy_of(steps)


def _backend(step: Install, platform: str) -> str:
    """The backend of a step, or of the nearest CUDA version for which its torch has a build."""
    cuda = cuda_name(step.backend)
    releases = _torch_releases(step) if cuda not in ("", "cpu") else []
    if not releases or any(torch_has_build(each, cuda, platform) is not False for each in releases):
        return step.backend
    wanted = major_minor(cuda)
    built = [major_minor(each) for each in cuda_builds(releases[0], platform)]
    nearest = min(built, key=lambda each: (each[0] != wanted[0], abs(each[1] - wanted[1])), default=None)
    return f"cu{nearest[0]}{nearest[1]}" if nearest else step.backend


def _torch_releases(step: Install) -> list[str]:
    """The releases of torch that a step permits by its pins and ranges, the newest first; empty if it names none."""
    for text in step.packages:
        named = parse_install_requirement(text, 0)
        if named and named.name in ("torch", *COMPANIONS) and named.specifier:
            versions = [each.version for each in releases_in_range(named.name, named.specifier)]
            own = versions if named.name == "torch" else [torch_of_companion(named.name, each) for each in versions]
            if any(own):
                return [each for each in own if each]
    return []
