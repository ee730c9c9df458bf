"""Everything that the checks look at: the guide, its journey, and the environments with what repairs them."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.core.records import Machine
from envdoctor.manifests.choose import Chosen, Place
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.journey import Journey, State, follow
from envdoctor.manifests.judge import Substitution, repair
from envdoctor.manifests.stack import machine_of


class Repaired(NamedTuple):
    """One environment as the guide leaves it, the packages that the rules accept, and what that takes."""

    state: State
    packages: dict[str, Chosen]
    substitutions: list[Substitution]
    all_pins: list[Substitution]


class Case(NamedTuple):
    """A guide under examination."""

    guide: Guide
    journey: Journey
    machine: Machine
    repaired: list[Repaired]

    @property
    def platform(self) -> str:
        """The processor that the guide is for."""
        return self.journey.platform

    def version(self, package: str) -> str:
        """The release of a package that the guide ends up with, in the last environment that has it."""
        found = [each.state.packages[package].version for each in self.repaired if package in each.state.packages]
        return found[-1] if found else ""


def open_case(guide: Guide, machine: Machine | None, today: str) -> Case:
    """Follow the guide and judge what it leaves."""
    journey = follow(guide, machine, today)
    judged_on = machine or machine_of(journey)
    found: list[Repaired] = []
    for state in journey.ends:
        place = Place(journey.platform, state.python, state.glibc, today)
        found.append(Repaired(state, *repair(judged_on, state, place)))
    return Case(guide, journey, judged_on, found)
