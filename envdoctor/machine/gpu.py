"""NVIDIA GPUs, read from NVML through nvidia-ml-py (module `pynvml`).

Each query becomes a fact: a value, `absent` if the GPU or the driver does not support the query, or `unreadable` with
NVML's error. Calls that can block on a broken machine have a timeout.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envdoctor.core.record import Record
from envdoctor.core.records import (
    Clocks,
    Fabric,
    FabricState,
    Fact,
    Gpu,
    GpuUse,
    NvLink,
    PcieLink,
    Process,
    RemappedRows,
    absent,
    known,
    unreadable,
)
from envdoctor.machine.timeout import call_with_timeout

LIBRARY = "libnvidia-ml.so.1"
# nvmlInit_v2 initialises no GPU (NVML API reference) and is fast. The first query of a GPU without persistence mode
# initialises it, which takes seconds.
INIT = "nvmlInitWithFlags"
INIT_SECONDS = 5.0
COUNT = "nvmlDeviceGetCount_v2"
HANDLE = "nvmlDeviceGetHandleByIndex_v2"
GPU_SECONDS = 30.0

# Return codes and constants of nvml.h, which are part of its ABI.
INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH = 2, 3, 13, 25
CLOCK_SM, CLOCK_MEMORY = 1, 2
UNCORRECTED, VOLATILE = 1, 0
TEMPERATURE_GPU = 0
MEMORY_INFO_V2 = 0x02000028
COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
THROTTLE_REASONS = {
    0x1: "idle", 0x2: "applications-clocks", 0x4: "power-cap", 0x8: "hw-slowdown", 0x10: "sync-boost",
    0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake", 0x100: "display",
}  # fmt: skip
FABRIC_STATES: dict[int, FabricState] = {
    0: "not supported", 1: "not started", 2: "in progress", 3: "completed",
}  # fmt: skip
PROCESS_LISTS: tuple[tuple[GpuUse, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses_v3"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
)


class NvmlReading(Record, frozen=True):
    """NVML's facts of the driver and of each GPU. `library_file` is the loaded file."""

    driver_version: Fact[str]
    library_version: Fact[str]  # starts with the CUDA major version: "13.580.159.04"
    library_file: Fact[str]
    cuda: Fact[str]
    gpus: Fact[tuple[Gpu, ...]]


class Nvml:
    """nvidia-ml-py. A name that its release does not have raises the same error as a missing library symbol."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise self._module.NVMLError(FUNCTION_NOT_FOUND) from None


class Reader(Record, frozen=True):
    """An NVML symbol, and the function that reads a fact with it."""

    symbol: str
    read: Callable[[Nvml, Any], Any]  # arguments: nvidia-ml-py, GPU handle


def read_nvml(root: Path = Path("/"), *, init_seconds: float = INIT_SECONDS) -> NvmlReading:
    """Read all facts from NVML. Without its library, /proc and /sys under `root` show if a driver is installed."""
    if failed := _load_library(root):
        return NvmlReading(failed, failed, failed, failed, failed)
    import pynvml  # takes 25 ms, so only if the library exists

    nvml = Nvml(pynvml)
    try:
        call_with_timeout(init_seconds, nvml.nvmlInit)
    except TimeoutError:
        failed = unreadable(INIT, f"nvmlInit did not return within {init_seconds:g} s")
        return NvmlReading(failed, failed, _read_library_file(), failed, failed)
    except nvml.NVMLError as error:
        failed = _error_fact(nvml, INIT, error)
        # The library reports its version even if the driver version does not match.
        return NvmlReading(failed, _read_library_version(nvml), _read_library_file(), failed, failed)
    try:
        return NvmlReading(
            driver_version=_system_fact(nvml, "nvmlSystemGetDriverVersion", nvml.nvmlSystemGetDriverVersion),
            library_version=_read_library_version(nvml),
            library_file=_read_library_file(),
            cuda=_system_fact(
                nvml,
                "nvmlSystemGetCudaDriverVersion_v2",
                lambda: cuda_version(nvml.nvmlSystemGetCudaDriverVersion_v2()),
            ),
            gpus=_read_gpus(nvml),
        )
    finally:
        with contextlib.suppress(TimeoutError, nvml.NVMLError):  # may block behind a GPU call that hangs
            call_with_timeout(init_seconds, nvml.nvmlShutdown)


def cuda_version(number: int) -> str:
    """Convert NVML's 13000 to "13.0" and 12080 to "12.8"."""
    if number <= 0:
        raise ValueError(f"CUDA version {number}")
    return f"{number // 1000}.{number % 1000 // 10}"


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """The names of the bits of nvmlClocksEventReasons; an unknown bit as hexadecimal number."""
    bits = [1 << position for position in range(mask.bit_length()) if mask >> position & 1]
    return tuple(THROTTLE_REASONS.get(bit, hex(bit)) for bit in bits)


