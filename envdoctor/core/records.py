"""Frozen, JSON-serialisable records that are passed between the packages of envdoctor.

Every record rejects unknown fields and can be read back from its own JSON. Therefore a recorded machine gives the
same results as this machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Literal, TypeVar

from envdoctor.core.record import Record
from envdoctor.core.remedies import Remedy

MACHINE_SCHEMA = 1
STACK_SCHEMA = 1

T = TypeVar("T")

State = Literal["known", "absent", "unreadable"]
Status = Literal["ok", "info", "warning", "error", "unknown", "skipped", "crashed"]


class Fact(Record, Generic[T], frozen=True, kw_only=True, omit_defaults=True):
    """One fact: its value if it is known, its state, and its source.

    `absent` means that the thing does not exist ("no GPU"). `unreadable` means that it could not be read, with the
    reason in `note` ("NVML error 18"). Rules treat an unreadable fact as unknown.
    """

    value: T | None = None
    state: State = "known"
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        """Reject a known fact without a value, and a value on a fact that is not known."""
        if (self.state == "known") != (self.value is not None):
            raise ValueError(f"state '{self.state}' does not fit value {self.value!r}")


def known(value: T, source: str, note: str = "") -> Fact[T]:
    """A fact that was read."""
    return Fact(value=value, source=source, note=note)


def absent(source: str, note: str = "") -> Fact[T]:
    """A fact about something that does not exist."""
    return Fact(state="absent", source=source, note=note)


def unreadable(source: str, note: str) -> Fact[T]:
    """A fact that could not be read, with the reason."""
    return Fact(state="unreadable", source=source, note=note)


def describe_notes(notes: Iterable[str]) -> str:
    """The first five notes in one line, and the number of further notes."""
    texts = list(notes)
    return "; ".join(texts[:5]) + (f"; and {len(texts) - 5} more" if len(texts) > 5 else "")


class System(Record, frozen=True):
    """Operating system and processor."""

    architecture: Fact[str]  # as `uname -m`: x86_64, aarch64
    os: Fact[str]  # PRETTY_NAME of os-release
    kernel: Fact[str]
    glibc: Fact[str]
    cpu_model: Fact[str]
    cpu_count: Fact[int]  # processors this process may run on
    container: Fact[str]  # docker, podman, kubernetes, apptainer ...
    wsl: Fact[str]  # WSL kernel release, absent on native Linux


class Memory(Record, frozen=True):
    """Host memory in bytes. Processes can use at most `cgroup_limit`."""

    total: Fact[int]
    available: Fact[int]
    cgroup_limit: Fact[int]


class Filesystem(Record, frozen=True):
    """A file system to which the stack writes. Sizes in bytes."""

    path: str
    total: int
    free: int
    kind: str = ""


class Storage(Record, frozen=True):
    """File systems by role: home, cache, tmp, shm, environments."""

    places: Fact[dict[str, Filesystem]]


class Limits(Record, frozen=True):
    """Soft process limits; -1 means unlimited. memlock and stack in bytes."""

    open_files: Fact[int]
    processes: Fact[int]
    locked_memory: Fact[int]
    stack: Fact[int]


class Interpreter(Record, frozen=True):
    """A Python interpreter on this machine. `headers`: Python.h is installed."""

    path: str
    version: str
    headers: bool = False


class Driver(Record, frozen=True):
    """The NVIDIA driver. `version` is that of the kernel module, `library` that of the user-space NVML."""

    version: Fact[str]
    library: Fact[str]
    cuda: Fact[str]  # highest CUDA version that the driver supports, "13.0"
    module: Fact[str]  # open or proprietary


GpuUse = Literal["compute", "graphics", "mps"]
FabricState = Literal["not supported", "not started", "in progress", "completed"]


class Process(Record, frozen=True):
    """A process that uses memory of a GPU, in bytes; None if the driver does not report it."""

    pid: int
    kind: GpuUse
    memory: int | None = None


class NvLink(Record, frozen=True):
    """NVLink links of one GPU."""

    links: int
    active: int


class Fabric(Record, frozen=True):
    """NVSwitch fabric registration of one GPU (nvmlGpuFabricInfo: state and its status code)."""

    state: FabricState
    status: int = 0


class RemappedRows(Record, frozen=True):
    """HBM row remapping: corrected, uncorrectable, pending a reset, and failed."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


