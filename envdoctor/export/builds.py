"""The second step of an exported installation: compile packages after the wheels are installed.

As in `envdoctor install`, packages are built without isolation, with the locked torch and the locked build
requirements, from a source with a hash. All other packages are installed as wheels.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.core.shell_commands import shell_command
from envdoctor.export.stack import HASH_OPTIONS, UNSAFE_VARIABLES, LockedStack, uv_backend_options
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.locking.lock import BUILT_MARK, Package
from envdoctor.profiles import Build

KIB_PER_GIB = 1 << 20
MAX_GB = 1_000_000
NVCC = "nvcc"
# MAX_JOBS from the number of cores and the available memory, unless it is set.
MAX_JOBS_LINE = (
    """export MAX_JOBS=${MAX_JOBS:-$(awk -v cores="$(nproc)" '/^MemAvailable/ { jobs = int($2 / @@) } """
    """END { if (jobs > cores) jobs = cores; if (jobs < 1) jobs = 1; print jobs }' /proc/meminfo)}"""
)


def packages_to_build(stack: LockedStack) -> tuple[Package, ...]:
    """The packages to compile, in the profile's order. BadInput if the profile and the lock differ in them."""
    packages = {package.name: package for package in stack.lock.built}
    build = stack.profile.build
    hint = shell_command("envdoctor profiles show {}", stack.profile.id)
    if differing := set(packages) ^ set(build.packages if build else ()):
        raise BadInput(
            f"the lock of '{stack.profile.id}' and [build] of the profile differ in {', '.join(sorted(differing))}",
            expected="a lock of the current profile",
            hint=shell_command("envdoctor lock {}", stack.profile.id),
        )
    if build is None:
        return ()
    if not 0 < build.memory_gb_per_job < MAX_GB:
        observed = f"build.memory_gb_per_job = {build.memory_gb_per_job}"
        raise BadInput(observed, expected=f"more than 0 and less than {MAX_GB} GiB", hint=hint)
    for name, value in build.environment.items():
        if (
            not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
            or UNSAFE_VARIABLES.fullmatch(name)
            or not value.isprintable()
        ):
            raise BadInput(
                f"build.environment: {name!r} = {value!r}",
                expected="variables of the compiled package, each one line of printable text",
                hint=hint,
            )
    return tuple(packages[name] for name in build.packages)


def describe_packages(packages: Sequence[Package]) -> str:
    """Names and versions as text."""
    return ", ".join(f"{package.name} {package.version}" for package in packages)


def build_file(package: Package) -> str:
    """The file name of the requirements file of one build."""
    return f"build-{package.name}.txt"


def extract_line_command(package: Package, lock: str) -> str:
    """A command that copies the line of one build, which is a comment in the lock file, to its requirements file."""
    start = f"{package.name}=="
    return f"sed -n 's/^{BUILT_MARK}{start}/{start}/p' {lock} > {build_file(package)}"


def uv_build_command(stack: LockedStack, package: Package, *, backend: bool = True) -> list[str]:
    """The uv command to compile one package, without the interpreter and the file."""
    return [
        "uv",
        "pip",
        "install",
        *_build_options(package, "--no-cache"),
        *(uv_backend_options(stack) if backend else ()),
    ]


def pip_build_arguments(package: Package) -> list[str]:
    """The arguments of the interpreter to compile one package with pip, without the file."""
    return ["-m", "pip", "install", *_build_options(package, "--no-cache-dir")]


def pip_wheel_arguments(stack: LockedStack) -> list[str]:
    """The arguments of the interpreter to install the wheels with pip.

    If packages are compiled later, dependencies are not checked: they are not installed yet.
    """
    return ["-m", "pip", "install", *(("--no-deps",) if stack.lock.built else ()), *HASH_OPTIONS]


def _build_options(package: Package, cache: str) -> list[str]:
    return ["--no-deps", *HASH_OPTIONS, "--no-binary", package.name, "--no-build-isolation", cache]


def _build_settings(stack: LockedStack) -> Build:
    return stack.profile.build or Build(packages=())


def max_jobs_line(stack: LockedStack) -> str:
    """A shell command that sets MAX_JOBS, unless it is set, to what cores and memory permit."""
    return MAX_JOBS_LINE.replace("@@", str(math.ceil(_build_settings(stack).memory_gb_per_job * KIB_PER_GIB)))


def build_variables(stack: LockedStack) -> str:
    """The variables of the build, as a prefix of a shell command."""
    variables = _build_settings(stack).environment.items()
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables if name != "MAX_JOBS")


def build_needs(stack: LockedStack) -> list[str]:
    """Needs of the builds in addition to a C++ compiler and Python's headers, by the names of the table."""
    locked = {package.name for package in stack.lock.packages}
    return [name for name in _build_settings(stack).needs if name not in locked]


def apt_packages(stack: LockedStack) -> list[str]:
    """The needs as packages of Debian and Ubuntu, without nvcc, which the base image provides."""
    rows = (system_packages()[name] for name in build_needs(stack) if name != NVCC)
    return list(dict.fromkeys(package for row in rows for package in row.packages("apt", stack.lock.python)))


def required_programs(stack: LockedStack) -> list[tuple[str, ...]]:
    """The programs that the builds call. One program of each tuple is required."""
    rows = (system_packages()[name] for name in dict.fromkeys(("cxx-compiler", *build_needs(stack))))
    found = (tuple(sign.program for sign in row.provides if sign.program) for row in rows)
    return [names for names in found if names]


def build_commands(stack: LockedStack, python: str, folder: str) -> list[str]:
    """POSIX shell commands that compile the packages and check the result. `folder` has the requirements files."""
    commands = [
        f"{build_variables(stack)}{shlex.join([*uv_build_command(stack, package), '--python', python])} "
        f"-r {shlex.quote(f'{folder}/{build_file(package)}')}"
        for package in packages_to_build(stack)
    ]
    return (
        [max_jobs_line(stack), *commands, shlex.join(["uv", "pip", "check", "--python", python])] if commands else []
    )


def build_notes(stack: LockedStack) -> list[str]:
    """Notes for the user about the builds."""
    packages, build = packages_to_build(stack), _build_settings(stack)
    if not packages:
        return []
    measured = f", {build.core_minutes:g} core-minutes measured" if build.core_minutes else ""
    notes = [f"{describe_packages(packages)}: compiled from source where it is installed, after the wheels{measured}"]
    names = {wheel.name for wheel in stack.profile.wheels}
    if prebuilt := [package.name for package in packages if package.name in names]:
        notes.append(f"the wheels of {', '.join(prebuilt)} in the profile are not used")
    return notes


def single_command_notes(stack: LockedStack) -> list[str]:
    """Notes for formats with one command that installs the wheels and then compiles."""
    names = [package.name for package in packages_to_build(stack)]
    if not names:
        return []
    notes = [f"uv's cache may contain builds against another torch; to remove them: uv cache clean {' '.join(names)}"]
    notes.append(
        f"MAX_JOBS, if set, is how many compilers run at once ({_build_settings(stack).memory_gb_per_job:g} GiB each)"
    )
    if len(names) > 1:
        notes.append("they are compiled in parallel and cannot depend on each other")
    return notes
