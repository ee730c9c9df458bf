"""`envdoctor abi`: the libraries and symbols that each compiled file of an environment needs and does not find."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from envdoctor.binaries.elf import ElfError
from envdoctor.binaries.extensions import CompiledPath, find_variants
from envdoctor.binaries.linkage import Linkage, UnresolvedDependencies
from envdoctor.core.errors import BadInput, exit_code
from envdoctor.core.options import VenvArgument
from envdoctor.core.paths import expand_home
from envdoctor.core.record import Record
from envdoctor.core.records import Extension, Stack
from envdoctor.core.results import CommandResult
from envdoctor.environment.find import find_environment
from envdoctor.environment.select import read_environment
from envdoctor.install.known_environments import installed_environments
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.rules.facts import torch_cuda, torch_version
from envdoctor.verify.linked_environment import demangle_all, read_linked_environment, skip_reason

HINT = "envdoctor abi --venv PATH"


class MissingDependency(Record, frozen=True):
    """A library, a symbol version or a symbol that a file needs and that is not found."""

    kind: Literal["library", "version", "symbol"]
    name: str
    demangled: str  # the C++ name of a symbol, otherwise `name`
    package: str  # the distribution that should provide it; empty if unknown
    library: str = ""  # for a version: the library that does not define it ...
    library_path: str = ""  # ... and the file that was found for that library


class LinkedFile(Record, frozen=True, kw_only=True):
    """One compiled file, checked against everything that it links to."""

    path: str
    distribution: str
    outcome: Literal["ok", "missing", "skipped", "unreadable"]
    reason: str = ""  # of a skipped or unreadable file
    needed: tuple[str, ...] = ()
    missing: tuple[MissingDependency, ...] = ()
    unlinked_symbols: tuple[str, ...] = ()  # defined by a file of the environment that this file does not link to


class AbiReport(Record, frozen=True, kw_only=True):
    """Every compiled file of an environment except NVIDIA's own libraries."""

    origin: str
    torch: str
    files: tuple[LinkedFile, ...]
    seconds: float = 0.0


class AbiRequest(Record, frozen=True):
    """Compares the libraries and symbols that the files need with the installed ones. Nothing is loaded.

    Example: envdoctor abi .venv
    """

    venv: VenvArgument = ""


def run(request: AbiRequest) -> CommandResult:
    """Check every compiled file against torch, CUDA and the system; exit code 1 if a dependency is missing."""
    started = time.monotonic()
    path, stack = _select_environment(request.venv)
    origin = request.venv or str(path)
    files = _with_demangled_names(tuple(_check_files(path, stack)))
    if not files:
        raise BadInput(
            f"{origin} contains no compiled file", expected="an environment with compiled packages", hint=HINT
        )
    report = AbiReport(
        origin=origin, torch=torch_version(stack), files=files, seconds=round(time.monotonic() - started, 3)
    )
    outcomes = {file.outcome for file in files}
    return CommandResult(report, exit_code(failed="missing" in outcomes, undecided="unreadable" in outcomes))


def _select_environment(target: str) -> tuple[Path, Stack]:
    expected = "the directory of an environment"
    if target and not expand_home(target).is_dir():
        raise BadInput(f"{target} is not a directory", expected=expected, hint=HINT)
    selection = find_environment(target, "", os.environ, installed=installed_environments)
    stack = read_environment(selection)
    if stack is None:
        raise BadInput(f"no environment was selected: {selection.reason}", expected=expected, hint=HINT)
    return Path(selection.path), stack


def _check_files(path: Path, stack: Stack) -> Iterator[LinkedFile]:
    """Check each file for the symbols that the rules check and for everything that the dynamic loader resolves."""
    environment = read_linked_environment(path)
    cuda = torch_cuda(stack)
    variants = find_variants(environment.files, cuda)
    extensions = {(extension.distribution, extension.path): extension for extension in stack.extensions.value or ()}
    for compiled, file in environment.files.items():
        if compiled.is_cuda_wheel:
            continue
        linked = LinkedFile(path=compiled.path, distribution=compiled.distribution, outcome="ok", needed=file.needed)
        if file.foreign:
            yield msgspec.structs.replace(linked, outcome="skipped", reason=file.problem)
        elif file.problem:
            yield msgspec.structs.replace(linked, outcome="unreadable", reason=file.problem)
        elif reason := skip_reason(compiled, file.machine, variants):
            yield msgspec.structs.replace(linked, outcome="skipped", reason=reason)
        else:
            extension = extensions.get((compiled.distribution, compiled.path))
            yield _check_file(linked, compiled, environment.linkage, extension, cuda)


def _check_file(
    linked: LinkedFile, path: CompiledPath, linkage: Linkage, extension: Extension | None, cuda: str
) -> LinkedFile:
    try:
        unresolved = linkage.unresolved(path.full)
    except ElfError as error:
        return msgspec.structs.replace(linked, outcome="unreadable", reason=str(error))
    missing = tuple(_missing_dependencies(unresolved, extension.missing_symbols if extension else (), cuda))
    return msgspec.structs.replace(
        linked,
        outcome="missing" if missing else "ok",
        missing=missing,
        unlinked_symbols=tuple(name for name, _ in unresolved.unlinked),
    )


def _missing_dependencies(
    unresolved: UnresolvedDependencies, rule_symbols: Iterable[str], cuda: str
) -> Iterator[MissingDependency]:
    """The missing dependencies, libraries first. `rule_symbols`: missing symbols that the rules found."""
    for name in unresolved.libraries:
        yield MissingDependency("library", name, name, package_of_library(name, cuda))
    for library, version, path in unresolved.versions:
        yield MissingDependency("version", version, version, package_of_library(library, cuda), library, path)
    for name in dict.fromkeys((*unresolved.symbols, *rule_symbols)):
        yield MissingDependency("symbol", name, name, package_of_symbol(name, cuda))


def _with_demangled_names(files: tuple[LinkedFile, ...]) -> tuple[LinkedFile, ...]:
    symbols = {dependency.name for file in files for dependency in file.missing if dependency.kind == "symbol"}
    names = demangle_all(symbols)
    return tuple(
        msgspec.structs.replace(
            file,
            missing=tuple(
                msgspec.structs.replace(dependency, demangled=names.get(dependency.name, dependency.demangled))
                for dependency in file.missing
            ),
        )
        for file in files
    )
