"""The compiled files of an environment, and the libraries and symbols that each of them does not find."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from envdoctor.binaries.cache import CompiledFile, FileCache, identity
from envdoctor.binaries.elf import DAMAGED, Elf, ElfError, ForeignFileError, open_elf
from envdoctor.binaries.fatbin import read_kernel_code
from envdoctor.binaries.libraries import MACHINE, LibrarySearch
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import NO_FILE, Extension

# Symbols that torch or NCCL must define: Itanium-mangled names in c10, at, torch and caffe2 (with vtables and type
# information), torch's C functions and NCCL's functions.
TORCH_OR_NCCL_SYMBOL = re.compile(rb"_Z(?:T[IVS])?N?K?(?:3c10|2at|5torch|6caffe2)|THP[A-Z]|aoti_torch_|p?nccl[A-Z]")
NCCL_SYMBOL = re.compile(rb"p?nccl[A-Z]")
MAX_SYMBOLS = 20
# Files of which a package loads one, by the version found at run time: bitsandbytes' libbitsandbytes_cuda128.so,
# torchaudio's _torio_ffmpeg6.so, torchcodec's libtorchcodec_core7.so.
VARIANT = lazy_pattern(
    r"(?P<family>.*?(?P<kind>cuda|rocm|ffmpeg|core))_?(?P<version>\d+)(?:_nocublaslt)?(?:\.[\w-]+)?\.so"
)

# Optional parts of packages, which may need libraries that are not installed.
OPTIONAL_FILES = lazy_pattern(
    r"bitsandbytes/libbitsandbytes_(xpu|rocm|hpu)|cupy_backends/cuda/libs/|numba/np/ufunc/(tbb|omp)pool|torio/lib/"
    r"|torchaudio/lib/\w*_sox|torchcodec/libtorchcodec_|onnxruntime/capi/libonnxruntime_providers_|triton/backends/amd/"
    r"|ray/core/libjemalloc\.so"  # used only through LD_PRELOAD
    # One for each release of torch before it has the function itself; core.py loads none for another release.
    r"|torch_c_dlpack_ext/libtorch_c_dlpack_addon_torch"
)


class CompiledPath(Record, frozen=True):
    """The location of a compiled file and its distribution."""

    folder: str  # site-packages
    path: str  # relative to it
    distribution: str

    @property
    def full(self) -> str:
        """The absolute path."""
        return self.path if self.path.startswith("/") else f"{self.folder}/{self.path}"

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]

    @property
    def is_cuda_wheel(self) -> bool:
        """Whether it belongs to a wheel of NVIDIA, whose libraries depend on no other package."""
        return self.path.startswith("nvidia/")


class CompiledFiles(Record, frozen=True):
    """All compiled files of an environment; a file that cannot be read has a `problem`."""

    files: dict[CompiledPath, CompiledFile]
    notes: list[str]


def read_files(
    paths: Iterable[CompiledPath], cache: FileCache, *, include_cuda_wheels: bool = False
) -> CompiledFiles:
    """Read compiled files. Libraries of NVIDIA wheels are only listed, unless `include_cuda_wheels`."""
    files: dict[CompiledPath, CompiledFile] = {}
    notes: list[str] = []
    missing = []
    for path in paths:
        try:
            status = os.stat(path.full)  # noqa: PTH116
        except FileNotFoundError:
            files[path] = CompiledFile(problem=NO_FILE)
            missing.append(path.full)
        except (OSError, ValueError) as error:  # ValueError: a null byte in a RECORD
            files[path] = CompiledFile(problem=getattr(error, "strerror", None) or str(error))
        else:
            if not stat.S_ISREG(status.st_mode):  # opening a named pipe would block
                files[path] = CompiledFile(problem="not a regular file")
            elif path.is_cuda_wheel and not include_cuda_wheels:
                files[path] = CompiledFile(problem=_damage(path))
            else:
                files[path] = _read_file(path, identity(status), cache)
        if files[path].problem not in ("", NO_FILE):
            notes.append(f"{path.full}: {files[path].problem}")
    if missing:
        notes.append(f"{len(missing)} recorded files do not exist, for example {missing[0]}")
    return CompiledFiles(files, notes)


def _damage(path: CompiledPath) -> str:
    """What is wrong with the header and the length of a file; empty if nothing is."""
    try:
        with open_elf(path.full):
            return ""
    except ForeignFileError:
        return ""
    except ElfError as error:
        return str(error)


def _read_file(path: CompiledPath, key: str, cache: FileCache) -> CompiledFile:
    cached = cache.get(key)
    if cached is not None:
        return cached
    try:
        with open_elf(path.full) as elf:
            file = _describe(elf, NCCL_SYMBOL if path.distribution == "torch" else TORCH_OR_NCCL_SYMBOL)
    except ElfError as error:
        file = CompiledFile(problem=str(error), foreign=isinstance(error, ForeignFileError))
        if not str(error).startswith("not a"):  # a file that cannot be read now is not cached
            return file
    cache.put(key, file)
    return file


def _describe(elf: Elf, symbols: re.Pattern[bytes]) -> CompiledFile:
    return CompiledFile(
        machine=elf.machine,
        needed=elf.needed,
        soname=elf.soname,
        search_path=elf.search_path,
        undefined=elf.undefined(symbols),
        glibc=elf.glibc,
        glibcxx=elf.glibcxx,
        code=read_kernel_code(elf),
    )


def find_missing_dependencies(
    compiled: CompiledFiles,
    *,
    torch_folder: str,
    torch_cuda: str,
    folders: Iterable[Path],
    environ: Mapping[str, str],
) -> tuple[Extension, ...]:
    """Check each file against the environment. `torch_cuda`: the CUDA version of torch's build ("12.8")."""
    files = compiled.files
    provided = {path.name for path, file in files.items() if file.problem != NO_FILE}
    provided |= {file.soname for file in files.values() if file.soname}
    search = LibrarySearch(provided, folders, environ)
    variants = find_variants(files, torch_cuda)
    with SymbolDefinitions(files, torch_folder, folders) as definitions:
        return tuple(
            Extension(
                path=path.path,
                distribution=path.distribution,
                needed=file.needed,
                missing_libraries=() if path in variants else _missing_libraries(path, file, search),
                missing_symbols=definitions.missing(path, file),
                glibc=file.glibc,
                glibcxx=file.glibcxx,
                code=file.code,
                problem=file.problem,
            )
            for path, file in files.items()
            if (file.problem and not file.foreign) or not (file.problem or path.is_cuda_wheel)
        )


