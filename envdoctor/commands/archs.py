"""`envdoctor archs`: the GPUs that the compiled files of an environment, or one file, have code for."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from envdoctor.binaries.coverage import Coverage, TargetGpu, compute_coverage
from envdoctor.core.errors import BadInput, EnvdoctorError, exit_code
from envdoctor.core.options import FactOption, MachineOption, Option
from envdoctor.core.paths import expand_home
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.records import Extension, KernelCode
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import PTX_SHARE
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.knowledge.kernel_files import MAIN_FILES, is_optional

HINT = "envdoctor archs --venv PATH"
MAX_FOLDER_ENTRIES = 50_000
COMPILED_NAME = lazy_pattern(r".+\.(so|o|a|cubin|fatbin)|.+\.so\.\d[\w.]*")


class ScannedFile(Record, frozen=True, kw_only=True):
    """One file with GPU code."""

    path: str
    distribution: str = ""
    code: KernelCode
    coverage: tuple[Coverage, ...] = ()
    exempt_reason: str = ""  # why the file may lack code for a GPU without being a problem


class UnreadableFile(Record, frozen=True):
    """A file that should be compiled code and cannot be read."""

    path: str
    reason: str


class ArchsReport(Record, frozen=True, kw_only=True):
    """GPU code of an environment, a directory or a file, and its coverage of each GPU."""

    origin: str
    gpus: tuple[TargetGpu, ...]
    files: tuple[ScannedFile, ...]
    without_gpu_code: int  # number of compiled files
    unreadable: tuple[UnreadableFile, ...] = ()
    seconds: float = 0.0


class ScanResult(Record, frozen=True):
    """The compiled files of a target, before their coverage is computed."""

    files: tuple[tuple[str, str, KernelCode], ...]  # path, distribution, code
    without_gpu_code: int
    unreadable: tuple[UnreadableFile, ...]


class ArchsRequest(Record, frozen=True, kw_only=True):
    """Prints which GPUs the files have code for, natively or as PTX. No GPU is needed.

    Example: envdoctor archs .venv --cc 9.0,12.0
    """

    target: Annotated[
        str, Option("--venv", "A compiled file, an environment, or a directory.", "PATH", argument="FILE|VENV")
    ] = ""
    cc: Annotated[str, Option("--cc", "Compute capabilities to use instead of a machine's GPUs.", "X.Y,...")] = ""
    machine: MachineOption = ""
    facts: FactOption = ()


def run(request: ArchsRequest) -> CommandResult:
    """Scan a file, an environment or a directory for GPU code; exit code 1 if a GPU cannot run any code of a file."""
    gpus = requested_gpus(request.cc, request.machine, request.facts)
    target = request.target or _default_environment()
    started = time.monotonic()
    path = expand_home(target)
    scan = scan_target(path, target)
    if not scan.files and not scan.without_gpu_code:
        raise _no_compiled_file(target, scan.unreadable)
    is_single_file = not path.is_dir()
    files = tuple(
        ScannedFile(
            path=name,
            distribution=distribution,
            code=code,
            coverage=tuple(compute_coverage(code, gpu) for gpu in gpus),
            exempt_reason="" if is_single_file else exemption_reason(name, distribution, code),
        )
        for name, distribution, code in scan.files
    )
    report = ArchsReport(
        origin=target,
        gpus=gpus,
        files=files,
        without_gpu_code=scan.without_gpu_code,
        unreadable=scan.unreadable,
        seconds=round(time.monotonic() - started, 3),
    )
    not_covered = any(not coverage.runs for file in files if not file.exempt_reason for coverage in file.coverage)
    return CommandResult(report, exit_code(failed=not_covered, undecided=bool(report.unreadable)))


def requested_gpus(cc: str, machine: str, facts: Sequence[str]) -> tuple[TargetGpu, ...]:
    """The capabilities of --cc, with the driver of --machine if it is given; without --cc, the machine's GPUs."""
    capabilities = parse_capabilities(cc)
    if capabilities and not machine and not facts:
        return tuple(TargetGpu(capability) for capability in capabilities)
    from envdoctor.machine.select import select_machine
    from envdoctor.rules.facts import cuda_minor  # imports all rules, which takes 50 ms

    selected = select_machine(machine, facts)
    driver = selected.driver.version.value or ""
    cuda = cuda_minor(selected.driver.cuda.value) or (cuda_of_driver(driver) if driver else "")
    if capabilities:
        return tuple(TargetGpu(capability, driver=driver, cuda=cuda) for capability in capabilities)
    names = {
        gpu.compute_capability.value: gpu.name.value or ""
        for gpu in selected.gpus.value or ()
        if gpu.compute_capability.value
    }
    return tuple(TargetGpu(capability, name, driver, cuda) for capability, name in names.items())


