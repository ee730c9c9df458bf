"""`envdoctor archs`: which GPUs the compiled files of an environment, or one file, have code for."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, EnvdoctorError
from envdoctor.core.paths import expanded
from envdoctor.core.records import Extension, KernelCode, Record
from envdoctor.core.results import Answer
from envdoctor.knowledge.architectures import PTX_OF_CUDA, PTX_SHARE, Capability, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import cuda_of_driver, driver_of_cuda
from envdoctor.knowledge.kernel_files import MAIN_FILES, is_optional
from envdoctor.knowledge.versions import major_minor

HINT = "envdoctor archs .venv --cc 9.0,12.0"
WALKED = 50_000  # entries of a plain folder that are looked at
COMPILED = re.compile(r".+\.(so|o|a|cubin|fatbin)|.+\.so\.\d[\w.]*")

Verdict = Literal["native", "mixed", "ptx", "none"]


class Asked(Record, frozen=True):
    """A compute capability that is asked for, and the driver that would compile PTX for it."""

    capability: str  # "9.0"
    name: str = ""  # of the GPU, where it is a machine's
    driver: str = ""
    cuda: str = ""  # newest CUDA release whose PTX that driver compiles


class Coverage(Record, frozen=True, kw_only=True):
    """What of a file's code one GPU can run, in kernel containers."""

    capability: str
    verdict: Verdict  # mixed: some containers native, some as PTX; none: no container
    native: int = 0
    ptx: int = 0  # compiled by the driver at first use
    none: int = 0
    needs_cuda: str = ""  # CUDA release that brought the newest PTX that must be compiled
    needs_driver: str = ""
    compiles: bool | None = None  # whether the driver knows that PTX; None: there is none, or no driver is known

    @property
    def runs(self) -> bool:
        """Whether the GPU runs anything of it."""
        return self.native > 0 or (self.ptx > 0 and self.compiles is not False)


class ScannedFile(Record, frozen=True, kw_only=True):
    """One file with GPU code."""

    path: str
    distribution: str = ""
    code: KernelCode
    coverage: tuple[Coverage, ...] = ()
    by_choice: str = ""  # why it is no fault that a GPU runs nothing of it


class Unread(Record, frozen=True):
    """A file that should be compiled code and cannot be read."""

    path: str
    why: str


class ArchsScanned(Record, frozen=True, kw_only=True):
    """GPU code of an environment, a folder or a file, and what of it each GPU runs."""

    origin: str
    gpus: tuple[Asked, ...]
    files: tuple[ScannedFile, ...]
    without: int  # compiled files that carry no GPU code
    unread: tuple[Unread, ...] = ()
    verbose: bool = False  # people want each container, too
    seconds: float = 0.0


class Found(Record, frozen=True):
    """What a place holds, before any GPU is asked for."""

    files: tuple[tuple[str, str, KernelCode], ...]  # path, distribution, code
    without: int
    unread: tuple[Unread, ...]


def archs(target: str, cc: str, machine: str, facts: Sequence[str], *, verbose: bool = False) -> Answer:
    """Scan a file, an environment or a folder for GPU code; exit code 1 where a GPU runs nothing of a file."""
    gpus = asked_gpus(cc, machine, facts)
    started = time.monotonic()
    place = expanded(target)
    found = read_place(place, target)
    if not found.files and not found.without:
        raise nothing_to_scan(target, found.unread)
    alone = not place.is_dir()
    files = tuple(
        ScannedFile(
            path=path,
            distribution=distribution,
            code=code,
            coverage=tuple(cover(code, gpu) for gpu in gpus),
            by_choice="" if alone else reason_to_pass(path, distribution, code),
        )
        for path, distribution, code in found.files
    )
    scanned = ArchsScanned(
        origin=target,
        gpus=gpus,
        files=files,
        without=found.without,
        unread=found.unread,
        verbose=verbose,
        seconds=round(time.monotonic() - started, 3),
    )
    bare = any(not each.runs for file in files if not file.by_choice for each in file.coverage)
    return Answer(scanned, EXIT_NO if bare else EXIT_OK)


