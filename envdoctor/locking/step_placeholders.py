"""Releases that a solver sees as empty wheels: those without a wheel, and those of the PyTorch index."""

from __future__ import annotations

import re
from functools import cache

from envdoctor.knowledge.published import published_packages, published_releases, releases_in_range
from envdoctor.knowledge.releases import requirements_of_release
from envdoctor.knowledge.versions import is_prerelease, local_part, public_part, satisfies
from envdoctor.resolution.resolver import torch_of_companion
from envdoctor.resolution.step import StepProblem
from envdoctor.resolution.torch_sources import may_provide

_FROM_TORCH_INDEX = ("torch", "torchvision", "torchaudio")
# Not the newest release, but the one that hydra-core 1.1 to 1.3 and omegaconf 2.1 to 2.3 require: METADATA of their
# wheels on PyPI, 2026-11-26.
_REQUIRED_SOURCES = (("antlr4-python3-runtime", "4.9.3"),)
# Requirements of torch and torchvision that the tables of releases leave out, as no rule compares their versions.
# Solutions of uv for torch 2.0.1, 2.1.2, 2.2.0, 2.9.1 and 2.14.1, and for torchvision 0.14.1 to 0.29.2, 2026-11-27.
_BESIDES_TABLES = (
    ("torch", ">=0", ("typing-extensions",)),
    ("torch", ">=2.0", ("filelock", "jinja2", "networkx", "sympy")),
    ("torchvision", ">=0", ("numpy", "pillow")),
    ("torchvision", "<=0.17.0", ("requests",)),
)


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


def placeholder_requirements(name: str, version: str) -> tuple[str, ...]:
    """The requirements of a release of the tables, for the PyTorch index with those that the tables leave out.

    What is installed already needs no more.
    """
    public, is_of_index = public_part(version), re.match(r"cpu|cu\d|xpu|rocm", local_part(version)) is not None
    left_out = (
        each
        for package, versions, requires in _BESIDES_TABLES
        if package == name and is_of_index and satisfies(public, versions) is True
        for each in requires
    )
    return (*requirements_of_release(name, version if is_of_index else public), *left_out)
