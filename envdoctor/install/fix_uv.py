"""The commands of uv that apply remedies together, and the changes that uv plans."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.processes import CompletedProcess
from envdoctor.core.records import Machine, Stack
from envdoctor.core.remedies import Install, Uninstall, pip_arguments
from envdoctor.download.sources import read_sources, uv_arguments, uv_environment
from envdoctor.install.environment_copy import copy_metadata
from envdoctor.install.remedy_plan import Application, backend_conflict, combined_steps, kept_requirements
from envdoctor.locking.uv import describe_unreachable, is_unreachable, run_uv, summarize_error

UV_SECONDS = 7200.0  # a remedy may compile


class UvResult(NamedTuple):
    """The output of uv, and why it failed; empty if it did not."""

    output: str
    failure: str
    unreachable: bool = False  # a source of packages: the remedies may be right


def run_steps(
    applications: Sequence[Application],
    python: str,
    machine: Machine,
    stack: Stack,
    *,
    options: Sequence[str] = (),
    log: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> UvResult:
    """Apply remedies with one removal and one install. The driver of the machine decides about `auto` builds.

    Requirements of the other packages of the environment (`stack`) are constraints, unless uv then finds no solution.
    """
    if conflict := backend_conflict(applications):
        return UvResult("", conflict)
    sources, outputs = read_sources(), []
    driver = machine.driver.version.value
    environment = uv_environment(sources) | ({"UV_CUDA_DRIVER_VERSION": driver} if driver else {})

    def run(step: Install | Uninstall, *more: str) -> CompletedProcess:
        extra = uv_arguments(sources) if isinstance(step, Install) else ()
        variables = step.variables if isinstance(step, Install) else {}
        return run_uv([*pip_arguments(step), *extra, *more, *options], environment=environment | variables,
                      timeout=UV_SECONDS, log=log, pass_fds=pass_fds)  # fmt: skip

    with tempfile.NamedTemporaryFile("w", prefix="envdoctor-", suffix=".txt") as constraints:
        constraints.write("\n".join(kept_requirements(stack, applications)))
        constraints.flush()
        for step in combined_steps(applications, python):
            constrained = isinstance(step, Install) and not step.no_deps
            done = run(step, *(("--constraints", constraints.name) if constrained else ()))
            if constrained and not done.ok and not is_unreachable(done.output):
                done = run(step)
            outputs.append(done.output)
            if not done.ok:
                if is_unreachable(done.output):
                    return UvResult("".join(outputs), describe_unreachable(done.output), unreachable=True)
                return UvResult("".join(outputs), f"uv {done.ending}: {summarize_error(done.output)}")
    return UvResult("".join(outputs), "")


def plan_changes(source: Path, applications: Sequence[Application], machine: Machine, stack: Stack) -> UvResult:
    """What uv would do with the environment, of which it reads a copy of the metadata."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-plan-") as folder:
        skeleton = Path(folder, source.name)
        copy_metadata(source, skeleton)
        return run_steps(applications, str(skeleton / "bin/python"), machine, stack, options=("--dry-run",))
