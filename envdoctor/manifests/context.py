"""The input of the guide checks: the guide, its trace, and its final environments with corrections."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from envdoctor.core.records import OF_A_GUIDE, Machine, absent, known
from envdoctor.manifests.actions import SetVariables, UseRunner
from envdoctor.manifests.assumed_python import USUAL_PYTHON
from envdoctor.manifests.corrections import CorrectedEnvironment, correct_environment
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.records import build_machine
from envdoctor.manifests.selected_python import interpret_guide
from envdoctor.manifests.target_build import BuildTarget, target_of
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.resolver import ResolverTarget
from envdoctor.resolution.step import StepSolver
from envdoctor.rules.known_breaks import known_breaks

A = TypeVar("A")
_RUNNER = "a standard runner of GitHub"


class GuideContext(NamedTuple):
    """A guide under examination."""

    guide: Guide
    trace: GuideTrace
    environments: list[CorrectedEnvironment]
    build: BuildTarget
    machine: Machine | None = None  # the machine that the audit is for, if it is not that of the guide
    solver: StepSolver | None = None

    @property
    def index_facts(self) -> IndexFacts | None:
        """Further facts of the package index; None: nothing is requested from it."""
        return self.solver.index if self.solver and not self.solver.reason else None

    @property
    def platform(self) -> str:
        """The CPU architecture that the guide is for."""
        return self.trace.platform

    def actions(self, kind: type[A]) -> list[A]:
        """The actions of one kind, in the order of the guide."""
        return [action for action in self.guide.actions if isinstance(action, kind)]

    def version(self, name: str) -> str:
        """The version of a package in the last environment that contains it; empty if there is none."""
        states = (environment.state for environment in reversed(self.environments))
        return next((state.packages[name].version for state in states if name in state.packages), "")


def build_context(
    guide: Guide, machine: Machine | None, today: str, solver: StepSolver | None = None
) -> GuideContext:
    """Interpret the guide and correct the environments that it creates.

    The GPU of the machine is not that of a job on a standard runner of GitHub.
    """
    if machine and any(isinstance(each, UseRunner) and each.has_no_gpu for each in guide.actions):
        machine = replace(machine, gpus=absent(_RUNNER), driver=replace(machine.driver, version=absent(_RUNNER)))
    trace = interpret_guide(guide, machine, today, solver)
    target_machine = machine or build_machine(trace)
    if not machine and (variables := _variables(guide)):
        target_machine = replace(target_machine, environment=known(variables, OF_A_GUIDE))
    build = target_of(guide, machine, trace.platform, trace.driver)
    assumed = trace.python if trace.python != USUAL_PYTHON else ""  # which the pins limit
    environments = [
        correct_environment(
            target_machine, state, ResolverTarget(trace.platform, state.python or assumed, state.glibc, today), build
        )
        for state in trace.final_states
    ]
    return GuideContext(guide, trace, environments, build, machine, solver)


def _variables(guide: Guide) -> dict[str, str]:
    """The variables of the guide that prevent a known break."""
    names = {row.unless_variable.partition("=")[0] for row in known_breaks()}
    actions = (action for action in guide.actions if isinstance(action, SetVariables))
    return {name: value for action in actions for name, value in action.values if name in names}


def environment_rank(environment: CorrectedEnvironment | None) -> tuple[bool, bool, int]:
    """The sort key of the environment that matters most: a final one, with torch, then with many packages."""
    if environment is None:
        return False, False, 0
    state = environment.state
    return not state.is_superseded, "torch" in state.packages, len(environment.packages)


def main_environment(context: GuideContext) -> CorrectedEnvironment | None:
    """The environment with torch, else the one with the most packages."""
    return max(context.environments, key=environment_rank, default=None)