def _missing_libraries(path: CompiledPath, file: CompiledFile, search: LibrarySearch) -> tuple[str, ...]:
    if file.machine != MACHINE or OPTIONAL_FILES.match(path.path):
        return ()
    origin = path.full.rpartition("/")[0]
    return tuple(name for name in file.needed if not search.can_find(name, origin, file.search_path))


def find_variants(paths: Iterable[CompiledPath], torch_cuda: str) -> set[CompiledPath]:
    """Files for a version of CUDA, ROCm or FFmpeg that is not installed, if the package has several such files."""
    matches = {path: found for path in paths if (found := VARIANT.fullmatch(path.name))}
    families = Counter(_family(path, found) for path, found in matches.items())
    return {
        path
        for path, found in matches.items()
        if (families[_family(path, found)] > 1 or found["kind"] == "rocm")
        and not (found["kind"] == "cuda" and found["version"] == torch_cuda.replace(".", ""))
    }


def _family(path: CompiledPath, found: re.Match[str]) -> tuple[str, str]:
    return path.distribution, found["family"]


class SymbolDefinitions:
    """The symbols that the installed torch and NCCL define. Each symbol is looked up once, in their hash tables."""

    def __init__(
        self, files: Mapping[CompiledPath, CompiledFile], torch_folder: str, folders: Iterable[Path]
    ) -> None:
        self._files = files
        self._open = ExitStack()
        torch = [*_torch_libraries(torch_folder, folders)] if torch_folder else []
        nccl = [path.full for path in files if path.name.startswith("libnccl.so")]
        self._torch = [elf for path in torch if (elf := self._map(path))]
        self._nccl = [elf for path in nccl if (elf := self._map(path))]
        self._defined: dict[str, bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap the libraries."""
        self._open.close()

    def missing(self, path: CompiledPath, file: CompiledFile) -> tuple[str, ...]:
        """Symbols of a file that are not defined. Empty if torch or NCCL is not installed."""
        if file.machine != MACHINE:
            return ()
        checked = [name for name in file.undefined if self._is_checked(name, path)]
        missing = [name for name in checked if not self._defines(name)]
        if missing:
            others = (other for other in self._files if other.distribution == path.distribution and other != path)
            siblings = [elf for other in others if (elf := self._map(other.full))]
            missing = [name for name in missing if not _any_defines(siblings, name)]
        return tuple(missing[:MAX_SYMBOLS])

    def _is_checked(self, name: str, path: CompiledPath) -> bool:
        if name.startswith(("nccl", "pnccl")):
            return bool(self._nccl)
        return bool(self._torch) and path.distribution != "torch"  # torch's own files come from one build

    def _defines(self, name: str) -> bool:
        if name not in self._defined:
            self._defined[name] = _any_defines([*self._torch, *self._nccl], name)
        return self._defined[name]

    def _map(self, path: str) -> Elf | None:
        try:
            return self._open.enter_context(open_elf(path))
        except ElfError:
            return None


def _any_defines(elves: Iterable[Elf], name: str) -> bool:
    for elf in elves:
        try:
            if elf.defines(name):
                return True
        except DAMAGED:
            continue
    return False


def _torch_libraries(torch_folder: str, folders: Iterable[Path]) -> Iterator[str]:
    """Libraries that define torch's symbols: in torch/lib, or in lib of a conda environment."""
    for folder in (Path(torch_folder, "torch/lib"), *folders):
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        yield from (str(folder / name) for name in sorted(names) if re.fullmatch(r"lib(c10|torch)\w*\.so", name))