def parse_capabilities(text: str) -> tuple[str, ...]:
    """Parse `9.0,12.0` as ("9.0", "12.0") without duplicates; BadInput for anything else."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    for part in parts:
        if not re.fullmatch(r"[1-9]\d?\.\d", part):
            match = re.fullmatch(r"(?:sm_?|compute_?)?([1-9]\d?)(\d)[af]?", part)
            suggestion = f"; did you mean {match[1]}.{match[2]}?" if match else ""
            raise BadInput(
                f"--cc {text}: '{part}' is not a compute capability{suggestion}",
                expected="compute capabilities as 9.0 (H100, H200), 10.0 (B200), 12.0 (RTX 50), comma-separated",
                hint=HINT,
            )
    return tuple(dict.fromkeys(parts))


def exemption_reason(path: str, distribution: str, code: KernelCode) -> str:
    """Why a library works although a GPU cannot run this file; empty if that is a problem."""
    if not distribution:
        return ""
    if is_optional(Extension(path=path, distribution=distribution)):
        return "its library selects one of several such files"
    main = MAIN_FILES.get(distribution)
    if (main and not re.search(main, path)) or all(re.search(r"[af]$", name) for name in (*code.native, *code.ptx)):
        return "loaded only on the GPUs that it was built for"  # FlashMLA, FlashAttention 3
    return ""


def is_compiled_at_first_use(file: ScannedFile, coverage: Coverage) -> bool:
    """Whether the GPU runs so much of a file from PTX that its driver must support that PTX ISA."""
    is_variant = file.exempt_reason.startswith("its library selects")
    return coverage.ptx >= PTX_SHARE * coverage.total > 0 and not is_variant


def scan_target(path: Path, target: str) -> ScanResult:
    """Read the GPU code of a file, of an environment's distributions, or of every compiled file below a directory."""
    from envdoctor.environment.find import environment_of_interpreter

    try:
        if not path.is_dir():
            return _scan_file(path, target)
    except OSError as error:
        raise BadInput(
            f"cannot read {target}: {error.strerror}", expected="a file or directory", hint=HINT
        ) from error
    is_venv = (path / "pyvenv.cfg").exists() or (path / "conda-meta").exists()
    if is_venv or environment_of_interpreter(path / "bin/python"):
        return _scan_environment(path)
    if (path / "bin/python3").exists():
        return _scan_environment(path / "bin/python3")
    return _scan_folder(path)


def _default_environment() -> str:
    from envdoctor.environment.find import find_environment
    from envdoctor.install.known_environments import installed_environments

    selection = find_environment("", "", os.environ, installed=installed_environments)
    if not selection.path:
        raise BadInput(
            f"no environment was selected: {selection.reason}",
            expected="a compiled file, an environment, or a directory",
            hint=HINT,
        )
    return selection.path


def _no_compiled_file(target: str, unreadable: Sequence[UnreadableFile]) -> EnvdoctorError:
    first = f"; {unreadable[0].path}: {unreadable[0].reason}" if unreadable else ""
    return BadInput(
        f"{target} contains no compiled file that can be read{first}",
        expected="an environment, or a directory with .so, .o, .a, .cubin or .fatbin files",
        hint=HINT,
    )


def _scan_file(path: Path, target: str) -> ScanResult:
    from envdoctor.binaries.elf import ElfError
    from envdoctor.binaries.objects import read_object

    expected = "an ELF file (.so, .o, .cubin), an archive of ELF files (.a) or a fatbin"
    hint = shell_command("uv pip install --no-deps --target unpacked {}", target) if path.suffix == ".whl" else HINT
    if path.exists() and not path.is_file():  # opening a named pipe would block
        raise BadInput(f"{target} is not a regular file", expected=expected, hint=hint)
    try:
        code = read_object(path)
    except ElfError as error:
        raise BadInput(f"cannot read {target}: {error}", expected=expected, hint=hint) from error
    return ScanResult(((target, "", code),) if code else (), 0 if code else 1, ())


def _scan_environment(path: Path) -> ScanResult:
    from envdoctor.core.directories import cache_directory
    from envdoctor.environment.inspect import read_compiled_files

    compiled = read_compiled_files(path, cache_directory()).files
    readable = {path: file for path, file in compiled.items() if file.foreign or not file.problem}
    unreadable = [UnreadableFile(path.full, file.problem) for path, file in compiled.items() if path not in readable]
    files = tuple((path.path, path.distribution, file.code) for path, file in readable.items() if file.code)
    return ScanResult(files, len(readable) - len(files), tuple(unreadable))


def _scan_folder(folder: Path) -> ScanResult:
    from envdoctor.binaries.elf import ElfError, ForeignFileError
    from envdoctor.binaries.objects import read_object

    files: list[tuple[str, str, KernelCode]] = []
    unreadable: list[UnreadableFile] = []
    without_gpu_code = 0
    for path in _compiled_files_below(folder):
        name = str(path.relative_to(folder))
        try:
            code = read_object(path)
        except ForeignFileError:
            code = None
        except ElfError as error:
            unreadable.append(UnreadableFile(name, str(error)))
            continue
        if code:
            files.append((name, "", code))
        else:
            without_gpu_code += 1
    return ScanResult(tuple(files), without_gpu_code, tuple(unreadable))


def _compiled_files_below(root: Path) -> Iterator[Path]:
    entries = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        entries += len(folders) + len(names)
        if entries > MAX_FOLDER_ENTRIES:
            raise BadInput(
                f"{root} has more than {MAX_FOLDER_ENTRIES} files",
                expected="an environment, or a smaller directory",
                hint=HINT,
            )
        paths = (Path(folder, name) for name in sorted(names) if COMPILED_NAME.fullmatch(name))
        yield from (path for path in paths if path.is_file() and not path.is_symlink())
