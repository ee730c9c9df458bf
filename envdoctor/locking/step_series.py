"""The releases of a solution, their order and that of their series, and the order in which pip selects packages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.knowledge.versions import is_prerelease, major_minor, satisfies
from envdoctor.locking.source_releases import name_and_specifier
from envdoctor.resolution.step import StepSolution


def pins_of(solution: StepSolution) -> list[str]:
    """Each release of a solution as `name==version`."""
    return [f"{name}=={version}" for name, version in solution.versions.items()]


def pin_of(line: str) -> str:
    """The release of a line of uv's output, without its comment."""
    return line.partition("#")[0].strip()


def is_older(version: str, than: str) -> bool:
    """Whether a release comes before another one."""
    return satisfies(version, f"<{than}") is True


def takes_prerelease(newer: StepSolution, solution: StepSolution) -> bool:
    """Whether a solution has a pre-release in place of a release: uv takes one where a limit permits nothing else."""
    return any(is_prerelease(version) for _, version in newer.versions.items() - solution.versions.items())


def series(version: str) -> tuple[int, int]:
    """The major version; of releases before 1.0, with the minor version."""
    major, minor = major_minor(version.rpartition("!")[2])  # without an epoch
    return major, 0 if major else minor


def names_of_pip(requirements: Sequence[str]) -> list[str]:
    """The named packages in the order in which pip selects them: those with an upper bound first."""
    ordered = sorted(requirements, key=lambda text: not re.search(r"<|==|~=", text))
    return [name_and_specifier(text)[0] for text in ordered]
