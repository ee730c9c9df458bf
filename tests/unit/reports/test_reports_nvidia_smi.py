"""Pasted nvidia-smi output: tables, listings, CSV, errors, and GPU lists from several sources."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import PYTORCH, TABLE, gpus

from envdoctor.core.records import Fabric, Process, RemappedRows
from envdoctor.reports import parse_report


def test_table_of_nvidia_smi() -> None:
    report = parse_report(TABLE)
    assert report.kinds == ("nvidia-smi",)
    assert report.errors == ""
    assert (report.machine.driver.version.value, report.machine.driver.cuda.value) == ("580.95.05", "13.0")
    first, second = gpus(report)
    assert (first.mig.value, first.mig.note) == (True, "instances: 40192MiB")
    assert (first.compute_mode.value, second.compute_mode.value) == ("exclusive-process", "prohibited")
    assert (first.persistence.value, second.persistence.value) == (True, False)
    assert first.ecc.value is True
    assert (second.ecc_uncorrected.value, second.pci_bus.value) == (2, "00000000:CB:00.0")
    assert (first.memory_total.value, first.memory_used.value) == (81920 << 20, 176 << 20)
    assert (second.temperature.value, second.power.value, second.power_limit.value) == (35, 17.0, 350.0)
    assert second.processes.value == (Process(1234, "compute", 10240 << 20),)
    assert first.processes.value == ()


def test_tables_of_old_drivers_of_wsl_and_of_mig_without_instances() -> None:
    old = parse_report(
        "| NVIDIA-SMI 418.87.00    Driver Version: 418.87.00    CUDA Version: 10.1     |\n"
        "|   0  Tesla V100-SXM2...  On   | 00000000:00:1E.0 Off |                    0 |\n"
        "| N/A   41C    P0    39W / 300W |      0MiB / 16130MiB |      0%      Default |\n"
        "|    0     4242      C   python                                       1234MiB |\n"
    )
    assert gpus(old)[0].compute_capability.value == "7.0"
    assert gpus(old)[0].processes.value == (Process(4242, "compute", 1234 << 20),)
    wsl = parse_report("| NVIDIA-SMI 575.51.02     Driver Version: 576.02      CUDA Version: 12.9     |\n")
    assert wsl.machine.driver.version.value == "576.02"
    assert wsl.machine.driver.library.state == "unreadable"  # the version of nvidia-smi is not that of the library
    no_instance = parse_report(
        "|   0  NVIDIA A100-SXM4-80GB           Off| 00000000:40:00.0 Off |                   On |\n"
        "| N/A   27C    P0               31W / 400W|      0MiB / 81920MiB |     N/A      Default |\n"
        "|                                         |                      |              Enabled |\n"
        "|  No MIG devices found                                                                 |\n"
    )
    assert (gpus(no_instance)[0].mig.value, gpus(no_instance)[0].mig.note) == (True, "no MIG devices found")


@each_case(
    ("text", "state", "note"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144",
            "unreadable",
            "NVML error 18: Driver/library version mismatch",
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure",
            "unreadable",
            "NVML error 9: Driver Not Loaded",
        ),
        ("Failed to initialize NVML: Unknown Error", "unreadable", "NVML error 999: Unknown Error"),
        ("No devices were found", "absent", "nvidia-smi: No devices were found"),
        ("bash: nvidia-smi: command not found", "absent", "nvidia-smi is not installed"),
    ],
)
def test_nvidia_smi_errors(text: str, state: str, note: str) -> None:
    report = parse_report(text)
    assert (report.machine.gpus.state, report.machine.gpus.note) == (state, note)
    assert text.splitlines()[0] in report.errors  # `explain` needs the symptom
    if "550.144" in text:
        assert report.machine.driver.library.value == "550.144"


def test_lost_gpu() -> None:
    lost = parse_report(
        "Unable to determine the device handle for GPU0000:20:00.0: Unknown Error\nNo devices were found\n"
    )
    assert gpus(lost)[0].name.note == "NVML error 15: GPU is lost (GPU 0000:20:00.0)"
    text = (
        "|   0  NVIDIA H100 80GB HBM3   On  | 00000000:1B:00.0 Off |                    0 |\n"
        "|   1  NVIDIA H100 80GB HBM3   On  | 00000000:41:00.0 Off |                    0 |\n"
        "[ 123.456789] NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n"
    )
    first, second = gpus(parse_report(text))
    assert first.name.value == "NVIDIA H100 80GB HBM3"
    assert "NVML error 15:" in second.name.note


def test_nvidia_smi_query_listing() -> None:
    report = parse_report(
        "==============NVSMI LOG==============\n\nDriver Version                            : 570.86.15\n"
        "CUDA Version                              : 12.8\n\nAttached GPUs                             : 1\n"
        "GPU 00000000:1B:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
        "    MIG Mode\n        Current                           : Disabled\n"
        "        Pending                           : Disabled\n"
        "    Compute Mode                          : Exclusive_Process\n"
        "    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555\n"
        "    FB Memory Usage\n        Total                             : 81559 MiB\n"
        "    ECC Errors\n        Volatile\n            SRAM Correctable              : 7\n"
        "            SRAM Uncorrectable            : 1\n            DRAM Uncorrectable            : 3\n"
        "        Aggregate\n            DRAM Uncorrectable            : 9\n"
        "    Remapped Rows\n        Correctable Error                 : 0\n"
        "        Uncorrectable Error               : 2\n"
        "        Pending                           : Yes\n        Remapping Failure Occurred        : No\n"
        "    Clocks Event Reasons\n        Idle                              : Not Active\n"
        "        HW Thermal Slowdown               : Active\n"
        "    Fabric\n        State                             : In Progress\n        Status                : N/A\n"
    )
    (gpu,) = gpus(report)
    assert report.errors == ""
    assert (report.machine.driver.version.value, report.machine.driver.cuda.value) == ("570.86.15", "12.8")
    assert (gpu.mig.value, gpu.compute_mode.value, gpu.ecc_uncorrected.value) == (False, "exclusive-process", 4)
    assert gpu.memory_total.value == 81559 << 20
    assert gpu.remapped_rows.value == RemappedRows(0, 2, pending=True, failed=False)
    assert gpu.fabric.value == Fabric("in progress", 0)
    assert gpu.throttle_reasons.value == ("hw-thermal",)


def test_nvidia_smi_csv() -> None:
    header = "name, driver_version, memory.total [MiB], compute_cap"
    rows = "NVIDIA GeForce RTX 3090, 550.54.14, 24576 MiB, 8.6\n" * 2
    command = "$ nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader"
    for first in (header, command, f"{command}\n{header}"):
        report = parse_report(f"{first}\n{rows}ready\n")
        assert [gpu.compute_capability.value for gpu in gpus(report)] == ["8.6", "8.6"]
        assert report.machine.driver.version.value == "550.54.14"
        assert report.errors == "ready"


def test_no_cuda_in_the_container_overrides_the_gpus_of_the_host() -> None:
    report = parse_report(
        "$ nvidia-smi -L\nGPU 0: NVIDIA A10 (UUID: GPU-11111111)\n"
        "root@1234567890ab:/# python collect_env.py\nPyTorch version: 2.4.0+cu121\nIs CUDA available: False\n"
        "GPU models and configuration: No CUDA\nNvidia driver version: No CUDA\n"
    )
    assert report.machine.gpus.state == "absent"
    assert "elsewhere in the paste: 1 GPUs (NVIDIA A10)" in report.machine.gpus.note
    assert report.machine.system.container.value == "docker"


def test_gpu_lists_of_two_reports_are_merged() -> None:
    report = parse_report(TABLE.replace("GeForce RTX 3090", "GeForce RTX ...") + PYTORCH)
    first, second = gpus(report)
    assert second.name.value == "NVIDIA GeForce RTX 3090"
    assert second.compute_mode.value == "prohibited"
    assert first.mig.note == "instances: 3g.40gb, 1g.10gb"