def parse_library_file(maps: str) -> str:
    """The path of the loaded NVML library in /proc/self/maps, with symlinks resolved.

    `7f5c2a400000-7f5c2a4d1000 r-xp 0002b000 fe:00 1183   /usr/lib64/libnvidia-ml.so.580.159.04`
    """
    found = re.search(r"(/.*/libnvidia-ml\.so\S*)$", maps, re.MULTILINE)
    return found[1] if found else ""


def _load_library(root: Path) -> Fact[Any] | None:
    """Load the library; on failure a fact with the reason. nvidia-ml-py reports a damaged file as "not found"."""
    import _ctypes  # ctypes itself, which pynvml imports, takes 1.5 ms more

    try:
        _ctypes.dlopen(LIBRARY, 0)
    except OSError as error:
        if LIBRARY not in str(error) or "No such file" not in str(error):
            return unreadable(LIBRARY, str(error))
        if (root / "proc/driver/nvidia").exists() or (root / "sys/module/nvidia").exists():
            return unreadable(LIBRARY, f"the NVIDIA kernel module is loaded, but {error}")
        return absent(LIBRARY, "no NVIDIA driver")
    return None


def _read_library_file() -> Fact[str]:
    source = "/proc/self/maps"
    try:
        path = parse_library_file(Path(source).read_text(errors="replace"))
    except OSError as error:
        return unreadable(source, str(error.strerror))
    return known(path, source) if path else absent(source)


def _read_library_version(nvml: Nvml) -> Fact[str]:
    return _system_fact(nvml, "nvmlSystemGetNVMLVersion", nvml.nvmlSystemGetNVMLVersion)


def _read_gpus(nvml: Nvml) -> Fact[tuple[Gpu, ...]]:
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return _error_fact(nvml, COUNT, error)
    if not count:
        return absent(COUNT, "NVML reports no GPU")
    return known(tuple(_read_gpu(nvml, index) for index in range(count)), COUNT)


def _read_gpu(nvml: Nvml, index: int) -> Gpu:
    """Read one GPU. All facts of a lost or blocked GPU are unreadable."""
    try:
        return call_with_timeout(GPU_SECONDS, lambda: _query_gpu(nvml, index))
    except TimeoutError as error:
        failed: Fact[Any] = unreadable(HANDLE, f"GPU {index}: {error}")
    except nvml.NVMLError as error:
        failed = _error_fact(nvml, HANDLE, error)
    return Gpu(index=index, **dict.fromkeys(READERS, failed))


