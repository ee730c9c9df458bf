"""Checks before a source build: tools, memory and sources. Without them a build would only fail after an hour."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from envdoctor.core.errors import BadInput, EnvdoctorError, Refused
from envdoctor.core.record import Record
from envdoctor.core.records import CudaToolkit, Memory
from envdoctor.core.shell_commands import shell_command
from envdoctor.install.build_jobs import GIB, estimated_time, memory_for_builds
from envdoctor.install.plan import Plan, Step
from envdoctor.install.system_packages import MissingNeed, describe_needs, missing_needs
from envdoctor.knowledge.cuda import toolkit
from envdoctor.locking.uv import describe_unreachable, is_unreachable, run_uv, summarize_error
from envdoctor.machine.cuda import read_cuda
from envdoctor.machine.memory import read_memory
from envdoctor.profiles import Build, Wheel
from envdoctor.profiles.direct_wheels import StackFacts, rejection_reason
from envdoctor.rules.facts import parse_major_minor
from envdoctor.rules.toolchain import gcc_major

QUERY_SECONDS = 120.0
ALWAYS_NEEDED = ("cxx-compiler", "python-headers")
NVCC = "nvcc"  # checked separately: torch also finds an nvcc that is not on PATH
# Variables that select nvcc's host compiler. If one is set, the default compiler does not matter.
HOST_COMPILER = ("NVCC_CCBIN", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


class BuildSurvey(Record, frozen=True):
    """The result of the checks: missing needs that `--system` will install, and notes for the user."""

    needs: tuple[MissingNeed, ...] = ()
    notes: tuple[str, ...] = ()


def survey_builds(plan: Plan, interpreter: Path | None, manager: str, environ: Mapping[str, str]) -> BuildSurvey:
    """Check compilers, headers, memory and sources. Raises an error for anything that would make a build fail.

    `interpreter` is None if uv will download one. Packages with a compatible wheel are skipped.
    """
    build = plan.build
    if build is None:
        return BuildSurvey()
    prebuilt = {name: wheel for name in build.packages if (wheel := find_prebuilt_wheel(plan, name))}
    notes = tuple(
        f"{wheel.file} is installed if it can be downloaded; {name} is then not compiled"
        for name, wheel in prebuilt.items()
    )
    names = [name for name in build.packages if name not in prebuilt]
    if not names:
        return BuildSurvey(notes=notes)
    needs = missing_tools(build, plan, interpreter, manager, environ)
    if needs and not (plan.install_system and all(need.packages for need in needs)):
        missing, _, command = describe_needs(needs, manager).rpartition(": ")
        raise BadInput(
            f"{' and '.join(names)} cannot be compiled here: {missing}",
            expected="all tools that the build needs",
            hint=f"{command}; or the same command with --system" if needs[0].packages else command,
        )
    check_toolchain(names, build, plan, read_cuda(environ), environ)
    check_memory(names, build, read_memory())
    for step in plan.steps:
        if step.built in names:
            check_source_available(step, plan)
    compiled = f"compiled here: {', '.join(names)}, {estimated_time(build, plan.jobs)} ({plan.jobs.why})"
    return BuildSurvey(needs, (*notes, compiled))


def find_prebuilt_wheel(plan: Plan, name: str) -> Wheel | None:
    """A wheel of [[wheels]] that is compatible with the lock. torch's C++ ABI is not known yet: both are tried."""
    for wheel in (wheel for step in plan.steps for wheel in step.wheels if wheel.name == name):
        for abi in (True, False):
            stack = StackFacts(
                plan.lock.python,
                plan.lock.architecture,
                plan.lock.version_of("torch"),
                plan.lock.torch_build,
                plan.glibc,
                abi,
            )
            if not rejection_reason(wheel, stack):
                return wheel
    return None


def missing_tools(
    build: Build, plan: Plan, interpreter: Path | None, manager: str, environ: Mapping[str, str]
) -> tuple[MissingNeed, ...]:
    """Missing programs and headers. Tools that the lock contains (ninja, cmake) are found in the environment."""
    available = {package.name for package in plan.lock.packages}
    if shutil.which((environ.get("CXX") or " ").split(" ")[0], path=environ.get("PATH")):
        available.add("cxx-compiler")
    needs = dict.fromkeys((*ALWAYS_NEEDED, *build.needs))
    names = [name for name in needs if name not in available and name != NVCC]
    return tuple(missing_needs(names, plan.lock.python, interpreter, manager, environ))


