"""Releases that have wheels for one Python of several for which a step is solved."""

from __future__ import annotations

from pathlib import Path

from support.local_packages import write_wheel
from support.source_packages import write_sdist

from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import ResolverTarget
from envdoctor.resolution.step import StepProblem


def test_a_release_without_a_wheel_for_one_python_has_that_of_another(solver: UvStepSolver, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "frames", "1.5", tag="cp310-cp310-manylinux_2_17_x86_64")
    write_sdist(tmp_path / "wheels", "frames", "1.5")
    requirement = parse_install_requirement("frames==1.5", 1)
    assert requirement is not None
    for python, built in (("3.12", {"frames"}), ("3.10", set())):
        solution = solver(StepProblem((requirement,), (), (), {}, ResolverTarget("x86_64", python)))
        assert solution is not None
        assert (solution.versions.get("frames"), set(solution.built)) == ("1.5", built)
