"""Stand-ins for the driver's libraries, so that a machine without a driver can load what is linked to them.

Each function that the environment's files ask for is there and returns the error of a machine without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shutil import which

from envdoctor.binaries.elf import ElfError, open_elf
from envdoctor.core import processes as process
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Record

COMPILE_SECONDS = 60
# Library, the functions that are its own, and what they return: CUDA_ERROR_NO_DEVICE (cuda.h) and
# NVML_ERROR_DRIVER_NOT_LOADED (nvml.h).
DRIVER_LIBRARIES = {"libcuda.so.1": (rb"cu[A-Z]\w+", 100), "libnvidia-ml.so.1": (rb"nvml[A-Z]\w+", 9)}


class Standins(Record, frozen=True):
    """The driver's libraries for a load test: which are real, made here, or not to be had."""

    folder: str = ""  # to put first on LD_LIBRARY_PATH; empty where nothing was made
    made: dict[str, int] = {}  # library and number of its functions
    real: tuple[str, ...] = ()
    lacking: dict[str, str] = {}  # library, and why there is none

    @property
    def words(self) -> str:
        """What the files were loaded beside."""
        parts = [f"{name} of this machine's driver" for name in self.real]
        parts += [f"a stand-in for {name} with {number} functions" for name, number in self.made.items()]
        parts += [f"no {name}: {why}" for name, why in self.lacking.items()]
        return "; ".join(parts)


def make_standins(
    users: Mapping[str, Iterable[str]], folder: Path, find: Callable[[str], str], compiler: str | None = None
) -> Standins:
    """Make what is not here: `users` gives the files that need each library, `find` the path of a real one, or ""."""
    if compiler is None:
        compiler = next((found for name in ("cc", "gcc", "clang") if (found := which(name))), "")
    made: dict[str, int] = {}
    real: list[str] = []
    lacking: dict[str, str] = {}
    for library, (form, code) in DRIVER_LIBRARIES.items():
        paths = list(users.get(library, ()))
        if not paths:
            continue
        if find(library):
            real.append(library)
        elif not compiler:
            lacking[library] = "there is no driver here, and no C compiler (cc, gcc, clang) to make a stand-in with"
        else:
            functions = asked_functions(paths, re.compile(form))
            if why := compile_standin(folder / library, functions, code, compiler):
                lacking[library] = why
            else:
                made[library] = len(functions)
    return Standins(str(folder) if made else "", made, tuple(real), lacking)


def asked_functions(paths: Iterable[str], form: re.Pattern[bytes]) -> list[str]:
    """The functions of one library that these files leave undefined."""
    names: set[str] = set()
    for path in paths:
        try:
            with open_elf(path) as elf:
                names |= {name.decode() for name in elf.wanted() if form.fullmatch(name)}
        except ElfError:
            continue  # the load test says what is wrong with it
    return sorted(names)


def compile_standin(path: Path, functions: Iterable[str], code: int, compiler: str) -> str:
    """Compile a library of functions that return one number; why it did not work, or nothing."""
    source = path.with_name(path.name + ".c")
    lines = "".join(f"int {name}(void) {{ return {code}; }}\n" for name in functions)
    source.write_text(lines or "int envdoctor_standin;\n")
    argv: list[str | Path] = [compiler, "-shared", "-fPIC", "-w", f"-Wl,-soname,{path.name}", "-o", path, source]
    try:
        done = process.run(argv, deadline=COMPILE_SECONDS)
    except EnvdoctorError as error:
        return error.message
    return "" if done.ok else f"{compiler} {done.ending}: {done.output.strip().splitlines()[-1:] or ''}"
