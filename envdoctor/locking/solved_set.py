"""A corrected set after a run of uv, and what an audit of it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from envdoctor.core.record import Record
from envdoctor.locking.set_solver import with_extras
from envdoctor.manifests import CorrectedSet

SolvedState = Literal["solved", "conflict", "not-verified"]


class SolvedSet(Record, frozen=True, kw_only=True):
    """A corrected set after a run of uv. `note` states what could not be verified."""

    corrected: CorrectedSet  # with the solved requirements
    state: SolvedState
    target: str  # "x86_64-manylinux_2_28, Python 3.12, CUDA 12.8"
    packages: int = 0  # number of packages of the solution
    options: tuple[str, ...] = ()  # of `uv pip install`, in addition to the requirements
    implied: tuple[str, ...] = ()  # the torch that a requirement brings
    built: tuple[str, ...] = ()  # pins of dependencies that have only a source archive
    note: str = ""
    day: str = ""  # the last day of the releases of the solution; empty for today
    dependencies: tuple[str, ...] = ()  # pins of those of an earlier day, in place of today's
    versions: Mapping[str, str] = {}  # of all packages that these requirements bring
    required_by: Mapping[str, tuple[str, ...]] = {}


class SetProblems(NamedTuple):
    """What an audit of a set reports: its errors, warnings that other releases cure, and the pins of the remedies.

    `notes` are what no other release is known to cure, and what does not matter for each program. `optional` are pins
    that cure some of these.
    """

    errors: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()  # or ranges
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether nothing is reported but notes."""
        return not self.errors and not self.warnings


def requirement_lines(solved: SolvedSet) -> list[str]:
    """The requirements of a set with their extras, and the torch that they bring."""
    own = [with_extras(text, solved.corrected.extras) for text in solved.corrected.requirements]
    return [*own, *solved.implied]


Check = Callable[[SolvedSet], SetProblems]


def accept(solved: SolvedSet) -> SetProblems:  # noqa: ARG001
    """A check that reports nothing."""
    return SetProblems()
