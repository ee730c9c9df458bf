"""Parsers for the default table of nvidia-smi, its error messages, and the driver's kernel log."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import GpuUse, Process
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Line, Section, first_group, parse_number, parse_size

COMPUTE_MODES = {
    "default": "default", "e. process": "exclusive-process", "exclusive_process": "exclusive-process",
    "e. thread": "exclusive-thread", "exclusive_thread": "exclusive-thread", "prohibited": "prohibited",
}  # fmt: skip
DATE = lazy_pattern(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d 20\d\d$")
PCI_BUS_ID = lazy_pattern(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
ON_OFF = {"on": True, "enabled": True, "off": False, "disabled": False}
PROCESS_TYPES: dict[str, GpuUse] = {
    "C": "compute",
    "G": "graphics",
    "M": "mps",
    "M+C": "mps",
    "C+G": "graphics",
}
TABLE_LABELS = ("Processes:", "Process name", "MIG devices:", "Bus-Id", "Memory-Usage", "MIG M.", "BAR1-Usage",
               "GI   CI", "ID   ID", "ID  ID", "GPU Memory", "NVIDIA-SMI ", "GI  CI", "        ECC|")  # fmt: skip

# Error messages of nvidia-smi -> NVML's return code and description (nvml.h), which the rules match.
ERRORS = (
    ("Driver/library version mismatch", 18, "Driver/library version mismatch"),
    ("couldn't communicate with the NVIDIA driver", 9, "Driver Not Loaded"),
    ("Failed to initialize NVML: Driver Not Loaded", 9, "Driver Not Loaded"),
    ("GPU is lost", 15, "GPU is lost"),
    ("Unable to determine the device handle for", 15, "GPU is lost"),
    ("Failed to initialize NVML: Insufficient Permissions", 4, "Insufficient Permissions"),
    ("Failed to initialize NVML: GPU access blocked", 17, "GPU access blocked by the operating system"),
    ("Failed to initialize NVML: Unknown Error", 999, "Unknown Error"),
    ("couldn't find libnvidia-ml.so", 12, "NVML Shared Library Not Found"),
    ("Failed to initialize NVML: NVML Shared Library Not Found", 12, "NVML Shared Library Not Found"),
    ("Failed to initialize NVML: Not Found", 12, "NVML Shared Library Not Found"),
)


class _TableState:
    """The state of the table parser."""

    def __init__(self) -> None:
        self.section = Section("nvidia-smi")
        self.current: int | None = None  # index of the GPU that the current rows describe
        self.part = ""  # "mig", "processes" or "no processes" after those headings
        self.mig: dict[int, list[str]] = {}
        self.processes: dict[int, list[Process]] = {}


def parse_nvidia_smi_table(lines: list[Line]) -> Section | None:
    """Parse driver, GPUs and processes of the default table, in the layouts of all driver generations.

    ```
    | NVIDIA-SMI 530.41.03              Driver Version: 530.41.03    CUDA Version: 12.1     |
    |   0  NVIDIA A100-SXM4-80GB           Off| 00000000:40:00.0 Off |                   On |
    | N/A   27C    P0               31W / 400W|      0MiB / 81920MiB |     N/A      Default |
    |                                         |                      |              Enabled |
    |    0   N/A  N/A      4242      C   python                                    10240MiB |
    ```
    """
    table = _TableState()
    section = table.section
    for line in lines:
        if ("|" in line.text or line.text[0] in "+MTWFS" or "NVIDIA-SMI" in line.text) and _read_line(
            table, line.text
        ):
            section.consumed.add(line.number)
    if not section.gpus and not section.facts:
        return None
    _record_mig_instances(table, no_devices=any("No MIG devices found" in line.text for line in lines))
    if table.part in ("processes", "no processes"):
        for index in section.gpus:
            section.set_gpu_fact(index, "processes", tuple(table.processes.get(index, ())))
    return section


def _read_line(table: _TableState, text: str) -> bool:
    """Read one line. Returns False if it is not part of a table."""
    if "NVIDIA-SMI" in text and _record_header(table.section, text):
        table.part = ""
    elif "Processes:" in text:
        table.part = "processes"
    elif "MIG devices:" in text:
        table.part = "mig"
    elif "No running processes found" in text:
        table.part = "no processes"
    elif not (
        _is_border(text)
        or DATE.match(text)
        or "No MIG devices found" in text
        or any(word in text for word in TABLE_LABELS)
    ):
        body = text.removeprefix("|").removesuffix("|")
        cells = [cell.strip() for cell in body.split("|")]
        return _read_mig_mode(table, cells) or _read_row(table, cells, text)
    return True


def _is_border(text: str) -> bool:
    return text[0] in "+|" and len(text) > 8 and not text.strip("+-=| ")


def _record_header(section: Section, text: str) -> bool:
    """Record driver and CUDA version. Under WSL the version of nvidia-smi differs from the driver's."""
    driver = first_group(r"(?:Driver|KMD) Version: ?(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)", text)
    if not driver:
        return False
    section.set_fact("driver.version", driver)
    section.set_fact("driver.cuda", first_group(r"CUDA (?:UMD |Driver )?Version: ?(\d{1,2}\.\d{1,2})", text))
    return True


