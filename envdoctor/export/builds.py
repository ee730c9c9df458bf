"""The second step of an export: what is compiled on the machine, after the wheels, against them and nothing else.

As the installer does it: without build isolation, so with the lock's torch and with build requirements that came by
the lock with their hashes; the source by its hash; everything else stays a wheel.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.export.stack import GUARDS, OBEYED, Locked, uv_backend
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.locking.lock import BUILT_MARK, Package
from envdoctor.profiles import Build

KIB_PER_GIB = 1 << 20
MOST_GB = 1_000_000
NVCC = "nvcc"
# uv's and pip's own caches would hand out what was compiled against another torch.
JOBS = (
    """export MAX_JOBS=${MAX_JOBS:-$(awk -v cores="$(nproc)" '/^MemAvailable/ { jobs = int($2 / @@) } """
    """END { if (jobs > cores) jobs = cores; if (jobs < 1) jobs = 1; print jobs }' /proc/meminfo)}"""
)


def built(stack: Locked) -> tuple[Package, ...]:
    """What is compiled, in the profile's order; BadInput where the profile and the lock differ in it."""
    packages = {package.name: package for package in stack.file.built}
    build = stack.profile.build
    hint = f"envdoctor profiles show {shlex.quote(stack.profile.id)}"
    if other := set(packages) ^ set(build.packages if build else ()):
        raise BadInput(
            f"the lock of '{stack.profile.id}' and [build] of the profile differ in {', '.join(sorted(other))}",
            expected="a lock of the profile as it is now",
            hint=f"envdoctor lock --profile {shlex.quote(stack.profile.id)}",
        )
    if build is None:
        return ()
    if not 0 < build.memory_gb_per_job < MOST_GB:
        observed = f"build.memory_gb_per_job = {build.memory_gb_per_job}"
        raise BadInput(observed, expected=f"more than 0 and less than {MOST_GB} GiB", hint=hint)
    for name, value in build.environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or OBEYED.fullmatch(name) or not value.isprintable():
            raise BadInput(
                f"build.environment: {name!r} = {value!r}",
                expected="variables of the package that is compiled, each one line of printable text",
                hint=hint,
            )
    return tuple(packages[name] for name in build.packages)


def named(packages: Sequence[Package]) -> str:
    """Names and versions, for people."""
    return ", ".join(f"{package.name} {package.version}" for package in packages)


def build_file(package: Package) -> str:
    """The name of the requirements file of one build."""
    return f"build-{package.name}.txt"


def from_lock(package: Package, lock: str) -> str:
    """A command that takes the line of one build, a comment in the lock's file, into a file of its own."""
    start = f"{package.name}=="
    return f"sed -n 's/^{BUILT_MARK}{start}/{start}/p' {lock} > {build_file(package)}"


def uv_build(stack: Locked, package: Package, *, backend: bool = True) -> list[str]:
    """uv's words for compiling one package; the interpreter and the file come after them."""
    return ["uv", "pip", "install", *_guards(package, "--no-cache"), *(uv_backend(stack) if backend else ())]


def pip_build(package: Package) -> list[str]:
    """pip's, the same; the interpreter comes before them."""
    return ["-m", "pip", "install", *_guards(package, "--no-cache-dir")]


def pip_wheels(stack: Locked) -> list[str]:
    """pip's words for the wheels; what is compiled later is not there yet, so their requirements are checked last."""
    return ["-m", "pip", "install", *(("--no-deps",) if stack.file.built else ()), *GUARDS]


def _guards(package: Package, cache: str) -> list[str]:
    return ["--no-deps", *GUARDS, "--no-binary", package.name, "--no-build-isolation", cache]


def _build(stack: Locked) -> Build:
    return stack.profile.build or Build(packages=())


def jobs_line(stack: Locked) -> str:
    """A line of shell that sets MAX_JOBS, unless it is set: as many compilers as there are cores and memory for."""
    return JOBS.replace("@@", str(math.ceil(_build(stack).memory_gb_per_job * KIB_PER_GIB)))


def settings(stack: Locked) -> str:
    """Variables of the build, as words before a command of the shell."""
    variables = _build(stack).environment.items()
    return "".join(f"{name}={shlex.quote(value)} " for name, value in variables if name != "MAX_JOBS")


def needs(stack: Locked) -> list[str]:
    """What the builds need of the system beside a C++ compiler and Python's headers, by the names of the table."""
    brought = {package.name for package in stack.file.packages}
    return [name for name in _build(stack).needs if name not in brought]


def apt_packages(stack: Locked) -> list[str]:
    """The needs as packages of Debian and Ubuntu; nvcc is the base image's matter."""
    rows = (system_packages()[name] for name in needs(stack) if name != NVCC)
    return list(dict.fromkeys(package for row in rows for package in row.packages("apt", stack.file.python)))


def programs(stack: Locked) -> list[tuple[str, ...]]:
    """The programs that the builds call: of each tuple any one will do."""
    rows = (system_packages()[name] for name in dict.fromkeys(("cxx-compiler", *needs(stack))))
    found = (tuple(sign.program for sign in row.provides if sign.program) for row in rows)
    return [names for names in found if names]


def shell_steps(stack: Locked, python: str, folder: str) -> list[str]:
    """Commands of any POSIX shell that compile and then check; the files of the builds lie in `folder`."""
    commands = [
        f"{settings(stack)}{shlex.join([*uv_build(stack, package), '--python', python])} "
        f"-r {shlex.quote(f'{folder}/{build_file(package)}')}"
        for package in built(stack)
    ]
    return [jobs_line(stack), *commands, shlex.join(["uv", "pip", "check", "--python", python])] if commands else []


def build_notes(stack: Locked) -> list[str]:
    """What is to be known of the builds beforehand."""
    packages, build = built(stack), _build(stack)
    if not packages:
        return []
    measured = f", {build.core_minutes:g} core-minutes measured" if build.core_minutes else ""
    notes = [f"{named(packages)}: compiled from source where it is installed, after the wheels{measured}"]
    names = {wheel.name for wheel in stack.profile.wheels}
    if prebuilt := [package.name for package in packages if package.name in names]:
        notes.append(f"the wheels of {', '.join(prebuilt)} that the profile names are not tried")
    return notes


def at_once_notes(stack: Locked) -> list[str]:
    """What is to be known of forms whose one command installs the wheels and then compiles."""
    names = [package.name for package in built(stack)]
    if not names:
        return []
    notes = [f"uv's cache hands out what it compiled against another torch: uv cache clean {' '.join(names)}"]
    notes.append(
        f"MAX_JOBS, if set, is how many compilers run at once ({_build(stack).memory_gb_per_job:g} GiB each)"
    )
    if len(names) > 1:
        notes.append("they are compiled at once, none of them against another")
    return notes