def _query_gpu(nvml: Nvml, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    facts = {name: _read_fact(nvml, handle, readers) for name, readers in READERS.items()}
    return Gpu(index=index, **facts)


def _read_fact(nvml: Nvml, handle: Any, readers: tuple[Reader, ...]) -> Fact[Any]:
    """The fact from the newest symbol that both the driver and nvidia-ml-py support."""
    reader, *older = readers
    try:
        return known(reader.read(nvml, handle), reader.symbol)
    except nvml.NVMLError as error:
        if older and error.value in (FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH):
            return _read_fact(nvml, handle, tuple(older))
        return _error_fact(nvml, reader.symbol, error)
    except ValueError as error:  # a name that is not UTF-8, a number that nvml.h does not define
        return unreadable(reader.symbol, f"unexpected value: {error}")


def _system_fact(nvml: Nvml, symbol: str, query: Callable[[], Any]) -> Fact[Any]:
    """A fact that does not belong to a GPU."""
    return _read_fact(nvml, None, (Reader(symbol, lambda *_: query()),))


def _error_fact(nvml: Nvml, symbol: str, error: Any) -> Fact[Any]:
    """An NVML error as a fact, with the driver's error message."""
    try:
        message = nvml.nvmlErrorString(error.value)
    except nvml.NVMLError:
        message = str(error)
    note = f"NVML error {error.value}: {message}"
    is_unsupported = error.value in (NOT_SUPPORTED, FUNCTION_NOT_FOUND)
    return absent(symbol, note) if is_unsupported else unreadable(symbol, note)


def _reader(symbol: str, convert: Callable[[Any], Any] | None = None, *arguments: Any) -> Reader:
    """A reader that makes one call and optionally converts its value."""

    def read(nvml: Nvml, handle: Any) -> Any:
        value = getattr(nvml, symbol)(handle, *arguments)
        return convert(value) if convert else value

    return Reader(symbol, read)


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _is_on(current: Any) -> bool:
    """NVML returns a mode as 0 or 1, or as a pair of current and pending mode."""
    return bool(current[0] if isinstance(current, list) else current)


def _memory_v2(part: str) -> Reader:
    """Version 2 reports the driver's memory separately as `reserved`, as nvidia-smi does."""
    return Reader(
        "nvmlDeviceGetMemoryInfo_v2",
        lambda nvml, handle: int(getattr(nvml.nvmlDeviceGetMemoryInfo(handle, MEMORY_INFO_V2), part)),
    )


def _memory_v1(part: str) -> Reader:
    return _reader("nvmlDeviceGetMemoryInfo", lambda memory: int(getattr(memory, part)))


def _clocks(nvml: Nvml, handle: Any) -> Clocks:
    return Clocks(
        sm=nvml.nvmlDeviceGetClockInfo(handle, CLOCK_SM),
        memory=nvml.nvmlDeviceGetClockInfo(handle, CLOCK_MEMORY),
        max_sm=nvml.nvmlDeviceGetMaxClockInfo(handle, CLOCK_SM),
    )


def _pcie(nvml: Nvml, handle: Any) -> PcieLink:
    return PcieLink(
        generation=nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
        width=nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        max_generation=nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        max_width=nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
    )


def _nvlink(nvml: Nvml, handle: Any) -> NvLink:
    """The error for a missing link is "not supported", or "invalid argument" after the last possible link."""
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if error.value not in (INVALID_ARGUMENT, NOT_SUPPORTED):
                raise
    if not states:
        raise nvml.NVMLError(NOT_SUPPORTED)
    return NvLink(links=len(states), active=sum(states))


def _fabric(symbol: str, structure: str) -> Reader:
    def read(nvml: Nvml, handle: Any) -> Fabric:
        from ctypes import byref

        info = getattr(nvml, structure)()
        getattr(nvml, symbol)(handle, byref(info))
        state = info.state & 0xFF  # nvml.h declares an unsigned char, nvidia-ml-py an unsigned int
        if state not in FABRIC_STATES:
            raise ValueError(f"fabric state {state}")
        return Fabric(state=FABRIC_STATES[state], status=info.status)

    return Reader(symbol, read)


def _processes(nvml: Nvml, handle: Any) -> tuple[Process, ...]:
    """The entries of all supported lists; NOT_SUPPORTED if there is none."""
    lists = []
    for kind, function in PROCESS_LISTS:
        try:
            entries = getattr(nvml, function)(handle)
        except nvml.NVMLError as error:
            if error.value not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                raise
        else:
            lists.append([Process(pid=entry.pid, kind=kind, memory=entry.usedGpuMemory) for entry in entries])
    if not lists:
        raise nvml.NVMLError(NOT_SUPPORTED)
    return tuple(process for entries in lists for process in entries)


# Field of Gpu -> readers, newest symbol first.
READERS: dict[str, tuple[Reader, ...]] = {
    "name": (_reader("nvmlDeviceGetName"),),
    "uuid": (_reader("nvmlDeviceGetUUID"),),
    "pci_bus": (_reader("nvmlDeviceGetPciInfo_v3", lambda pci: pci.busId),),
    "compute_capability": (_reader("nvmlDeviceGetCudaComputeCapability", lambda pair: f"{pair[0]}.{pair[1]}"),),
    "memory_total": (_memory_v2("total"), _memory_v1("total")),
    "memory_used": (_memory_v2("used"), _memory_v1("used")),
    "ecc": (_reader("nvmlDeviceGetEccMode", _is_on),),
    "ecc_uncorrected": (_reader("nvmlDeviceGetTotalEccErrors", None, UNCORRECTED, VOLATILE),),
    "remapped_rows": (
        _reader("nvmlDeviceGetRemappedRows", lambda r: RemappedRows(r[0], r[1], bool(r[2]), bool(r[3]))),
    ),
    "mig": (_reader("nvmlDeviceGetMigMode", _is_on),),
    "compute_mode": (_reader("nvmlDeviceGetComputeMode", lambda mode: COMPUTE_MODES.get(mode, f"mode {mode}")),),
    "persistence": (_reader("nvmlDeviceGetPersistenceMode", _is_on),),
    "clocks": (Reader("nvmlDeviceGetClockInfo", _clocks),),
    "throttle_reasons": (
        _reader("nvmlDeviceGetCurrentClocksEventReasons", throttle_reasons),
        _reader("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons),
    ),
    "temperature": (
        _reader("nvmlDeviceGetTemperatureV", None, TEMPERATURE_GPU),
        _reader("nvmlDeviceGetTemperature", None, TEMPERATURE_GPU),
    ),
    "power": (_reader("nvmlDeviceGetPowerUsage", _watts),),
    "power_limit": (
        _reader("nvmlDeviceGetEnforcedPowerLimit", _watts),
        _reader("nvmlDeviceGetPowerManagementLimit", _watts),
    ),
    "pcie": (Reader("nvmlDeviceGetCurrPcieLinkGeneration", _pcie),),
    "nvlink": (Reader("nvmlDeviceGetNvLinkState", _nvlink),),
    "fabric": (
        _fabric("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfoV_t"),
        _fabric("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ),
    "c2c": (_reader("nvmlDeviceGetC2cModeInfoV", lambda mode: bool(mode.isC2cEnabled)),),
    "processes": (Reader("nvmlDeviceGetComputeRunningProcesses_v3", _processes),),
}


def read_value(nvml: Nvml, handle: Any, field: str) -> Any:
    """The value of a field of Gpu from the first reader that succeeds; None if all fail."""
    for reader in READERS[field]:
        try:
            return reader.read(nvml, handle)
        except (nvml.NVMLError, ValueError):
            continue
    return None