def asked_gpus(cc: str, machine: str, facts: Sequence[str]) -> tuple[Asked, ...]:
    """The capabilities of --cc, with the driver of --machine if there is one; else the machine's own GPUs."""
    capabilities = parse_capabilities(cc)
    if capabilities and not machine and not facts:
        return tuple(Asked(each) for each in capabilities)
    from envdoctor.machine.select import select_machine
    from envdoctor.rules.facts import cuda_minor  # all rules come with it, 50 ms

    found = select_machine(machine, facts)
    driver = found.driver.version.value or ""
    cuda = cuda_minor(found.driver.cuda.value) or (cuda_of_driver(driver) if driver else "")
    if capabilities:
        return tuple(Asked(each, driver=driver, cuda=cuda) for each in capabilities)
    named = {
        gpu.compute_capability.value: gpu.name.value or ""
        for gpu in found.gpus.value or ()
        if gpu.compute_capability.value
    }
    return tuple(Asked(capability, name, driver, cuda) for capability, name in named.items())


def parse_capabilities(text: str) -> tuple[str, ...]:
    """`9.0,12.0` as ("9.0", "12.0"), each once; BadInput for anything else."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    for part in parts:
        if not re.fullmatch(r"[1-9]\d?\.\d", part):
            meant = re.fullmatch(r"(?:sm_?|compute_?)?([1-9]\d?)(\d)[af]?", part)
            close = f"; did you mean {meant[1]}.{meant[2]}?" if meant else ""
            raise BadInput(
                f"--cc {text}: '{part}' is no compute capability{close}",
                expected="compute capabilities as 9.0 (H100, H200), 10.0 (B200), 12.0 (RTX 50), comma-separated",
                hint=HINT,
            )
    return tuple(dict.fromkeys(parts))


def cover(code: KernelCode, gpu: Asked) -> Coverage:
    """What of a file's containers a GPU runs: native code first, as the driver chooses."""
    major, _, minor = gpu.capability.partition(".")
    capability: Capability = (int(major), int(minor))
    counts = {"native": 0, "ptx": 0, "none": 0}
    for kinds, number in code.containers.items():
        names = kinds.split()
        runs = "native" if runs_native(names, capability) else "ptx" if runs_as_ptx(names, capability) else "none"
        counts[runs] += number
    native, ptx = counts["native"], counts["ptx"]
    verdict: Verdict = "mixed" if native and ptx else "native" if native else "ptx" if ptx else "none"
    cuda = cuda_of_ptx(code.ptx_isa) if ptx else ""
    return Coverage(
        capability=gpu.capability,
        verdict=verdict,
        **counts,
        needs_cuda=cuda,
        needs_driver=driver_of_cuda(cuda) if cuda else "",
        compiles=major_minor(gpu.cuda) >= major_minor(cuda) if cuda and gpu.cuda else None,
    )


def cuda_of_ptx(isa: str) -> str:
    """The first CUDA release with a known driver that compiles a PTX ISA version: 8.7 gives 12.8; "" for none."""
    fitting = (
        cuda for cuda, known in PTX_OF_CUDA.items() if major_minor(known) >= major_minor(isa) and driver_of_cuda(cuda)
    )
    return next(fitting, "")


def reason_to_pass(path: str, distribution: str, code: KernelCode) -> str:
    """Why a library is whole though a GPU runs nothing of this file of it; empty where that is a fault."""
    if not distribution:
        return ""
    if is_optional(Extension(path=path, distribution=distribution)):
        return "chosen among others by its library"
    main = MAIN_FILES.get(distribution)
    if (main and not re.search(main, path)) or all(re.search(r"[af]$", name) for name in (*code.native, *code.ptx)):
        return "loaded only on the GPUs that it was made for"  # FlashMLA, FlashAttention 3
    return ""