def check_toolchain(
    names: Sequence[str], build: Build, plan: Plan, cuda: CudaToolkit, environ: Mapping[str, str]
) -> None:
    """Refuse an nvcc of another CUDA major version than torch, and a gcc that nvcc rejects (CUDA001, CUDA003)."""
    if NVCC not in build.needs:
        return
    packages, torch_build = " and ".join(names), plan.lock.torch_build
    torch, found = parse_major_minor(torch_build), parse_major_minor(cuda.nvcc_version.value)
    install = (
        shell_command("sudo apt-get install -y cuda-toolkit-{} && ", torch_build.replace(".", "-")) if torch else ""
    )
    hint = f"{install}export CUDA_HOME=/usr/local/cuda{f'-{torch_build}' if torch else ''}"
    if cuda.nvcc.state == "absent":
        raise BadInput(
            f"{packages} cannot be compiled here: there is no nvcc (searched in {cuda.nvcc.source})",
            expected=f"the CUDA toolkit {torch_build}" if torch else "the CUDA toolkit",
            hint=hint,
        )
    if torch and found and torch[0] != found[0]:
        raise BadInput(
            f"nvcc is {cuda.nvcc_version.value} ({cuda.nvcc.value}), "
            f"and {packages} is compiled for CUDA {torch_build}",
            expected=f"nvcc of CUDA {torch[0]}: torch requires the same major version",
            hint=hint,
        )
    row = toolkit(found) if found else None
    gcc = gcc_major(cuda.compiler.value or "")
    if row and gcc and gcc > row.gcc and not any(environ.get(name) for name in HOST_COMPILER):
        raise BadInput(
            f"gcc {gcc} ({cuda.compiler.source}) is newer than nvcc {cuda.nvcc_version.value} accepts",
            expected=f"gcc {row.gcc} or older to compile {packages}",
            hint=shell_command(
                "sudo apt-get install -y g++-{} && export CC=gcc-{} CXX=g++-{} NVCC_PREPEND_FLAGS='-ccbin g++-{}'",
                row.gcc,
                row.gcc,
                row.gcc,
                row.gcc,
            ),
        )


def check_memory(names: Sequence[str], build: Build, memory: Memory) -> None:
    """Refuse if there is not enough memory for one compiler: the kernel would kill it."""
    available = memory_for_builds(memory)
    if available is not None and available < build.memory_gb_per_job * GIB:
        raise BadInput(
            f"only {available / GIB:.1f} GiB of memory are available to compile {' and '.join(names)} "
            f"({memory.available.source}, {memory.cgroup_limit.source})",
            expected=f"{build.memory_gb_per_job:g} GiB for one compiler",
            hint="free -h; end processes that use the memory, or give the job or container more of it",
        )


def check_source_available(step: Step, plan: Plan) -> None:
    """Check with a dry run of uv that the package sources have the source distribution of a build."""
    package = next(package for package in plan.lock.built if package.name == step.built)
    with tempfile.TemporaryDirectory(prefix="envdoctor-check-") as folder:
        file = Path(folder, "build.txt")
        file.write_text(f"{package.line}\n")
        result = run_uv(
            ["pip", "install", "--dry-run", "--target", Path(folder, "nowhere"), "--python-version", plan.lock.python,
             "--no-deps", *plan.arguments, "--no-binary", step.built, "-r", file],
            environment=plan.environment, timeout=QUERY_SECONDS,
        )  # fmt: skip
    if result.ok:
        return
    if result.timed_out or is_unreachable(result.output):
        reason = result.ending if result.timed_out else describe_unreachable(result.output)
        raise EnvdoctorError(
            f"the source of {step.built} cannot be downloaded: {reason}",
            expected="the sources that the profile was resolved from",
            hint="check the network and run the same command again",
        )
    raise Refused(
        f"the source of {step.built} cannot be downloaded: {summarize_error(result.output)}",
        expected=f"the source distribution of {package.name} {package.version}",
        hint=shell_command("envdoctor install {} --upgrade, which resolves again", plan.profile),
    )
