"""Releases that a solver sees as empty wheels: those without a wheel, and those of the PyTorch index."""

from __future__ import annotations

from functools import cache

from envdoctor.knowledge.published import published_packages, published_releases, releases_in_range
from envdoctor.knowledge.versions import is_prerelease, public_part
from envdoctor.resolution.resolver import torch_of_companion
from envdoctor.resolution.step import StepProblem
from envdoctor.resolution.torch_sources import may_provide

_FROM_TORCH_INDEX = ("torch", "torchvision", "torchaudio")
# Not the newest release, but the one that hydra-core 1.1 to 1.3 and omegaconf 2.1 to 2.3 require: METADATA of their
# wheels on PyPI, 2026-11-26.
_REQUIRED_SOURCES = (("antlr4-python3-runtime", "4.9.3"),)


@cache
def newest_source_releases(last_day: str) -> tuple[tuple[str, str], ...]:
    """The newest release of each package of the tables that has only a source archive, and others that are required.

    Without a placeholder, uv prefers an old release that has a wheel.
    """
    newest = {name: next(iter(releases_in_range(name, "", last_day)), None) for name in published_packages()}
    found = tuple((name, row.version) for name, row in newest.items() if row and row.kind == "source")
    return (*found, *_REQUIRED_SOURCES)


def wheels_of_torch_index(problem: StepProblem) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The releases of torch on the PyTorch index of the step, and the newest ones if PyPI is not used for them."""
    target = problem.target
    source = target.source
    if not source.backend or source.backend == "auto" or source.nightly:
        return [], {}
    wheels: list[tuple[str, str]] = []
    newest: dict[str, str] = {}
    is_cuda = source.cuda not in ("", "cpu")
    pins = {requirement.name: public_part(requirement.pin) for requirement in problem.requirements}
    for name in _FROM_TORCH_INDEX:
        for row in published_releases(name):
            torch = row.version if name == "torch" else torch_of_companion(name, row.version)
            is_pinned = row.version == pins.get(name)
            has_build = not torch or may_provide(torch, source.cuda, target.platform, is_pinned=is_pinned)
            if is_prerelease(row.version) or (is_cuda and not has_build) or not row.has_wheel("", target.python):
                continue
            wheels.append((name, f"{row.version}+{source.backend}"))
            if source.has_priority:
                newest.setdefault(name, row.version)
    if is_cuda and not any(name == "torch" for name, _ in wheels):
        return [], {}  # PyTorch has no such index, such as cu122: installers take all packages from the other ones
    return wheels, newest
