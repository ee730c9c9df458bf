"""Builds of torch in the commands of findings: an index does not have each release for its CUDA version."""

from __future__ import annotations

from msgspec.structs import replace

from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install, Remedy, remedy_of
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.versions import major_minor
from envdoctor.manifests.step_resolution import COMPANIONS
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import torch_of_companion
from envdoctor.resolution.torch_sources import cuda_builds, cuda_name, torch_has_build


def with_existing_builds(finding: Finding, platform: str) -> Finding:
    """The finding with commands that take the build nearest to that of the step where its index lacks the release."""
    remedies = tuple(_with_build(each, platform) for each in finding.remedies)
    return finding if remedies == finding.remedies else replace(finding, remedies=remedies)


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