class PcieLink(Record, frozen=True):
    """Current and maximum PCIe link. An idle link may run below its maximum."""

    generation: int
    width: int
    max_generation: int
    max_width: int


class Clocks(Record, frozen=True):
    """Clocks in MHz."""

    sm: int
    memory: int
    max_sm: int


class Gpu(Record, frozen=True):
    """One GPU, from NVML. Memory in bytes, power in watts, temperature in degrees Celsius."""

    index: int
    name: Fact[str]
    uuid: Fact[str]
    pci_bus: Fact[str]
    compute_capability: Fact[str]  # "9.0"
    memory_total: Fact[int]
    memory_used: Fact[int]
    ecc: Fact[bool]
    ecc_uncorrected: Fact[int]  # volatile: since the last reset
    remapped_rows: Fact[RemappedRows]
    mig: Fact[bool]
    compute_mode: Fact[str]  # default, exclusive-process, prohibited
    persistence: Fact[bool]
    clocks: Fact[Clocks]
    throttle_reasons: Fact[tuple[str, ...]]
    temperature: Fact[int]
    power: Fact[float]
    power_limit: Fact[float]
    pcie: Fact[PcieLink]
    nvlink: Fact[NvLink]
    fabric: Fact[Fabric]
    c2c: Fact[bool]
    processes: Fact[tuple[Process, ...]]


class CudaToolkit(Record, frozen=True):
    """The CUDA toolkit on this machine. Only compilation needs one; the wheels bring their CUDA libraries."""

    nvcc: Fact[str]  # path
    nvcc_version: Fact[str]
    cuda_home: Fact[str]
    ptxas_version: Fact[str]
    compiler: Fact[str]  # host C compiler and version


class Machine(Record, frozen=True, kw_only=True):
    """All facts of one machine."""

    schema: int = MACHINE_SCHEMA
    name: str = ""
    origin: str = ""  # read on this machine, recorded on a date, or compiled from published sources
    system: System
    memory: Memory
    storage: Storage
    limits: Limits
    pythons: Fact[tuple[Interpreter, ...]]
    driver: Driver
    gpus: Fact[tuple[Gpu, ...]]
    cuda: CudaToolkit
    environment: Fact[dict[str, str]]  # relevant variables; secrets only as "(set)"
    interfaces: Fact[tuple[str, ...]]  # network interfaces
    slurm: Fact[dict[str, str]]


