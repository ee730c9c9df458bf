"""Facts that setup guides depend on and that package metadata does not contain: guides.toml."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import satisfies


class PypiTorch(TableRow, frozen=True, kw_only=True):
    """The CUDA version of the torch wheels on PyPI, from one release on."""

    first: str
    x86_64: str
    aarch64: str


class UbuntuCuda(TableRow, frozen=True, kw_only=True):
    """The CUDA version of Ubuntu's own toolkit package."""

    system: str
    cuda: str


class ReplacedArgument(Record, frozen=True, kw_only=True):
    """What replaces an argument of TRL's GRPO: another argument, or something else."""

    owner: str
    name: str
    replacement: str = ""
    instead: str = ""
    ignored: str = ""  # the releases that accept the argument without effect


class InheritedArguments(TableRow, frozen=True, kw_only=True):
    """The arguments that the classes of some packages have from a base class."""

    base: str
    packages: tuple[str, ...]
    names: str


class UnreadVariable(TableRow, frozen=True, kw_only=True):
    """An environment variable that no library reads, or only old releases of a package."""

    name: str
    instead: str
    package: str = ""
    releases: str = ""  # of the package, which do not read it; empty: all


class ModulePresence(TableRow, frozen=True, kw_only=True):
    """A module that only some releases of its package contain."""

    name: str
    package: str
    present: str
    instead: str


class PackageUse(TableRow, frozen=True, kw_only=True):
    """What shows that a guide uses a package: a pattern of commands and code, and how texts spell its name."""

    package: str
    pattern: str
    spelling: str = ""
    is_common_dependency: bool = False  # many packages require it: only a solution shows that none does


class RemovedOption(TableRow, frozen=True, kw_only=True):
    """An option that the program of a package had, up to a release."""

    package: str
    program: str
    option: str
    last: str  # release that has it
    first: str  # release that does not
    instead: str  # in words


class ProgramOption(TableRow, frozen=True, kw_only=True):
    """The long options that a program has in any release."""

    program: str
    names: str


class BuildOption(TableRow, frozen=True, kw_only=True):
    """An option of CMake with which the build of a package stops, from a release on."""

    package: str
    option: str
    first: str
    instead: str


class CompanionBuild(TableRow, frozen=True, kw_only=True):
    """The CUDA version of a package on PyPI that its import compares with that of torch."""

    package: str
    version: str
    cuda: str


class GuideTables(Record, frozen=True, kw_only=True):
    """The tables of guides.toml."""

    pypi_torch: tuple[PypiTorch, ...]
    ubuntu_cuda: tuple[UbuntuCuda, ...]
    argument: tuple[ReplacedArgument, ...]
    inherited: tuple[InheritedArguments, ...]
    switch: tuple[UnreadVariable, ...]
    module: tuple[ModulePresence, ...]
    use: tuple[PackageUse, ...]
    companion_build: tuple[CompanionBuild, ...]
    removed_option: tuple[RemovedOption, ...]
    program_option: tuple[ProgramOption, ...]
    build_option: tuple[BuildOption, ...]


def guide_tables() -> GuideTables:
    """The content of guides.toml."""
    return load_table("guides.toml", GuideTables)


def cuda_row(rows: Sequence[PypiTorch], torch: str) -> PypiTorch | None:
    """The row for a release of torch; None before the first row."""
    return next((row for row in reversed(rows) if satisfies(torch, f">={row.first}")), None)


@cache
def inherited_arguments(package: str) -> frozenset[str]:
    """The arguments that the classes of a package have from a base class of another package, or in all releases."""
    rows = (row for row in guide_tables().inherited if package in row.packages)
    return frozenset(name for row in rows for name in row.names.split())


@cache
def options_of_program(program: str) -> frozenset[str]:
    """The long options that a program has in any release; empty for one that is not in the table."""
    rows = (row for row in guide_tables().program_option if row.program == program)
    return frozenset(name for row in rows for name in row.names.split())


@cache
def cuda_on_pypi(torch: str, platform: str) -> str:
    """The CUDA version of a torch release's wheel on PyPI: "12.8", "cpu", or empty if unknown."""
    row = cuda_row(guide_tables().pypi_torch, torch)
    return (row.aarch64 if platform == "aarch64" else row.x86_64) if row else ""
