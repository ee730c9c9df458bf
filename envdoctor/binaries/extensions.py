"""The compiled files of an environment: what each needs, and what of it the others do not offer."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from envdoctor.binaries.cache import CompiledFile, FileCache, identity
from envdoctor.binaries.elf import Elf, ElfError, open_elf
from envdoctor.binaries.fatbin import read_kernel_code
from envdoctor.binaries.libraries import Loader
from envdoctor.core.records import Extension

# Names that torch or NCCL must define: Itanium-mangled ones in c10, at, torch and caffe2 (with their vtables and type
# information), torch's C names, and NCCL's.
FOREIGN_SYMBOL = re.compile(rb"_Z(?:T[IVS])?N?K?(?:3c10|2at|5torch|6caffe2)|THP[A-Z]|aoti_torch_|p?nccl[A-Z]")
NCCL_SYMBOL = re.compile(rb"p?nccl[A-Z]")
SYMBOLS_SHOWN = 20
# Files of one package of which one is loaded, by the version found at run time: bitsandbytes'
# libbitsandbytes_cuda128.so, torchaudio's _torio_ffmpeg6.so, torchcodec's libtorchcodec_core7.so.
VARIANT = re.compile(
    r"(?P<family>.*?(?P<kind>cuda|rocm|ffmpeg|core))_?(?P<version>\d+)(?:_nocublaslt)?(?:\.[\w-]+)?\.so"
)

# Parts that a package does without where their library is not installed: nothing is wrong then.
OPTIONAL = re.compile(
    r"bitsandbytes/libbitsandbytes_(xpu|rocm|hpu)|cupy_backends/cuda/libs/|numba/np/ufunc/(tbb|omp)pool|torio/lib/"
    r"|torchaudio/lib/\w*_sox|torchcodec/libtorchcodec_|onnxruntime/capi/libonnxruntime_providers_|triton/backends/amd/"
    r"|ray/core/libjemalloc\.so"  # made for LD_PRELOAD alone
)


class CompiledPath(NamedTuple):
    """Where a compiled file lies and whose it is."""

    folder: str  # of packages
    path: str  # below it
    distribution: str

    @property
    def full(self) -> str:
        """The whole path."""
        return os.path.join(self.folder, self.path)  # noqa: PTH118  500 of them, and pathlib is ten times as slow

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]

    @property
    def is_cuda_wheel(self) -> bool:
        """Whether it is one of NVIDIA's own libraries, which others need and which need nothing of ours."""
        return self.path.startswith("nvidia/")


class Reading(NamedTuple):
    """All compiled files, read: what is wrong with each by itself is in `problem`."""

    files: dict[CompiledPath, CompiledFile]
    notes: list[str]


def read_files(paths: Iterable[CompiledPath], cache: FileCache, *, whole: bool = False) -> Reading:
    """What each file needs and carries; of NVIDIA's libraries only that they are there, unless `whole`."""
    files: dict[CompiledPath, CompiledFile] = {}
    notes: list[str] = []
    absent = []
    for path in paths:
        try:
            status = os.stat(path.full)  # noqa: PTH116
        except FileNotFoundError:
            absent.append(path.full)
            continue
        except (OSError, ValueError) as error:  # ValueError: a null byte in a RECORD
            notes.append(f"{path.full!r}: {getattr(error, 'strerror', None) or error}")
            continue
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
            notes.append(f"{path.full}: not a file")
            continue
        passed = path.is_cuda_wheel and not whole
        files[path] = CompiledFile() if passed else _read_file(path, identity(status), cache)
        if files[path].problem:
            notes.append(f"{path.full}: {files[path].problem}")
    if absent:
        notes.append(f"{len(absent)} files that are recorded are not there, {absent[0]} first")
    return Reading(files, notes)


