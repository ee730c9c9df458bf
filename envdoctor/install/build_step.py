"""The install step that compiles a package from its hashed source, against the packages of the environment."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from envdoctor.core.errors import Refused
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.records import Machine
from envdoctor.install.build_checks import check_memory, check_toolchain, missing_tools
from envdoctor.install.build_jobs import estimated_time
from envdoctor.install.plan import Plan, Step, build_file
from envdoctor.install.system_packages import describe_needs, package_manager
from envdoctor.install.wheel_step import ProgressCallback, WheelOutcome
from envdoctor.locking.lock import Lock
from envdoctor.locking.uv import run_uv
from envdoctor.machine.cuda import read_cuda
from envdoctor.machine.memory import read_memory


def is_prebuilt(step: Step, outcomes: Sequence[WheelOutcome]) -> bool:
    """Whether a wheel of the package that the step would compile was installed."""
    return any(outcome.used for outcome in outcomes if outcome.name == step.built)


def build_package(
    step: Step, plan: Plan, cache: Path, machine: Machine, *, on_progress: ProgressCallback, log: Path, lock: TextIO
) -> CompletedProcess:
    """Compile one package and install it.

    uv's cache would return a wheel that was compiled against another torch (tried with uv 0.13.8, also with
    --refresh). Each combination of build inputs therefore has its own cache below `cache`. `lock` is the open lock
    file of the environment, which uv inherits.
    """
    package = next(package for package in plan.lock.built if package.name == step.built)
    if any(wheel.name == step.built for other in plan.steps for wheel in other.wheels):
        _check_requirements(step, plan)
    build_file(plan.building, step.built).write_text(f"{package.line}\n")
    build_cache = cache / "builds" / f"{step.built}-{_build_digest(step, plan, machine)}"
    return run_uv(
        step.arguments, environment=plan.environment | step.environment | {"UV_CACHE_DIR": str(build_cache)},
        timeout=step.deadline, log=log, on_output=_elapsed_time(plan, on_progress), pass_fds=(lock.fileno(),),
    )  # fmt: skip


def _check_requirements(step: Step, plan: Plan) -> None:
    """The checks of `survey_builds`, which skipped this package because a wheel was expected to fit."""
    if plan.build is None:
        return
    manager, names = package_manager(), [step.built]
    if needs := missing_tools(plan.build, plan, plan.building / "bin/python", manager, os.environ):
        missing, _, command = describe_needs(needs, manager).rpartition(": ")
        raise Refused(
            f"{step.built} cannot be compiled here: {missing}",
            expected="a compatible wheel, or all tools that the build needs",
            hint=f"{command}; the current environment was not changed",
        )
    check_toolchain(names, plan.build, plan, read_cuda(), os.environ)
    check_memory(names, plan.build, read_memory())


def _build_digest(step: Step, plan: Plan, machine: Machine) -> str:
    """A short hash of the inputs of a build: packages, variables, compilers and GPUs."""
    gpus = [gpu.compute_capability.value for gpu in machine.gpus.value or ()]
    cuda, shell = machine.cuda, machine.environment.value
    inputs = (plan.lock.digest, step.environment, shell, cuda.nvcc_version.value, cuda.compiler.value, gpus)
    return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()[:16]


def _elapsed_time(plan: Plan, on_progress: ProgressCallback) -> Callable[[str], None]:
    """Report the elapsed time, since a compiler prints nothing for minutes."""
    started = time.monotonic()
    expected = estimated_time(plan.build, plan.jobs) if plan.build else ""

    def poll(_: str) -> None:
        minutes = int(time.monotonic() - started) // 60
        on_progress(0, 0, f"{minutes} min so far, {expected}")

    return poll


def lock_after_step(plan: Plan, number: int) -> Lock:
    """The part of the lock that is installed after step `number`: without packages that a later step compiles."""
    later = {step.built for step in plan.steps[number + 1 :]}
    packages = tuple(package for package in plan.lock.packages if package.name not in later)
    return msgspec.structs.replace(plan.lock, packages=packages)
