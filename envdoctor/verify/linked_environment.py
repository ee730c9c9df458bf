"""The compiled files of an environment together with their linkage, for `abi` and the load test."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import which
from typing import NamedTuple

from envdoctor.binaries.cache import CompiledFile
from envdoctor.binaries.demangle import demangle
from envdoctor.binaries.extensions import OPTIONAL_FILES, CompiledPath
from envdoctor.binaries.linkage import Linkage
from envdoctor.core import processes as process
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.patterns import lazy_pattern

CXXFILT_SECONDS = 10
# An import takes only the file with the name of its Python: vLLM's deep_gemm has one for each.
FOR_PYTHON = lazy_pattern(r"\.cpython-3(?P<minor>\d+)t?-")
OWN_PYTHON = lazy_pattern(r"/python3\.(?P<minor>\d+)t?/")


class LinkedEnvironment(NamedTuple):
    """The compiled files of an environment, the same files by name and SONAME, and their linkage."""

    files: dict[CompiledPath, CompiledFile]
    by_name: dict[str, CompiledPath]
    linkage: Linkage


def read_linked_environment(path: Path) -> LinkedEnvironment:
    """Read every compiled file of an environment, given by its directory or its interpreter."""
    from envdoctor.core.directories import cache_directory
    from envdoctor.environment.find import environment_of_interpreter
    from envdoctor.environment.inspect import read_compiled_files
    from envdoctor.environment.layout import read_layout

    path = path if path.is_dir() else environment_of_interpreter(path) or path
    layout = read_layout(path, os.environ)
    files = read_compiled_files(path, cache_directory()).files
    by_name: dict[str, CompiledPath] = {}
    for compiled, file in files.items():
        for name in filter(None, (compiled.name, file.soname)):
            by_name.setdefault(name, compiled)
    folders = [prefix / "lib" for prefix in dict.fromkeys((layout.prefix, layout.base))]
    provided = {name: compiled.full for name, compiled in by_name.items()}
    linkage = Linkage(provided, folders, os.environ, layout.interpreter.value or "")
    return LinkedEnvironment(files, by_name, linkage)


def skip_reason(path: CompiledPath, machine: str, variants: set[CompiledPath]) -> str:
    """Why a file is not checked; empty if it is."""
    if machine != os.uname().machine:
        return f"built for {machine or 'another architecture'}"
    if path in variants:
        return "built for a library version that is not installed; another variant is loaded"
    wanted, own = FOR_PYTHON.search(path.name), OWN_PYTHON.search(path.folder)
    if wanted and own and wanted["minor"] != own["minor"]:
        return f"built for Python 3.{wanted['minor']}"
    if OPTIONAL_FILES.match(path.path):
        return "optional part of its package"
    return ""


def demangle_all(symbols: Iterable[str]) -> Mapping[str, str]:
    """C++ names of symbols: with parameters if c++filt is installed, otherwise the name alone."""
    mangled = sorted(symbols)
    short = {name: demangle(name) for name in mangled}
    program = which("c++filt")
    if not mangled or not program:
        return short
    try:
        finished = process.run([program], timeout=CXXFILT_SECONDS, stdin="\n".join(mangled).encode() + b"\n")
    except EnvdoctorError:
        return short
    lines = finished.output.splitlines()
    return dict(zip(mangled, lines, strict=True)) if finished.ok and len(lines) == len(mangled) else short
