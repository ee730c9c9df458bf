"""What a source build needs of the machine, asked before anything is written: it would fail an hour later."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from envdoctor.core.errors import BadInput, EnvdoctorError, Refused
from envdoctor.core.records import CudaToolkit, Memory, Record
from envdoctor.install.build_jobs import GIB, estimated_time, memory_for_builds
from envdoctor.install.plan import Plan, Step
from envdoctor.install.system_packages import MissingNeed, missing_needs, note
from envdoctor.knowledge.cuda import toolkit
from envdoctor.locking.uv import is_unreachable, reason, run_uv, unreachable
from envdoctor.machine.cuda import read_cuda
from envdoctor.machine.memory import read_memory
from envdoctor.profiles import Build, Wheel
from envdoctor.profiles.direct_wheels import StackFacts, rejection
from envdoctor.rules.facts import parse_major_minor
from envdoctor.rules.toolchain import gcc_major

ASK_SECONDS = 120.0
ALWAYS = ("cxx-compiler", "python-headers")
NVCC = "nvcc"  # looked for as torch does, not on PATH alone
# With these nvcc is told which compiler to take, so what `cc` is does not matter.
HOST_COMPILER = ("NVCC_CCBIN", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


class BuildSurvey(Record, frozen=True):
    """What was found: needs that `--system` will meet, and what to tell before it begins."""

    needs: tuple[MissingNeed, ...] = ()
    notes: tuple[str, ...] = ()


def survey_builds(plan: Plan, interpreter: Path | None, manager: str, environ: Mapping[str, str]) -> BuildSurvey:
    """Look for compilers, headers, memory and the sources; raises what stands in the way of a build.

    `interpreter` is None where uv will download one. What a wheel fits for is left out.
    """
    build = plan.build
    if build is None:
        return BuildSurvey()
    prebuilt = {name: wheel for name in build.packages if (wheel := likely_wheel(plan, name))}
    notes = tuple(
        f"{wheel.file} is taken if it can be had, and {name} not compiled" for name, wheel in prebuilt.items()
    )
    names = [name for name in build.packages if name not in prebuilt]
    if not names:
        return BuildSurvey(notes=notes)
    needs = missing_tools(build, plan, interpreter, manager, environ)
    if needs and not (plan.install_system and all(need.packages for need in needs)):
        raise _without_tools(names, needs, manager)
    refuse_toolchain(names, build, plan, read_cuda(environ), environ)
    refuse_memory(names, build, read_memory())
    for step in plan.steps:
        if step.built in names:
            ask_for_source(step, plan)
    told = f"compiled here: {', '.join(names)}, {estimated_time(build, plan.jobs)} ({plan.jobs.why})"
    return BuildSurvey(needs, (*notes, told))


def likely_wheel(plan: Plan, name: str) -> Wheel | None:
    """A wheel of [[wheels]] that fits the lock, as far as that is known before torch's C++ ABI is."""
    torch = next((package.version for package in plan.lock.packages if package.name == "torch"), "")
    architecture = plan.lock.platform.partition("-")[0]
    for wheel in (wheel for step in plan.steps for wheel in step.wheels if wheel.name == name):
        for abi in (True, False):
            stack = StackFacts(plan.lock.python, architecture, torch, plan.lock.torch_build, plan.glibc, abi)
            if not rejection(wheel, stack):
                return wheel
    return None


def missing_tools(
    build: Build, plan: Plan, interpreter: Path | None, manager: str, environ: Mapping[str, str]
) -> tuple[MissingNeed, ...]:
    """Programs and headers that are not there; what the lock brings (ninja, cmake) is found in the environment."""
    brought = {package.name for package in plan.lock.packages}
    if shutil.which((environ.get("CXX") or " ").split(" ")[0], path=environ.get("PATH")):
        brought.add("cxx-compiler")
    names = [name for name in dict.fromkeys((*ALWAYS, *build.needs)) if name not in brought and name != NVCC]
    return tuple(missing_needs(names, plan.lock.python, interpreter, manager, environ))