def _read_mig_mode(table: _TableState, cells: list[str]) -> bool:
    """Read the row of a GPU whose only cell is its MIG mode; a log or a page may have removed the empty cells."""
    filled = [cell.lower() for cell in cells if cell]
    if table.current is None or table.part == "mig" or len(filled) != 1 or filled[0] not in ON_OFF:
        return False
    table.section.set_gpu_fact(table.current, "mig", ON_OFF[filled[0]])
    return True


def _read_row(table: _TableState, cells: list[str], text: str) -> bool:
    """Read one row of a GPU, a MIG instance or a process. Returns False for other rows."""
    if len(cells) == 1 and table.part != "mig":
        return _read_process(table, cells[0].split())
    if table.part == "mig" and len(cells) > 1:
        if match := re.match(r"(\d{1,2})\s+\d+\s+\d+\s+\d+$", cells[0]):
            table.mig.setdefault(int(match[1]), []).append(cells[1].partition("/")[2].strip())
        return True
    if len(cells) != 3:
        return False
    gpu_row = re.match(r"(\d{1,2})\s+(\S.{0,70}?)(?:\s+(On|Off|N/A|TCC|WDDM|MCDM|ERR!))?$", cells[0])
    if gpu_row and (PCI_BUS_ID.search(cells[1]) or is_gpu_name(gpu_row[2]) or "ERR!" in text):
        table.current, table.part = _read_first_row(table.section, cells, gpu_row), ""
        return True
    if table.current is None:
        return False
    if "iB" in cells[1]:
        _read_second_row(table.section, table.current, cells)
    return True


def _read_first_row(section: Section, cells: list[str], match: re.Match[str]) -> int:
    index = int(match[1])
    note = "driver model TCC" if match[3] == "TCC" else ""  # of Windows
    section.set_gpu_fact(index, "name", match[2] if is_gpu_name(match[2]) else None, note)
    section.gpus.setdefault(index, {})
    section.set_gpu_fact(index, "persistence", ON_OFF.get((match[3] or "").lower()))
    section.set_gpu_fact(index, "pci_bus", bus[0] if (bus := PCI_BUS_ID.search(cells[1])) else None)
    errors = cells[2].split(" ")[0]
    if errors.isdigit():
        section.set_gpu_fact(index, "ecc", value=True)
        section.set_gpu_fact(index, "ecc_uncorrected", int(errors[:9]))
    elif errors in ("Off", "On"):
        section.set_gpu_fact(index, "ecc", errors == "On")
    return index


def _read_second_row(section: Section, index: int, cells: list[str]) -> None:
    """Record the cells of `N/A   27C    P0   31W / 400W | 0MiB / 81920MiB | N/A   Default`."""
    section.set_gpu_fact(index, "temperature", parse_number(first_group(r"(\d{1,3})C\b", cells[0])))
    power = re.search(r"(\d{1,4})W\s*/\s*(\d{1,4})W", cells[0])
    if power:
        section.set_gpu_fact(index, "power", float(power[1]))
        section.set_gpu_fact(index, "power_limit", float(power[2]))
    used, _, total = cells[1].partition("/")
    section.set_gpu_fact(index, "memory_used", parse_size(used))
    section.set_gpu_fact(index, "memory_total", parse_size(total))
    lowered = cells[2].lower()
    mode = next((mode for word, mode in COMPUTE_MODES.items() if word in lowered), None)
    section.set_gpu_fact(index, "compute_mode", mode)


