"""The frozen, JSON-serialisable records that travel between the parts of envdoctor.

Every record is immutable, refuses unknown fields, and reads back from its own JSON: so the same answers come
from a recorded machine as from the one you stand on.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

MACHINE_SCHEMA = 1
STACK_SCHEMA = 1

T = TypeVar("T")

State = Literal["known", "absent", "unreadable"]
Status = Literal["ok", "info", "warning", "error", "unknown", "skipped", "crashed"]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all records."""


class Fact(Record, Generic[T], frozen=True, kw_only=True, omit_defaults=True):
    """One observation: a value or none, how it stands, and where it came from.

    `absent` means looked for and not there ("no GPU"); `unreadable` means it could not be read, with the
    reason in `note` ("NVML error 18"). They must never look the same.
    """

    value: T | None = None
    state: State = "known"
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a known fact without a value, and a value on a fact that is not known."""
        if (self.state == "known") != (self.value is not None):
            raise ValueError(f"state '{self.state}' does not fit value {self.value!r}")


def known(value: T, source: str, note: str = "") -> Fact[T]:
    """A fact that was read."""
    return Fact(value=value, source=source, note=note)


def absent(source: str, note: str = "") -> Fact[T]:
    """A thing that was looked for and is not there."""
    return Fact(state="absent", source=source, note=note)


def unreadable(source: str, note: str) -> Fact[T]:
    """A fact that could not be read, and why."""
    return Fact(state="unreadable", source=source, note=note)


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
    """Host memory in bytes; the cgroup limit is what the kernel will really give."""

    total: Fact[int]
    available: Fact[int]
    cgroup_limit: Fact[int]


class Filesystem(Record, frozen=True):
    """One place that a stack writes to. Sizes in bytes."""

    path: str
    total: int
    free: int
    kind: str = ""


class Storage(Record, frozen=True):
    """Places by role: home, cache, tmp, shm, environments."""

    places: Fact[dict[str, Filesystem]]


class Limits(Record, frozen=True):
    """Soft process limits; -1 means unlimited. memlock and stack in bytes."""

    open_files: Fact[int]
    processes: Fact[int]
    locked_memory: Fact[int]
    stack: Fact[int]


class Interpreter(Record, frozen=True):
    """A Python at hand. `headers` says whether Python.h lies where it belongs."""

    path: str
    version: str
    headers: bool = False


class Driver(Record, frozen=True):
    """The NVIDIA driver. `version` is the kernel module's, `library` that of the user-space NVML."""

    version: Fact[str]
    library: Fact[str]
    cuda: Fact[str]  # highest CUDA version that the driver supports, "13.0"
    module: Fact[str]  # open or proprietary


class Process(Record, frozen=True):
    """A process that holds memory on a GPU (bytes; None where the driver does not tell)."""

    pid: int
    kind: Literal["compute", "graphics", "mps"]
    memory: int | None = None


class NvLink(Record, frozen=True):
    """NVLink links of one GPU."""

    links: int
    active: int


class Fabric(Record, frozen=True):
    """NVSwitch fabric registration of one GPU (nvmlGpuFabricInfo: state and its status code)."""

    state: Literal["not supported", "not started", "in progress", "completed"]
    status: int = 0


class RemappedRows(Record, frozen=True):
    """HBM row remapping: corrected, uncorrectable, pending a reset, and failed."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


class PcieLink(Record, frozen=True):
    """PCIe link now and at most. Links downshift at idle: judge under load."""

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
    """One GPU as NVML shows it. Memory in bytes, power in watts, temperature in degrees Celsius."""

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
    """The CUDA toolkit on this machine, if any; a stack of wheels needs none until it compiles."""

    nvcc: Fact[str]  # path
    nvcc_version: Fact[str]
    cuda_home: Fact[str]
    ptxas_version: Fact[str]
    compiler: Fact[str]  # host C compiler and version


class Machine(Record, frozen=True, kw_only=True):
    """All facts of one machine."""

    schema: int = MACHINE_SCHEMA
    name: str = ""
    origin: str = ""  # how these facts were made: read here, recorded on a date, written from sources
    system: System
    memory: Memory
    storage: Storage
    limits: Limits
    pythons: Fact[tuple[Interpreter, ...]]
    driver: Driver
    gpus: Fact[tuple[Gpu, ...]]
    cuda: CudaToolkit
    environment: Fact[dict[str, str]]  # variables that matter; secrets only as "(set)"
    interfaces: Fact[tuple[str, ...]]  # network interfaces
    slurm: Fact[dict[str, str]]


class Distribution(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An installed distribution, from its .dist-info, conda-meta or a pasted list."""

    name: str  # normalised: lower case, one hyphen for runs of - _ .
    version: str
    requires: tuple[str, ...] = ()  # Requires-Dist lines that hold here (markers evaluated, extras left out)
    requires_python: str = ""
    location: str = ""  # folder that holds it
    home: str = ""  # home page: tells PyPI's namesakes from the real ones
    source: str = ""  # pip, uv, conda, a direct URL's file name