def _read_file(path: CompiledPath, key: str, cache: FileCache) -> CompiledFile:
    cached = cache.get(key)
    if cached is not None:
        return cached
    try:
        with open_elf(path.full) as elf:
            file = _describe(elf, NCCL_SYMBOL if path.distribution == "torch" else FOREIGN_SYMBOL)
    except ElfError as error:
        file = CompiledFile(problem=str(error))
        if not str(error).startswith("not a"):  # what may be read tomorrow is not kept
            return file
    cache.put(key, file)
    return file


def _describe(elf: Elf, judged: re.Pattern[bytes]) -> CompiledFile:
    return CompiledFile(
        machine=elf.machine,
        needed=elf.needed,
        soname=elf.soname,
        search_path=elf.search_path,
        undefined=elf.undefined(judged),
        glibc=elf.glibc,
        glibcxx=elf.glibcxx,
        code=read_kernel_code(elf),
    )


def judge(
    reading: Reading, *, torch_folder: str, torch_cuda: str, folders: Iterable[Path], environ: Mapping[str, str]
) -> tuple[Extension, ...]:
    """What each file misses in this environment; `torch_cuda` is the CUDA version of torch's build ("12.8")."""
    files = reading.files
    provided = {path.name for path in files} | {file.soname for file in files.values() if file.soname}
    loader = Loader(provided, folders, environ)
    variants = find_variants(files, torch_cuda)
    with Definitions(files, torch_folder, folders) as definitions:
        return tuple(
            Extension(
                path=path.path,
                distribution=path.distribution,
                needed=file.needed,
                missing_libraries=() if path in variants else _missing_libraries(path, file, loader),
                missing_symbols=definitions.missing(path, file),
                glibc=file.glibc,
                glibcxx=file.glibcxx,
                code=file.code,
            )
            for path, file in files.items()
            if not path.is_cuda_wheel and not file.problem
        )


def _missing_libraries(path: CompiledPath, file: CompiledFile, loader: Loader) -> tuple[str, ...]:
    if file.machine != os.uname().machine or OPTIONAL.match(path.path):
        return ()
    origin = Path(path.full).parent
    return tuple(name for name in file.needed if not loader.finds(name, origin, file.search_path))


def find_variants(paths: Iterable[CompiledPath], torch_cuda: str) -> set[CompiledPath]:
    """Files for another CUDA, ROCm or FFmpeg than is here, beside ones of their kind: they are not loaded."""
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


class Definitions:
    """The symbols that torch and NCCL define here, looked up in their hash tables; each name once."""

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
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Unmap what was looked into."""
        self._open.close()

    def missing(self, path: CompiledPath, file: CompiledFile) -> tuple[str, ...]:
        """Symbols of a file that nobody defines; none where there is no torch, or no NCCL, to ask."""
        if file.machine != os.uname().machine:
            return ()
        wanted = [name for name in file.undefined if self._is_judged(name, path)]
        left = [name for name in wanted if not self._defines(name)]
        if left:
            siblings = [elf for sibling in self._siblings(path) if (elf := self._map(sibling.full))]
            left = [name for name in left if not _any_defines(siblings, name)]
        return tuple(left[:SYMBOLS_SHOWN])

    def _is_judged(self, name: str, path: CompiledPath) -> bool:
        if name.startswith(("nccl", "pnccl")):
            return bool(self._nccl)
        return bool(self._torch) and path.distribution != "torch"  # torch's own files fit each other

    def _defines(self, name: str) -> bool:
        if name not in self._defined:
            self._defined[name] = _any_defines([*self._torch, *self._nccl], name)
        return self._defined[name]

    def _siblings(self, path: CompiledPath) -> Iterator[CompiledPath]:
        return (other for other in self._files if other.distribution == path.distribution and other != path)

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
        except ElfError:
            continue
    return False


def _torch_libraries(torch_folder: str, folders: Iterable[Path]) -> Iterator[str]:
    """Libraries that define torch's symbols: in torch/lib, or in conda's lib."""
    for folder in (Path(torch_folder, "torch/lib"), *folders):
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        yield from (str(folder / name) for name in sorted(names) if re.fullmatch(r"lib(c10|torch)\w*\.so", name))
