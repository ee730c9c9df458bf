"""`envdoctor abi`: what each compiled file of an environment asks for, and what of it nobody here offers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Literal

from envdoctor.binaries.cache import CompiledFile
from envdoctor.binaries.demangle import demangle
from envdoctor.binaries.elf import ElfError
from envdoctor.binaries.extensions import OPTIONAL, CompiledPath, find_variants
from envdoctor.binaries.linkage import Linkage, Unmet
from envdoctor.core import processes as process
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, EnvdoctorError
from envdoctor.core.paths import expanded
from envdoctor.core.records import Extension, Record, Stack
from envdoctor.core.results import Answer
from envdoctor.knowledge.libraries import package_of_library, package_of_symbol
from envdoctor.rules.facts import torch_cuda, torch_version

HINT = "envdoctor abi .venv"
CXXFILT_SECONDS = 10


class Lack(Record, frozen=True):
    """A library, a symbol version or a symbol that a file asks for in vain."""

    kind: Literal["library", "version", "symbol"]
    name: str
    readable: str  # the symbol as C++ says it; else the name
    package: str  # where it should have come from; empty where that is not known
    library: str = ""  # of a version: the library that lacks it, and the file that was found for it
    found: str = ""


class LinkedFile(Record, frozen=True, kw_only=True):
    """One compiled file, held against everything that it is linked to."""

    path: str
    distribution: str
    outcome: Literal["fits", "lacks", "left-out", "unread"]
    why: str = ""  # it is left out or unread
    needed: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    elsewhere: tuple[str, ...] = ()  # symbols that a file here defines to which it does not link


class AbiChecked(Record, frozen=True, kw_only=True):
    """Every compiled file of an environment but NVIDIA's own."""

    origin: str
    torch: str
    files: tuple[LinkedFile, ...]
    seconds: float = 0.0


def abi(target: str) -> Answer:
    """Hold every compiled file against torch, CUDA and the system; exit code 1 where one lacks something."""
    started = time.monotonic()
    place, stack = _environment(target)
    files = tuple(_linked(place, stack))
    readable = read_names({lack.name for file in files for lack in file.lacks if lack.kind == "symbol"})
    files = tuple(_with_names(file, readable) for file in files)
    if not files:
        raise BadInput(
            f"{target} holds no compiled file", expected="an environment with compiled packages", hint=HINT
        )
    checked = AbiChecked(
        origin=target, torch=torch_version(stack), files=files, seconds=round(time.monotonic() - started, 3)
    )
    return Answer(checked, EXIT_NO if any(file.outcome == "lacks" for file in files) else EXIT_OK)


def _environment(target: str) -> tuple[Path, Stack]:
    from envdoctor.environment.find import find_stack
    from envdoctor.environment.select import select_stack

    if not expanded(target).is_dir():
        raise BadInput(f"{target} is no folder", expected="the folder of an environment", hint=HINT)
    place = find_stack(target, "", os.environ)
    stack = select_stack(target, "", search=False)
    if place is None or stack is None:
        raise BadInput(f"{target} is no environment", expected="the folder of an environment", hint=HINT)
    return place, stack


def read_environment(
    place: Path,
) -> tuple[dict[CompiledPath, CompiledFile], dict[str, CompiledPath], Linkage]:
    """The compiled files of an environment, the same by name and SONAME, and how they are linked."""
    from envdoctor.core.directories import cache_directory
    from envdoctor.environment.find import environment_of
    from envdoctor.environment.inspect import read_compiled
    from envdoctor.environment.layout import read_layout

    place = place if place.is_dir() else environment_of(place) or place
    layout = read_layout(place, os.environ)
    files = read_compiled(place, cache_directory()).files
    by_name: dict[str, CompiledPath] = {}
    for path, file in files.items():
        for name in filter(None, (path.name, file.soname)):
            by_name.setdefault(name, path)
    folders = [prefix / "lib" for prefix in dict.fromkeys((layout.prefix, layout.base))]
    provided = {name: path.full for name, path in by_name.items()}
    return files, by_name, Linkage(provided, folders, os.environ, layout.interpreter.value or "")


def _linked(place: Path, stack: Stack) -> Iterator[LinkedFile]:
    """Each file with what it lacks: symbols as the rules found them, and all else that the loader would ask for."""
    files, _, linkage = read_environment(place)
    cuda = torch_cuda(stack)
    variants = find_variants(files, cuda)
    judged = {(each.distribution, each.path): each for each in stack.extensions.value or ()}
    for path, file in files.items():
        if path.is_cuda_wheel:
            continue
        kept = LinkedFile(path=path.path, distribution=path.distribution, outcome="fits", needed=file.needed)
        if why := file.problem:
            yield _but(kept, outcome="unread", why=why)
        elif why := reason_to_leave(path, file.machine, variants):
            yield _but(kept, outcome="left-out", why=why)
        else:
            yield _judged(kept, path, linkage, judged.get((path.distribution, path.path)), cuda)


def _judged(kept: LinkedFile, path: CompiledPath, linkage: Linkage, known: Extension | None, cuda: str) -> LinkedFile:
    try:
        unmet = linkage.unmet(path.full)
    except ElfError as error:
        return _but(kept, outcome="unread", why=str(error))
    lacks = tuple(lacks_of(unmet, known.missing_symbols if known else (), cuda))
    return _but(
        kept, outcome="lacks" if lacks else "fits", lacks=lacks, elsewhere=tuple(name for name, _ in unmet.elsewhere)
    )


def lacks_of(unmet: Unmet, known_symbols: Iterable[str], cuda: str) -> Iterator[Lack]:
    """What a file lacks, libraries first; `known_symbols`: those that the rules judge by."""
    for name in unmet.libraries:
        yield Lack("library", name, name, package_of_library(name, cuda))
    for library, version, place in unmet.versions:
        yield Lack("version", version, version, package_of_library(library, cuda), library, place)
    for name in dict.fromkeys((*unmet.symbols, *known_symbols)):
        yield Lack("symbol", name, name, package_of_symbol(name, cuda))


def reason_to_leave(path: CompiledPath, machine: str, variants: set[CompiledPath]) -> str:
    """Why a file is not judged beside the others; empty where it is."""
    if machine != os.uname().machine:
        return f"made for {machine or 'another machine'}"
    if path in variants:
        return "for another version of a library than is here; one beside it is loaded"
    if OPTIONAL.match(path.path):
        return "a part that its library does without"
    return ""


def read_names(symbols: Iterable[str]) -> Mapping[str, str]:
    """Symbols as C++ says them: in full by c++filt where that is installed, else the bare name."""
    names = sorted(symbols)
    bare = {name: demangle(name) for name in names}
    program = which("c++filt")
    if not names or not program:
        return bare
    try:
        done = process.run([program], deadline=CXXFILT_SECONDS, stdin="\n".join(names).encode() + b"\n")
    except EnvdoctorError:
        return bare
    lines = done.output.splitlines()
    return dict(zip(names, lines, strict=True)) if done.ok and len(lines) == len(names) else bare


def _with_names(file: LinkedFile, readable: Mapping[str, str]) -> LinkedFile:
    lacks = tuple(_renamed(lack, readable.get(lack.name, lack.readable)) for lack in file.lacks)
    return _but(file, lacks=lacks)


def _renamed(lack: Lack, readable: str) -> Lack:
    return Lack(lack.kind, lack.name, readable, lack.package, lack.library, lack.found)


def _but(file: LinkedFile, **changes: object) -> LinkedFile:
    import msgspec

    return msgspec.structs.replace(file, **changes)
