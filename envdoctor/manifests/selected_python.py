"""Interprets a guide for the Python that it names, or for one with which its steps have a solution."""

from __future__ import annotations

from envdoctor.core.records import Machine
from envdoctor.manifests.assumed_python import python_of_pins, usual_pythons
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.interpreter import GuideInterpreter, GuideTrace
from envdoctor.resolution.step import StepSolver


def interpret_guide(
    guide: Guide, machine: Machine | None, today: str, solver: StepSolver | None = None
) -> GuideTrace:
    """Interpret a guide for a machine; without one, for the machine that the guide names.

    If the guide names no Python, it is one for which all steps have a solution, if there is one.
    """
    first = None
    index = solver.index if solver and not solver.reason else None
    for python in usual_pythons(guide, index):
        trace = GuideInterpreter(guide, machine, today, solver, python).run()
        first = first or trace
        unsolved = [install for install in trace.installs if install.resolution.conflict]
        if all(install.before.python for install in unsolved):
            return first if unsolved else trace
    assert first
    conflicts = [
        conflict
        for install in first.installs
        for conflict in (install.resolution.conflict, *install.resolution.further_conflicts)
        if not install.before.python
    ]
    if older := python_of_pins(guide, conflicts, index):
        trace = GuideInterpreter(guide, machine, today, solver, older.python).run()
        if not any(install.resolution.conflict for install in trace.installs):
            return trace._replace(limiting_pins=older.pins)
    return first
