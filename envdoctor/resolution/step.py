"""An install step as a problem for an installer, and its solution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage, ResolverTarget

T = TypeVar("T")


@runtime_checkable
class Limited(Protocol):
    """A solver or a reader whose time is limited."""

    def apart(self) -> Self:
        """Another one that shares what was solved and read, with limits of its own."""
        ...


def apart(limited: T) -> T:
    """Another one with limits of its own, so that what is tried in addition takes no time from this one."""
    return limited.apart() if isinstance(limited, Limited) else limited


class StepProblem(NamedTuple):
    """The requirements of a step, and the environment that it changes."""

    requirements: tuple[InstallRequirement, ...]
    constraints: tuple[InstallRequirement, ...]
    overrides: tuple[InstallRequirement, ...]
    installed: Mapping[str, ResolvedPackage]
    target: ResolverTarget  # with the Python to solve for
    upgraded: frozenset[str] = frozenset()  # installed packages of which the installer prefers a newer release
    with_dependencies: bool = True
    has_other_index: bool = False  # takes packages from an index that is neither PyPI nor that of PyTorch
    is_of_uv: bool = False  # pip selects the named packages before their dependencies, and uv does not


class StepSolution(NamedTuple):
    """The packages of a step and of those that they require, or the conflict because of which there are none."""

    versions: Mapping[str, str] = {}
    required_by: Mapping[str, tuple[str, ...]] = {}  # dependencies, with the packages that require them
    built: frozenset[str] = frozenset()  # without a wheel for the target: the installer builds them
    conflict: str = ""
    further_conflicts: tuple[str, ...] = ()  # that remain without the requirements of the others
    absent_extras: frozenset[tuple[str, str]] = frozenset()  # package and extra that its release does not have
    refused: Mapping[str, str] = {}  # packages of which pip accepts no release, with a requirement that it refuses


class StepSolver(Protocol):
    """Solves steps as an installer does. `reason` states why no more steps are solved.

    `index` reads further facts from the index of the solver; None: nothing is requested.
    """

    reason: str
    index: IndexFacts | None

    def __call__(self, problem: StepProblem) -> StepSolution | None:
        """Solve one step; None if that is not possible."""
        ...


class NoSolver:
    """A solver without a package index: all open versions are unknown."""

    reason = "--resolve always queries the package index"
    index: IndexFacts | None = None

    def __call__(self, problem: StepProblem) -> None:
        """Solve nothing."""


class PinnedSolver:
    """A solver for steps that name each package with its version, as a lock does."""

    reason = ""

    def __init__(self, index: IndexFacts) -> None:
        self.index: IndexFacts | None = index

    def __call__(self, problem: StepProblem) -> StepSolution:
        """The versions of the step."""
        return StepSolution({each.name: each.pin for each in problem.requirements if each.pin})
