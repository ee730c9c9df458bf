"""Stub versions of the driver's libraries, so that a machine without a driver can load files that link to them.

A stub defines every function that the environment's files need. Each function returns the error code for "no GPU".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shutil import which

from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.core import processes as process
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.record import Record

COMPILE_SECONDS = 60
# Library -> pattern of its functions and their return value: CUDA_ERROR_NO_DEVICE (cuda.h) and
# NVML_ERROR_DRIVER_NOT_LOADED (nvml.h).
DRIVER_LIBRARIES = {"libcuda.so.1": (rb"cu[A-Z]\w+", 100), "libnvidia-ml.so.1": (rb"nvml[A-Z]\w+", 9)}


class DriverLibraries(Record, frozen=True):
    """The driver's libraries in a load test: installed ones, stubs and missing ones."""

    stub_directory: str = ""  # goes first on LD_LIBRARY_PATH; empty without stubs
    stubs: dict[str, int] = {}  # library and the number of its functions
    installed: tuple[str, ...] = ()
    missing: dict[str, str] = {}  # library and why there is no stub

    @property
    def description(self) -> str:
        """Where each library comes from, in one line."""
        parts = [f"{name} of the installed driver" for name in self.installed]
        parts += [f"a stub of {name} with {number} functions" for name, number in self.stubs.items()]
        parts += [f"no {name}: {reason}" for name, reason in self.missing.items()]
        return "; ".join(parts)


def prepare_driver_libraries(
    users: Mapping[str, Iterable[str]],
    directory: Path,
    find_library: Callable[[str], str],
    compiler: str | None = None,
) -> DriverLibraries:
    """Compile a stub of each driver library that is needed and not installed.

    `users`: the files that need each library. `find_library` returns the path of an installed library or "".
    `compiler`: a C compiler, "" for none, None to search PATH.
    """
    if compiler is None:
        compiler = next((path for name in ("cc", "gcc", "clang") if (path := which(name))), "")
    stubs: dict[str, int] = {}
    installed: list[str] = []
    missing: dict[str, str] = {}
    for library, (pattern, error_code) in DRIVER_LIBRARIES.items():
        paths = list(users.get(library, ()))
        if not paths:
            continue
        if find_library(library):
            installed.append(library)
        elif not compiler:
            missing[library] = "no driver is installed, and no C compiler (cc, gcc, clang) to build a stub library"
        else:
            functions = undefined_functions(paths, re.compile(pattern))
            if problem := compile_stub_library(directory / library, functions, error_code, compiler):
                missing[library] = problem
            else:
                stubs[library] = len(functions)
    return DriverLibraries(str(directory) if stubs else "", stubs, tuple(installed), missing)


def undefined_functions(paths: Iterable[str], pattern: re.Pattern[bytes]) -> list[str]:
    """The undefined symbols of these files whose name matches."""
    names: set[str] = set()
    for path in paths:
        try:
            with open_elf(path) as elf:
                names |= {name.decode() for name in elf.required_symbols() if pattern.fullmatch(name)}
        except ElfError:
            continue  # the load test reports the file
    return sorted(names)


def compile_stub_library(path: Path, functions: Iterable[str], error_code: int, compiler: str) -> str:
    """Compile a library whose functions return one number. Returns the problem, or "" on success."""
    source = path.with_name(path.name + ".c")
    lines = "".join(f"int {name}(void) {{ return {error_code}; }}\n" for name in functions)
    source.write_text(lines or "int envdoctor_stub;\n")
    argv: list[str | Path] = [compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", "-o", path, source]
    try:
        finished = process.run(argv, timeout=COMPILE_SECONDS)
    except EnvdoctorError as error:
        return error.message
    return "" if finished.ok else f"{compiler} {finished.ending}: {finished.output.strip().splitlines()[-1:] or ''}"