def _without_tools(names: Sequence[str], needs: Sequence[MissingNeed], manager: str) -> BadInput:
    told, _, command = note(needs, manager).rpartition(": ")
    return BadInput(
        f"{' and '.join(names)} cannot be compiled here: {told}",
        expected="what its build needs",
        hint=f"{command}; or the same command with --system" if needs[0].packages else command,
    )


def refuse_toolchain(
    names: Sequence[str], build: Build, plan: Plan, cuda: CudaToolkit, environ: Mapping[str, str]
) -> None:
    """Refuse an nvcc that torch will not build with, and a compiler that nvcc will not take (CUDA001, CUDA003)."""
    if NVCC not in build.needs:
        return
    what, wanted = " and ".join(names), plan.lock.torch_build
    torch, found = parse_major_minor(wanted), parse_major_minor(cuda.nvcc_version.value)
    install = f"sudo apt-get install -y cuda-toolkit-{wanted.replace('.', '-')} && " if torch else ""
    hint = f"{install}export CUDA_HOME=/usr/local/cuda{f'-{wanted}' if torch else ''}"
    if cuda.nvcc.state == "absent":
        raise BadInput(
            f"{what} cannot be compiled here: there is no nvcc (looked for in {cuda.nvcc.source})",
            expected=f"the CUDA toolkit {wanted}" if torch else "the CUDA toolkit",
            hint=hint,
        )
    if torch and found and torch[0] != found[0]:
        raise BadInput(
            f"nvcc is {cuda.nvcc_version.value} ({cuda.nvcc.value}), and {what} is compiled for CUDA {wanted}",
            expected=f"nvcc of CUDA {torch[0]}, as torch: torch builds with no other",
            hint=hint,
        )
    row = toolkit(found) if found else None
    gcc = gcc_major(cuda.compiler.value or "")
    if row and gcc and gcc > row.gcc and not any(environ.get(name) for name in HOST_COMPILER):
        raise BadInput(
            f"gcc {gcc} ({cuda.compiler.source}) is newer than nvcc {cuda.nvcc_version.value} accepts",
            expected=f"gcc {row.gcc} or older to compile {what}",
            hint=f"sudo apt-get install -y g++-{row.gcc} && export CC=gcc-{row.gcc} CXX=g++-{row.gcc} "
            f"NVCC_PREPEND_FLAGS='-ccbin g++-{row.gcc}'",
        )


def refuse_memory(names: Sequence[str], build: Build, memory: Memory) -> None:
    """Refuse where not even one compiler has room: the kernel would kill it."""
    there = memory_for_builds(memory)
    if there is not None and there < build.memory_gb_per_job * GIB:
        raise BadInput(
            f"{there / GIB:.1f} GiB of memory are there to compile {' and '.join(names)} "
            f"({memory.available.source}, {memory.cgroup_limit.source})",
            expected=f"{build.memory_gb_per_job:g} GiB for one compiler",
            hint="free -h; end what takes the memory, or give the job or container more of it",
        )


def ask_for_source(step: Step, plan: Plan) -> None:
    """Ask uv whether the sources have what is to be built, by a dry run of the step for no environment."""
    import tempfile

    package = next(package for package in plan.lock.built if package.name == step.built)
    with tempfile.TemporaryDirectory(prefix="envdoctor-ask-") as folder:
        file = Path(folder, "build.txt")
        file.write_text(f"{package.line}\n")
        result = run_uv(
            ["pip", "install", "--dry-run", "--target", Path(folder, "nowhere"), "--python-version", plan.lock.python,
             "--no-deps", *plan.arguments, "--no-binary", step.built, "-r", file],
            environment=plan.environment, deadline=ASK_SECONDS,
        )  # fmt: skip
    if result.ok:
        return
    if result.timed_out or is_unreachable(result.output):
        raise EnvdoctorError(
            f"the source of {step.built} cannot be had: "
            f"{result.ending if result.timed_out else unreachable(result.output)}",
            expected="the sources that the profile was resolved from",
            hint="check the network and run the same command again",
        )
    raise Refused(
        f"the source of {step.built} cannot be had: {reason(result.output)}",
        expected=f"the source distribution of {package.name} {package.version}",
        hint=f"envdoctor install --profile {plan.profile} --upgrade, which resolves anew",
    )