def is_compiled_at_first_use(file: ScannedFile, coverage: Coverage) -> bool:
    """Whether a GPU takes so much of a file from PTX that its driver must know that PTX."""
    every = coverage.native + coverage.ptx + coverage.none
    return coverage.ptx >= PTX_SHARE * every > 0 and not file.by_choice.startswith("chosen")


def read_place(place: Path, target: str) -> Found:
    """The GPU code of a file, of an environment's distributions, or of every compiled file below a folder."""
    from envdoctor.environment.find import environment_of

    try:
        if not place.is_dir():
            return _read_file(place, target)
    except OSError as error:
        raise BadInput(f"cannot read {target}: {error.strerror}", expected="a file or folder", hint=HINT) from error
    if (place / "pyvenv.cfg").exists() or (place / "conda-meta").exists() or environment_of(place / "bin/python"):
        return _read_environment(place)
    if (place / "bin/python3").exists():
        return _read_environment(place / "bin/python3")
    return _read_folder(place)


def nothing_to_scan(target: str, unread: Sequence[Unread]) -> EnvdoctorError:
    """The error for a place without compiled files."""
    first = f"; {unread[0].path}: {unread[0].why}" if unread else ""
    return BadInput(
        f"{target} holds no compiled file that can be read{first}",
        expected="an environment, or a folder with .so, .o, .a, .cubin or .fatbin files",
        hint=HINT,
    )


def _read_file(path: Path, target: str) -> Found:
    from envdoctor.binaries.elf import ElfError
    from envdoctor.binaries.objects import read_object

    expected = "an ELF file (.so, .o, .cubin), an archive of such (.a) or a fatbin"
    hint = f"uv pip install --no-deps --target unpacked {target}" if path.suffix == ".whl" else HINT
    if path.exists() and not path.is_file():  # opening a pipe would wait for its other end
        raise BadInput(f"{target} is no file", expected=expected, hint=hint)
    try:
        code = read_object(path)
    except ElfError as error:
        raise BadInput(f"cannot read {target}: {error}", expected=expected, hint=hint) from error
    return Found(((target, "", code),) if code else (), 0 if code else 1, ())


def _read_environment(place: Path) -> Found:
    from envdoctor.core.directories import cache_directory
    from envdoctor.environment.inspect import read_compiled

    reading = read_compiled(place, cache_directory())
    read = {path: file for path, file in reading.files.items() if not file.problem}
    unread = [Unread(path.full, file.problem) for path, file in reading.files.items() if file.problem]
    coded = tuple((path.path, path.distribution, file.code) for path, file in read.items() if file.code)
    return Found(coded, len(read) - len(coded), tuple(unread))


def _read_folder(place: Path) -> Found:
    from envdoctor.binaries.elf import ElfError
    from envdoctor.binaries.objects import read_object

    coded: list[tuple[str, str, KernelCode]] = []
    unread: list[Unread] = []
    without = 0
    for path in _compiled_below(place):
        try:
            code = read_object(path)
        except ElfError as error:
            unread.append(Unread(str(path.relative_to(place)), str(error)))
            continue
        if code:
            coded.append((str(path.relative_to(place)), "", code))
        else:
            without += 1
    return Found(tuple(coded), without, tuple(unread))


def _compiled_below(place: Path) -> Iterator[Path]:
    left = WALKED
    for folder, folders, names in os.walk(place):
        folders.sort()
        left -= len(folders) + len(names)
        if left < 0:
            raise BadInput(
                f"{place} has more than {WALKED} files", expected="an environment, or a smaller folder", hint=HINT
            )
        paths = (Path(folder, name) for name in sorted(names) if COMPILED.fullmatch(name))
        yield from (path for path in paths if path.is_file() and not path.is_symlink())
