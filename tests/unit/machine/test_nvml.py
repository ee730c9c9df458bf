"""NVML and driver facts: nvidia-ml-py loads a fake libnvidia-ml.so.1 in a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.paths import ROOT

from envdoctor.core.records import Driver, Fabric, Fact, Gpu, NvLink, Process, RemappedRows, absent, unreadable
from envdoctor.machine import gpu as gpu_module
from envdoctor.machine.driver import parse_library_version, read_driver
from envdoctor.machine.gpu import READERS, NvmlReading, cuda_version, parse_library_file, read_nvml, throttle_reasons

CHILD = """
import sys
from pathlib import Path
import msgspec
from envdoctor.machine.driver import read_driver
from envdoctor.machine.gpu import read_nvml
root = Path(sys.argv[1])
{before}
reading = read_nvml(root, init_seconds=float(sys.argv[2]))
{after}
sys.stdout.buffer.write(msgspec.json.encode((reading, read_driver(reading, root))))
"""

OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \n"


def read_in_child(
    env: dict[str, str], root: Path, *, before: str = "", after: str = "", init_seconds: float = 60.0
) -> tuple[NvmlReading, Driver]:
    """Read NVML and the driver in a child process with these environment variables."""
    script = CHILD.format(before=before, after=after)
    result = subprocess.run(
        [sys.executable, "-c", script, str(root), str(init_seconds)],
        env=env | {"PATH": str(root)},  # hides this machine's nvidia-smi
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    return msgspec.json.decode(result.stdout, type=tuple[NvmlReading, Driver])


def gpus_of(reading: NvmlReading) -> tuple[Gpu, ...]:
    assert reading.gpus.value is not None, reading.gpus
    return reading.gpus.value


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_healthy_gh200(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    reading, driver = read_in_child(fake_nvml(machine_ini("gh200")), tmp_path)
    (gpu,) = gpus_of(reading)
    assert gpu.name.value == "NVIDIA GH200 480GB"
    assert gpu.uuid.value == "GPU-11111111-2222-3333-4444-555555555555"
    assert gpu.pci_bus.value == "00000009:01:00.0"
    assert gpu.compute_capability.value == "9.0"
    assert gpu.memory_total.value == 97871 << 20
    assert gpu.memory_used.value == 1 << 20  # without the driver's reserved memory
    assert (gpu.ecc.value, gpu.ecc_uncorrected.value, gpu.mig.value) == (True, 0, False)
    assert gpu.remapped_rows.value == RemappedRows(0, 0, pending=False, failed=False)
    assert (gpu.compute_mode.value, gpu.persistence.value) == ("default", True)
    assert msgspec.structs.astuple(gpu.clocks.value) == (345, 2619, 1980)
    assert gpu.throttle_reasons.value == ("idle",)
    assert (gpu.temperature.value, gpu.power.value, gpu.power_limit.value) == (33, 95.25, 900.0)
    assert msgspec.structs.astuple(gpu.pcie.value) == (5, 16, 5, 16)
    assert gpu.fabric.value == Fabric("not supported")
    assert gpu.c2c.value is True
    assert gpu.processes.value == (Process(1234, "compute", 1 << 20), Process(1300, "mps", None))
    assert gpu.nvlink == absent("nvmlDeviceGetNvLinkState", "NVML error 3: Not Supported")
    assert driver.version == Fact(value="570.148.08", source="nvmlSystemGetDriverVersion")
    assert driver.library == Fact(value="570.148.08", source="nvmlSystemGetNVMLVersion")
    assert driver.cuda == Fact(value="12.8", source="nvmlSystemGetCudaDriverVersion_v2")


def test_source_of_every_fact_is_the_newest_symbol(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    reading, _ = read_in_child(fake_nvml(machine_ini("gh200")), tmp_path)
    (gpu,) = gpus_of(reading)
    for field, readers in READERS.items():
        assert getattr(gpu, field).source == readers[0].symbol


def test_nvml_is_shut_down(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    after = (
        "import pynvml\n"
        "try: pynvml.nvmlDeviceGetCount()\n"
        "except pynvml.NVMLError_Uninitialized: pass\n"
        "else: sys.exit('NVML is still initialised')"
    )
    read_in_child(fake_nvml(machine_ini("gh200")), tmp_path, after=after)


def test_eight_gpus_with_nvswitch(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    reading, _ = read_in_child(fake_nvml(machine_ini("h100x8", "[gpu3]", "nvlinks = 111111111101111111")), tmp_path)
    gpus = gpus_of(reading)
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert len({gpu.uuid.value for gpu in gpus}) == 8
    assert {gpu.fabric.value for gpu in gpus} == {Fabric("completed")}
    assert [gpu.nvlink.value for gpu in gpus] == [NvLink(18, 17 if i == 3 else 18) for i in range(8)]
    assert gpus[0].processes.value == ()
    assert gpus[0].c2c.state == "absent"


def test_driver_and_library_mismatch(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    write(tmp_path, "proc/driver/nvidia/version", OPEN_MODULE)
    env = fake_nvml(machine_ini("gh200", "[system]", "fail.nvmlInitWithFlags = 18"), version="570.148.08")
    reading, driver = read_in_child(env, tmp_path)
    message = "NVML error 18: Driver/library version mismatch"
    assert reading.gpus == unreadable("nvmlInitWithFlags", message)
    assert driver.version == Fact(value="580.159.04", source="/proc/driver/nvidia/version", note=message)
    assert driver.library.value == "570.148.08"
    assert driver.library.source.endswith("/libnvidia-ml.so.570.148.08")
    assert driver.cuda == unreadable("nvmlInitWithFlags", message)
    assert driver.module == Fact(value="open", source="/proc/driver/nvidia/version")


def test_driver_not_loaded(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    reading, driver = read_in_child(
        fake_nvml(machine_ini("gh200", "[system]", "fail.nvmlInitWithFlags = 9")), tmp_path
    )
    assert reading.gpus == unreadable("nvmlInitWithFlags", "NVML error 9: Driver Not Loaded")
    assert driver.version == unreadable("nvmlInitWithFlags", "NVML error 9: Driver Not Loaded")
    assert driver.library.value == "570.148.08"
    assert driver.module.state == "absent"


@pytest.mark.parametrize("failure", ["fail.nvmlDeviceGetHandleByIndex_v2 = 15", "fail = 15"])
def test_lost_gpu_does_not_affect_others(fake_nvml: FakeNvml, tmp_path: Path, failure: str) -> None:
    ini = machine_ini("gh200", "[system]", "count = 2", "[gpu0]", failure)
    lost, healthy = gpus_of(read_in_child(fake_nvml(ini), tmp_path)[0])
    for field in READERS:
        fact = getattr(lost, field)
        assert (fact.state, fact.note) == ("unreadable", "NVML error 15: GPU is lost")
    assert healthy.name.value == "NVIDIA GH200 480GB"
    assert healthy.index == 1


def test_gpu_lost_during_the_reading_keeps_earlier_facts(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    ini = machine_ini("gh200", "[gpu]", "fail.nvmlDeviceGetClockInfo = 15")
    (gpu,) = gpus_of(read_in_child(fake_nvml(ini), tmp_path)[0])
    assert gpu.clocks == unreadable("nvmlDeviceGetClockInfo", "NVML error 15: GPU is lost")
    assert gpu.name.state == "known"


def test_older_drivers_are_read_with_older_symbols(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    symbols_by_field = {
        "memory_used": ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
        "throttle_reasons": ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        "temperature": ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
        "fabric": ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"),
        "power_limit": ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
    }
    omitted = [symbols[0] for symbols in symbols_by_field.values()]
    (gpu,) = gpus_of(read_in_child(fake_nvml(machine_ini("gh200"), omit=omitted), tmp_path)[0])
    for field, (_, older) in symbols_by_field.items():
        fact = getattr(gpu, field)
        assert (fact.state, fact.source) == ("known", older)
    assert gpu.memory_used.value == (1 << 20) + 640679936  # version 1 includes reserved memory


def test_symbols_missing_in_the_driver(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    omitted = ("nvmlDeviceGetC2cModeInfoV", "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlErrorString")
    (gpu,) = gpus_of(read_in_child(fake_nvml(machine_ini("gh200"), omit=omitted), tmp_path)[0])
    assert gpu.c2c == absent("nvmlDeviceGetC2cModeInfoV", "NVML error 13: Function Not Found")
    assert gpu.processes.value == (Process(1234, "compute", 1 << 20),)


def test_symbols_missing_in_nvidia_ml_py(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """nvidia-ml-py 12.560 has no nvmlDeviceGetTemperatureV."""
    before = "import pynvml; del pynvml.nvmlDeviceGetTemperatureV, pynvml.nvmlDeviceGetC2cModeInfoV"
    (gpu,) = gpus_of(read_in_child(fake_nvml(machine_ini("gh200")), tmp_path, before=before)[0])
    assert gpu.temperature == Fact(value=33, source="nvmlDeviceGetTemperature")
    assert gpu.c2c == absent("nvmlDeviceGetC2cModeInfoV", "NVML error 13: Function Not Found")


def test_no_permission(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    failure = "fail.nvmlDeviceGetComputeRunningProcesses_v3 = 4"
    (gpu,) = gpus_of(read_in_child(fake_nvml(machine_ini("gh200", "[gpu]", failure)), tmp_path)[0])
    symbol = "nvmlDeviceGetComputeRunningProcesses_v3"
    assert gpu.processes == unreadable(symbol, "NVML error 4: Insufficient Permissions")


def test_hanging_init(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    write(tmp_path, "sys/module/nvidia/version", "580.159.04\n")
    env = fake_nvml(machine_ini("gh200", "[system]", "hang.nvmlInitWithFlags = 1"))
    reading, driver = read_in_child(env, tmp_path, init_seconds=0.2)
    assert reading.gpus == unreadable("nvmlInitWithFlags", "nvmlInit did not return within 0.2 s")
    assert (driver.version.value, driver.version.source) == ("580.159.04", "/sys/module/nvidia/version")


def test_hanging_gpu_does_not_affect_others(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    ini = machine_ini("gh200", "[system]", "count = 2", "[gpu0]", "hang.nvmlDeviceGetName = 1")
    before = "from envdoctor.machine import gpu; gpu.GPU_SECONDS = 0.2"
    stuck, healthy = gpus_of(read_in_child(fake_nvml(ini), tmp_path, before=before)[0])
    assert stuck.name == unreadable("nvmlDeviceGetHandleByIndex_v2", "GPU 0: no response within 0.2 s")
    assert healthy.name.value == "NVIDIA GH200 480GB"


def test_mig(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    ini = machine_ini("gh200", "[gpu]", "mig = 1", "fail.nvmlDeviceGetGraphicsRunningProcesses_v3 = 3")
    (gpu,) = gpus_of(read_in_child(fake_nvml(ini), tmp_path)[0])
    assert gpu.mig == Fact(value=True, source="nvmlDeviceGetMigMode")
    assert gpu.processes.state == "known"


def test_unsupported_facts_of_a_consumer_gpu_are_absent(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    ini = "[system]\ncount = 1\ncuda = 12040\ndriver_version = 550.78\n[gpu]\nname = NVIDIA GeForce RTX 4090\n"
    reading, driver = read_in_child(fake_nvml(ini), tmp_path)
    (gpu,) = gpus_of(reading)
    assert gpu.name.value == "NVIDIA GeForce RTX 4090"
    unknown = [getattr(gpu, field) for field in READERS if field != "name"]
    assert {fact.state for fact in unknown} == {"absent"}
    assert driver.library.state == "absent"


def test_errors_reported_by_the_gpu(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    lines = ("remapped_rows = 1 2 1 0", "ecc_errors.1.0 = 3", "clock_reasons = 0x48", "compute_mode = 3")
    (gpu,) = gpus_of(read_in_child(fake_nvml(machine_ini("h200", "[gpu]", *lines)), tmp_path)[0])
    assert gpu.remapped_rows.value == RemappedRows(1, 2, pending=True, failed=False)
    assert gpu.ecc_uncorrected.value == 3
    assert gpu.throttle_reasons.value == ("hw-slowdown", "hw-thermal")
    assert gpu.compute_mode.value == "exclusive-process"


@pytest.mark.parametrize(
    ("line", "field", "note"),
    [
        ("fabric_state = 9", "fabric", "unexpected value: fabric state 9"),
        ("name = \udcff", "name", "unexpected value: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_invalid_values(fake_nvml: FakeNvml, tmp_path: Path, line: str, field: str, note: str) -> None:
    env = fake_nvml("")
    ini = machine_ini("gh200", "[gpu]", line)
    Path(env["FAKE_NVML_CONFIG"]).write_bytes(ini.encode(errors="surrogateescape"))
    (gpu,) = gpus_of(read_in_child(env, tmp_path)[0])
    fact = getattr(gpu, field)
    assert fact.state == "unreadable"
    assert fact.note.startswith(note)


def test_zero_gpus(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    reading, driver = read_in_child(fake_nvml(machine_ini("gh200", "[system]", "count = 0")), tmp_path)
    assert reading.gpus == absent("nvmlDeviceGetCount_v2", "NVML reports no GPU")
    assert driver.version.state == "known"


def test_no_library_and_no_kernel_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "LIBRARY", "libnvidia-ml-missing.so.1")
    monkeypatch.setenv("PATH", str(tmp_path))
    reading = read_nvml(tmp_path)
    assert reading.gpus == absent("libnvidia-ml-missing.so.1", "no NVIDIA driver")
    driver = read_driver(reading, tmp_path)
    assert (driver.version.state, driver.library.state, driver.cuda.state) == ("absent",) * 3
    assert driver.module == absent("/proc/driver/nvidia/version", "no NVIDIA kernel module")


def test_no_library_with_the_kernel_module_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_module, "LIBRARY", "libnvidia-ml-missing.so.1")
    write(tmp_path, "proc/driver/nvidia/version", OPEN_MODULE)
    reading = read_nvml(tmp_path)
    assert reading.gpus.state == "unreadable"
    assert reading.gpus.note.startswith("the NVIDIA kernel module is loaded, but libnvidia-ml-missing.so.1:")
    driver = read_driver(reading, tmp_path)
    assert (driver.version.value, driver.version.source) == ("580.159.04", "/proc/driver/nvidia/version")
    assert driver.module.value == "open"
    assert driver.library.state == "unreadable"


def test_damaged_library(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    env = fake_nvml("") | {"LD_LIBRARY_PATH": str(tmp_path)}
    write(tmp_path, "libnvidia-ml.so.1", "")
    reading, _ = read_in_child(env, tmp_path)
    assert reading.gpus.state == "unreadable"
    assert "file too short" in reading.gpus.note


def test_parse_library_file() -> None:
    maps = (
        "7f5c2a400000-7f5c2a4d1000 r-xp 0002b000 fe:00 1183   /opt/my drivers/libnvidia-ml.so.580.159.04\n"
        "7f5c2a800000-7f5c2a900000 r-xp 00000000 fe:00 1184   /usr/lib/x86_64-linux-gnu/libc.so.6\n"
    )
    assert parse_library_file(maps) == "/opt/my drivers/libnvidia-ml.so.580.159.04"
    assert parse_library_file("") == ""
    assert parse_library_version("/opt/my drivers/libnvidia-ml.so.580.159.04") == "580.159.04"
    assert parse_library_version("/usr/lib/wsl/lib/libnvidia-ml.so.1") == ""


def test_conversion_of_nvml_numbers() -> None:
    assert [cuda_version(number) for number in (13000, 12080, 12010)] == ["13.0", "12.8", "12.1"]
    assert throttle_reasons(0) == ()
    assert throttle_reasons(0x1C4) == ("power-cap", "hw-thermal", "hw-power-brake", "display")
    assert throttle_reasons(0x401) == ("idle", "0x400")
    with pytest.raises(ValueError, match="CUDA version 0"):
        cuda_version(0)