def _read_process(table: _TableState, words: list[str]) -> bool:
    """Record `0   N/A  N/A   4242   C   python   10240MiB`. Drivers before R450 print no `N/A  N/A`."""
    type_column = next((position for position, word in enumerate(words[:6]) if word in PROCESS_TYPES), 0)
    if not type_column or not words[0].isdecimal() or not words[type_column - 1].isdecimal():
        return False
    table.part = "processes"
    process = Process(int(words[type_column - 1][:9]), PROCESS_TYPES[words[type_column]], parse_size(words[-1]))
    table.processes.setdefault(int(words[0][:3]), []).append(process)
    return True


def _record_mig_instances(table: _TableState, *, no_devices: bool) -> None:
    for index, facts in table.section.gpus.items():
        if index in table.mig:
            facts.pop("mig", None)
            table.section.set_gpu_fact(index, "mig", value=True, note="instances: " + ", ".join(table.mig[index]))
        elif no_devices and (fact := facts.get("mig")) and fact.value:
            facts.pop("mig")
            table.section.set_gpu_fact(index, "mig", value=True, note="no MIG devices found")


def parse_nvidia_smi_errors(lines: list[Line]) -> Section | None:
    """Parse error messages of nvidia-smi. The lines are not consumed, because they are symptoms.

    `Failed to initialize NVML: Driver/library version mismatch` -> `NVML error 18: Driver/library version mismatch`
    """
    section = Section("nvidia-smi")
    for line in lines:
        text = line.text
        for message, code, meaning in ERRORS:
            if message in text:
                bus = first_group(r"GPU ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)", text)
                note = f"NVML error {code}: {meaning}"
                section.set_unreadable("lost" if code == 15 else "gpus", f"{note} (GPU {bus})" if bus else note)
                break
        if text.startswith("No devices were found"):
            section.set_absent("gpus", "nvidia-smi: No devices were found")
        elif "nvidia-smi" in text and ("command not found" in text or ": not found" in text):
            section.set_absent("gpus", "nvidia-smi is not installed")
        if library := first_group(r"NVML library version: (\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)", text):
            section.set_fact("driver.library", library)
    return section if section.facts else None


def parse_kernel_log(lines: list[Line]) -> Section | None:
    """Parse the driver's lines in the kernel log and in /proc/driver/nvidia/version.

    ```
    NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.
    NVRM: API mismatch: the client has the version 550.144.03, but
    NVRM: this kernel module has the version 535.183.01.  Please
    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
    ```
    """
    section = Section("dmesg/NVRM")
    for line in lines:
        text = line.text
        if "NVRM" not in text:
            continue
        if "NVRM version:" in text or "loading NVIDIA UNIX" in text:
            section.set_fact(
                "driver.version",
                first_group(r"Kernel Module[ a-z]{0,12}(?:x86_64|aarch64|  )?\s*(\d{2,4}\.\d+(?:\.\d+)?)", text),
            )
            section.set_fact("driver.module", "open" if "Open" in text else "proprietary")
            if "NVRM version:" in text:
                section.consumed.add(line.number)
        section.set_fact("driver.library", first_group(r"the client has the version (\d{2,4}\.\d+(?:\.\d+)?)", text))
        section.set_fact(
            "driver.version", first_group(r"this kernel module has the version (\d{2,4}\.\d+(?:\.\d+)?)", text)
        )
        if re.search(r"Xid \(PCI:[^)]{4,20}\): 79\b|fallen off the bus", text):
            bus = first_group(r"PCI:([0-9A-Fa-f:.]{7,16})", text) or first_group(r"GPU ([0-9A-Fa-f:.]{7,16})", text)
            section.set_unreadable("lost", f"NVML error 15: GPU is lost (Xid 79{', GPU ' + bus if bus else ''})")
    return section if section.facts else None
