"""The step that compiles a package against the environment: from its hashed source, with no more jobs than fit."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from envdoctor.core.errors import Refused
from envdoctor.core.processes import Finished
from envdoctor.core.records import Machine
from envdoctor.install.build_checks import missing_tools, refuse_memory, refuse_toolchain
from envdoctor.install.build_jobs import estimated_time
from envdoctor.install.plan import Plan, Step, build_file
from envdoctor.install.system_packages import note, package_manager
from envdoctor.install.wheel_step import Tell, WheelOutcome
from envdoctor.locking.resolve import Lock
from envdoctor.locking.uv import run_uv
from envdoctor.machine.cuda import read_cuda
from envdoctor.machine.memory import read_memory


def is_prebuilt(step: Step, outcomes: Sequence[WheelOutcome]) -> bool:
    """Whether a wheel of what the step would compile was taken."""
    return any(outcome.used for outcome in outcomes if outcome.name == step.built)


def add_build(
    step: Step, plan: Plan, cache: Path, machine: Machine, *, tell: Tell, log: Path, held: TextIO
) -> Finished:
    """Compile one package and install it; how uv ended.

    uv's own cache would hand out what was compiled against another torch (tried with uv 0.13.8, also with --refresh),
    so each combination has a cache of its own below `cache`: a build that is done is done, whatever comes after it.
    """
    package = next(package for package in plan.lock.built if package.name == step.built)
    if any(wheel.name == step.built for each in plan.steps for wheel in each.wheels):
        _refuse_unprepared(step, plan)
    build_file(plan.building, step.built).write_text(f"{package.line}\n")
    kept = cache / "builds" / f"{step.built}-{_combination(step, plan, machine)}"
    return run_uv(
        step.arguments, environment=plan.environment | step.environment | {"UV_CACHE_DIR": str(kept)},
        deadline=step.deadline, log=log, poll=_clock(plan, tell), keep_open=(held.fileno(),),
    )  # fmt: skip


def _refuse_unprepared(step: Step, plan: Plan) -> None:
    """What was not asked before, since a wheel was to be taken."""
    if plan.build is None:
        return
    manager, names = package_manager(), [step.built]
    if needs := missing_tools(plan.build, plan, plan.building / "bin/python", manager, os.environ):
        told, _, command = note(needs, manager).rpartition(": ")
        raise Refused(
            f"{step.built} cannot be compiled here: {told}",
            expected="a wheel that can be had, or what its build needs",
            hint=f"{command}; the current environment was not touched",
        )
    refuse_toolchain(names, plan.build, plan, read_cuda(), os.environ)
    refuse_memory(names, plan.build, read_memory())


def _combination(step: Step, plan: Plan, machine: Machine) -> str:
    """A short name of what a build is made of: packages, variables, compilers and GPUs."""
    gpus = [gpu.compute_capability.value for gpu in machine.gpus.value or ()]
    cuda, shell = machine.cuda, machine.environment.value
    made_of = (plan.lock.digest, step.environment, shell, cuda.nvcc_version.value, cuda.compiler.value, gpus)
    return hashlib.sha256(msgspec.json.encode(made_of, order="sorted")).hexdigest()[:16]


def _clock(plan: Plan, tell: Tell) -> Callable[[str], None]:
    """Tells how long it takes already, since a compiler says nothing for minutes."""
    began = time.monotonic()
    expected = estimated_time(plan.build, plan.jobs) if plan.build else ""

    def poll(_: str) -> None:
        minutes = int(time.monotonic() - began) // 60
        tell(0, 0, f"{minutes} min so far, {expected}")

    return poll


def lock_until(plan: Plan, number: int) -> Lock:
    """What of the lock must be there once step `number` is done: not what a later one compiles."""
    later = {step.built for step in plan.steps[number + 1 :]}
    packages = tuple(package for package in plan.lock.packages if package.name not in later)
    return msgspec.structs.replace(plan.lock, packages=packages)