class Distribution(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An installed distribution, from its .dist-info, conda-meta or a pasted list."""

    name: str  # normalised: lower case, one hyphen for runs of - _ .
    version: str
    requires: tuple[str, ...] = ()  # Requires-Dist lines whose markers apply, without extras
    requires_python: str = ""
    location: str = ""  # its site-packages directory
    home: str = ""  # home page, which distinguishes packages of the same name
    source: str = ""  # pip, uv, conda, a direct URL's file name


class TorchBuild(Record, frozen=True, kw_only=True):
    """The build of torch, from its files."""

    version: Fact[str]  # "2.8.0+cu128"; from a package list, without the local part
    cuda: Fact[str]  # "12.8"; absent for a build without CUDA
    hip: Fact[str]
    cxx11_abi: Fact[bool]
    architectures: Fact[tuple[str, ...]]  # native code in libtorch_cuda: "sm_80", "sm_90a", "compute_90"


class KernelCode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """GPU code in one compiled file: in all fatbin containers, and for each."""

    native: tuple[str, ...] = ()  # "sm_80", "sm_90a"
    ptx: tuple[str, ...] = ()  # "compute_80"
    ptx_isa: str = ""  # highest PTX ISA version, "8.7", which the driver must support
    ptx_only: bool = False  # some container has PTX and no native code
    containers: dict[str, int] = {}  # number of containers by content: {"sm_80 sm_90a compute_80": 14}


OF_A_GUIDE = "report of a guide"  # rules treat it as a pasted list: versions are known, files are not
NO_FILE = "the file does not exist"  # a problem of a compiled file that the package's list of files names


class Extension(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A compiled file of a distribution."""

    path: str  # relative to its site-packages
    distribution: str = ""
    needed: tuple[str, ...] = ()  # DT_NEEDED
    missing_libraries: tuple[str, ...] = ()  # of `needed`, not on the loader's search path
    missing_symbols: tuple[str, ...] = ()  # undefined c10/at/torch/nccl symbols that the installed torch lacks
    glibc: str = ""  # highest GLIBC_ version that it requires
    glibcxx: str = ""  # highest GLIBCXX_ version that it requires, "3.4.29"
    code: KernelCode | None = None
    problem: str = ""  # why it could not be read; then nothing else of it is known


class Stack(Record, frozen=True, kw_only=True):
    """A Python environment, read without importing any of its packages."""

    schema: int = STACK_SCHEMA
    origin: str = ""  # read on this machine, or the kind of report
    kind: Fact[str]  # venv, conda, system
    python: Fact[str]  # path of the interpreter
    python_version: Fact[str]  # "3.12.3"
    headers: Fact[bool]  # Python.h of that Python
    distributions: Fact[dict[str, Distribution]]
    shadowed: Fact[tuple[Distribution, ...]]  # other copies of a distribution on the path
    torch: Fact[TorchBuild]  # absent: no torch
    extensions: Fact[tuple[Extension, ...]]
    cuda_available: Fact[bool]  # from a report; absent if torch was not imported
    uses: Fact[tuple[str, ...]]  # libraries that a report shows without a version: "vllm"
    libstdcxx: Fact[str] = Fact(state="unreadable", source="none", note="not read")  # highest GLIBCXX_
    # Packages that the install commands of a report name, with their pinned version or "".
    requested: Fact[dict[str, str]] = Fact(state="unreadable", source="none", note="not read")
    dtype: Fact[str] = Fact(state="unreadable", source="none", note="not read")  # of the command of a report
    unread_metadata: tuple[str, ...] = ()  # of distributions, not understood: there is no verdict

    @property
    def all_packages_read(self) -> bool:
        """Whether the list of distributions, and the metadata of each, was understood."""
        return self.distributions.state != "unreadable" and not self.unread_metadata


class MissingFact(Record, frozen=True):
    """A fact without which a report is not judged, and the command that prints it."""

    fact: str
    command: str


class ReportCoverage(Record, frozen=True):
    """What was read of a pasted text, and what was not."""

    enough: bool  # torch, GPU and driver of each report were read, or it states that they do not exist
    missing: tuple[MissingFact, ...]
    unread: tuple[str, ...]  # lines that look like facts, but were not understood
    notes: tuple[str, ...]  # about several reports in the text
    other_gpu: str = ""  # an AMD GPU or a ROCm build, for which there are no rules; `enough` is false
    contradictions: tuple[str, ...] = ()  # facts with two values; `enough` is false


class Evidence(Record, frozen=True):
    """A fact on which a finding is based."""

    fact: str
    value: str
    source: str


class Finding(Record, frozen=True):
    """The result of one rule."""

    id: str
    cause: str  # a slug of causes.toml
    status: Status
    message: str
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    remedies: tuple[Remedy, ...] = ()  # several are alternatives
    url: str = ""
    line: int = 0  # line number in the examined file, 0 if there is none
    file: str = ""  # the examined file, if a command examined several


Outcome = Literal["passed", "failed", "unavailable", "crashed", "hung", "no-result", "garbage", "error"]


class ProbeResult(Record, frozen=True):
    """The result of one probe.

    `failed`: it ran and its numbers are wrong. `unavailable`: its library or device is missing. `crashed`: killed
    by a signal. `hung`: exceeded its timeout. `no-result`: exit code 0 without a result. `garbage`: the result is
    invalid. `error`: non-zero exit code.
    """

    probe: str
    outcome: Outcome
    message: str
    seconds: float
    numbers: dict[str, float] = {}
    tolerances: dict[str, float] = {}
    versions: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}  # names in categories such as safe, differs, refused
    output: str = ""  # end of its output, if it did not pass
    cause: str = ""  # likely cause with its fix, from `explain`


class Verification(Record, frozen=True):
    """The results of all probes of one environment, with driver, GPUs and lock at that time."""

    schema: int
    python: str
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    lock: str  # digest of the environment's lock, empty if unknown
    required: tuple[str, ...]
    results: tuple[ProbeResult, ...]
    attention: tuple[str, ...] = ()  # attention implementations that passed, the best first, by transformers' names
    attention_with_sinks: tuple[str, ...] = ()  # the same for models with attention sinks; empty: not tested

    @property
    def passed(self) -> bool:
        """Whether every required probe passed, and every other probe passed or was unavailable."""
        by_name = {result.probe: result.outcome for result in self.results}
        return all(by_name.get(name) == "passed" for name in self.required) and all(
            outcome in ("passed", "unavailable") for outcome in by_name.values()
        )