class TorchBuild(Record, frozen=True, kw_only=True):
    """What torch was built for, from its files."""

    version: Fact[str]  # "2.8.0+cu128"; without the local part where only a list names it
    cuda: Fact[str]  # "12.8"; absent: a build without CUDA
    hip: Fact[str]
    cxx11_abi: Fact[bool]
    architectures: Fact[tuple[str, ...]]  # native code in libtorch_cuda: "sm_80", "sm_90a", "compute_90"


class KernelCode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """GPU code in one compiled file, per fatbin container and in all."""

    native: tuple[str, ...] = ()  # "sm_80", "sm_90a"
    ptx: tuple[str, ...] = ()  # "compute_80"
    ptx_isa: str = ""  # highest PTX ISA version, "8.7": what the driver's compiler must know
    ptx_only: bool = False  # some container has PTX and no native code
    containers: dict[str, int] = {}  # how many containers hold what: {"sm_80 sm_90a compute_80": 14}


class Extension(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A compiled file of a distribution."""

    path: str  # below its site-packages
    distribution: str = ""
    needed: tuple[str, ...] = ()  # DT_NEEDED
    missing_libraries: tuple[str, ...] = ()  # of `needed`, found nowhere the loader looks
    missing_symbols: tuple[str, ...] = ()  # undefined c10/at/torch/nccl symbols that the installed torch lacks
    glibc: str = ""  # highest GLIBC_ version it asks for
    glibcxx: str = ""  # highest GLIBCXX_ version it asks for, "3.4.29"
    code: KernelCode | None = None


class Stack(Record, frozen=True, kw_only=True):
    """A Python environment, looked into without importing anything of it."""

    schema: int = STACK_SCHEMA
    origin: str = ""  # read here, or from which kind of report
    kind: Fact[str]  # venv, conda, system
    python: Fact[str]  # interpreter's path
    python_version: Fact[str]  # "3.12.3"
    headers: Fact[bool]  # Python.h of that Python
    distributions: Fact[dict[str, Distribution]]
    shadowed: Fact[tuple[Distribution, ...]]  # further copies of a distribution, which lose (or win) by path order
    torch: Fact[TorchBuild]  # absent: no torch
    extensions: Fact[tuple[Extension, ...]]
    cuda_available: Fact[bool]  # as a report says; absent where nothing was imported
    uses: Fact[tuple[str, ...]]  # libraries that a report shows in use, where no version is named: "vllm"
    libstdcxx: Fact[str] = Fact(state="unreadable", source="none", note="not looked at")  # highest GLIBCXX_ it has


class Evidence(Record, frozen=True):
    """A fact that a finding rests on."""

    fact: str
    value: str
    source: str


class Finding(Record, frozen=True):
    """What one rule has to say of a machine."""

    id: str
    cause: str  # a slug of the common taxonomy
    status: Status
    message: str
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    commands: tuple[str, ...] = ()
    url: str = ""
    line: int = 0  # of the file that was read, where there is one


class Condition(Record, frozen=True):
    """One demand of a profile held against one fact. `holds` is None where the fact is not known.

    One that is only `recommended` rejects nothing; it is told.
    """

    name: str
    expected: str
    observed: str
    holds: bool | None
    source: str = ""
    recommended: bool = False


class Candidate(Record, frozen=True):
    """One profile, accepted or rejected, with every reason."""

    profile: str
    accepted: bool
    preference: int
    conditions: tuple[Condition, ...]


class Choice(Record, frozen=True):
    """The profile that fits, and the whole trace of the others."""

    profile: str | None
    reason: str
    candidates: tuple[Candidate, ...]


Outcome = Literal["passed", "failed", "unavailable", "crashed", "hung", "no-result", "garbage", "error"]


class ProbeResult(Record, frozen=True):
    """What one probe showed, by numbers.

    `failed`: it ran and the numbers are wrong; `unavailable`: its library or device is not there; `crashed`: killed
    by a signal; `hung`: past its deadline; `no-result`: exit 0 and nothing written; `garbage`: something written
    that is no result; `error`: a non-zero exit code.
    """

    probe: str
    outcome: Outcome
    message: str
    seconds: float
    numbers: dict[str, float] = {}
    tolerances: dict[str, float] = {}
    versions: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}  # names that the probe sorted, such as safe, differs, refused
    output: str = ""  # last lines of what it printed, kept when it did not pass
    cause: str = ""  # what `explain` makes of that, with the fix


class Verification(Record, frozen=True):
    """All probes of one environment, with what they were true for."""

    schema: int
    python: str
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    lock: str  # digest of the lock that the environment was built from, empty if unknown
    required: tuple[str, ...]
    results: tuple[ProbeResult, ...]
    attention: tuple[str, ...] = ()  # by transformers' names, what passed, best first
    attention_with_sinks: tuple[str, ...] = ()  # the same for models with attention sinks; empty: not shown

    @property
    def passed(self) -> bool:
        """Whether every required probe passed and none that could run came out wrong."""
        by_name = {result.probe: result.outcome for result in self.results}
        return all(by_name.get(name) == "passed" for name in self.required) and all(
            outcome in ("passed", "unavailable") for outcome in by_name.values()
        )
