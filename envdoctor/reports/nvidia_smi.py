"""nvidia-smi: its default table of every driver generation, and the words with which it fails."""

from __future__ import annotations

import re
from typing import Literal

from envdoctor.core.records import Process
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Line, Said, find, parse_number, parse_size

COMPUTE_MODES = {
    "default": "default",
    "e. process": "exclusive-process",
    "exclusive_process": "exclusive-process",
    "e. thread": "exclusive-thread",
    "exclusive_thread": "exclusive-thread",
    "prohibited": "prohibited",
}
DATE = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d 20\d\d$")
BUS = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
PERSISTENCE = {"on": True, "enabled": True, "off": False, "disabled": False}
PROCESS_KINDS: dict[str, Literal["compute", "graphics", "mps"]] = {
    "C": "compute",
    "G": "graphics",
    "M": "mps",
    "M+C": "mps",
    "C+G": "graphics",
}
TABLE_WORDS = ("Processes:", "Process name", "MIG devices:", "Bus-Id", "Memory-Usage", "MIG M.", "BAR1-Usage",
               "GI   CI", "ID   ID", "ID  ID", "GPU Memory", "NVIDIA-SMI ", "GI  CI", "        ECC|")  # fmt: skip

# What nvidia-smi says instead of a table -> NVML's return code (nvml.h) and words, which the rules know.
FAILURES = (
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


class _Table:
    """How far the reading of one paste's tables is."""

    def __init__(self) -> None:
        self.said = Said("nvidia-smi")
        self.current: int | None = None  # the GPU whose rows these are
        self.part = ""  # "mig", "processes" or "no processes" below those headings
        self.mig: dict[int, list[str]] = {}
        self.processes: dict[int, list[Process]] = {}


def parse_table(lines: list[Line]) -> Said | None:
    """Driver, GPUs and processes of the default table.

    ```
    | NVIDIA-SMI 530.41.03              Driver Version: 530.41.03    CUDA Version: 12.1     |
    |   0  NVIDIA A100-SXM4-80GB           Off| 00000000:40:00.0 Off |                   On |
    | N/A   27C    P0               31W / 400W|      0MiB / 81920MiB |     N/A      Default |
    |                                         |                      |              Enabled |
    |    0   N/A  N/A      4242      C   python                                    10240MiB |
    ```
    """
    table = _Table()
    said = table.said
    for line in lines:
        if ("|" in line.text or line.text[0] in "+MTWFS" or "NVIDIA-SMI" in line.text) and _read_line(
            table, line.text
        ):
            said.lines.add(line.number)
    if not said.gpus and not said.facts:
        return None
    _tell_mig(table, none_made=any("No MIG devices found" in line.text for line in lines))
    if table.part in ("processes", "no processes"):
        for index in said.gpus:
            said.tell_gpu(index, "processes", tuple(table.processes.get(index, ())))
    return said


def _read_line(table: _Table, text: str) -> bool:
    """Read one line of a table; False where it is none."""
    if "NVIDIA-SMI" in text and _tell_header(table.said, text):
        table.part = ""
    elif "Processes:" in text:
        table.part = "processes"
    elif "MIG devices:" in text:
        table.part = "mig"
    elif "No running processes found" in text:
        table.part = "no processes"
    elif not (
        _is_rule(text)
        or DATE.match(text)
        or "No MIG devices found" in text
        or any(word in text for word in TABLE_WORDS)
    ):
        body = text.removeprefix("|").removesuffix("|")
        cells = [cell.strip() for cell in body.split("|")]
        return _read_row(table, cells, text)
    return True


def _is_rule(text: str) -> bool:
    return text[0] in "+|" and len(text) > 8 and not text.strip("+-=| ")


def _tell_header(said: Said, text: str) -> bool:
    """Driver and CUDA version. Under WSL nvidia-smi's own version is not the driver's."""
    driver = find(r"(?:Driver|KMD) Version: ?(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)", text)
    if not driver:
        return False
    said.tell("driver.version", driver)
    said.tell("driver.cuda", find(r"CUDA (?:UMD |Driver )?Version: ?(\d{1,2}\.\d{1,2})", text))
    return True


def _read_row(table: _Table, cells: list[str], text: str) -> bool:
    """One row of a GPU, a MIG instance or a process."""
    if len(cells) == 1 and table.part != "mig":
        return _read_process(table, cells[0].split())
    if table.part == "mig" and len(cells) > 1:
        if found := re.match(r"(\d{1,2})\s+\d+\s+\d+\s+\d+$", cells[0]):
            table.mig.setdefault(int(found[1]), []).append(cells[1].partition("/")[2].strip())
        return True
    if len(cells) != 3:
        return False
    named = re.match(r"(\d{1,2})\s+(\S.{0,70}?)(?:\s+(On|Off|N/A|TCC|WDDM|MCDM|ERR!))?$", cells[0])
    if named and (BUS.search(cells[1]) or is_gpu_name(named[2]) or "ERR!" in text):
        table.current, table.part = _read_first_row(table.said, cells, named), ""
        return True
    if table.current is None:
        return False
    if "iB" in cells[1]:
        _read_second_row(table.said, table.current, cells)
    elif not cells[0] and not cells[1]:
        table.said.tell_gpu(table.current, "mig", PERSISTENCE.get(cells[2].lower()))
    return True


def _read_first_row(said: Said, cells: list[str], found: re.Match[str]) -> int:
    index = int(found[1])
    said.tell_gpu(index, "name", found[2] if is_gpu_name(found[2]) else None)
    said.gpus.setdefault(index, {})
    said.tell_gpu(index, "persistence", PERSISTENCE.get((found[3] or "").lower()))
    said.tell_gpu(index, "pci_bus", bus[0] if (bus := BUS.search(cells[1])) else None)
    errors = cells[2].split(" ")[0]
    if errors.isdigit():
        said.tell_gpu(index, "ecc", value=True)
        said.tell_gpu(index, "ecc_uncorrected", int(errors[:9]))
    elif errors in ("Off", "On"):
        said.tell_gpu(index, "ecc", errors == "On")
    return index


def _read_second_row(said: Said, index: int, cells: list[str]) -> None:
    """`N/A   27C    P0   31W / 400W | 0MiB / 81920MiB | N/A   Default`."""
    said.tell_gpu(index, "temperature", parse_number(find(r"(\d{1,3})C\b", cells[0])))
    power = re.search(r"(\d{1,4})W\s*/\s*(\d{1,4})W", cells[0])
    if power:
        said.tell_gpu(index, "power", float(power[1]))
        said.tell_gpu(index, "power_limit", float(power[2]))
    used, _, total = cells[1].partition("/")
    said.tell_gpu(index, "memory_used", parse_size(used))
    said.tell_gpu(index, "memory_total", parse_size(total))
    lowered = cells[2].lower()
    said.tell_gpu(
        index, "compute_mode", next((mode for word, mode in COMPUTE_MODES.items() if word in lowered), None)
    )


def _read_process(table: _Table, words: list[str]) -> bool:
    """`0   N/A  N/A   4242   C   python   10240MiB`, before the R450 drivers without the two N/A."""
    kind = next((place for place, word in enumerate(words[:6]) if word in PROCESS_KINDS), 0)
    if not kind or not words[0].isdecimal() or not words[kind - 1].isdecimal():
        return False
    table.part = "processes"
    process = Process(int(words[kind - 1][:9]), PROCESS_KINDS[words[kind]], parse_size(words[-1]))
    table.processes.setdefault(int(words[0][:3]), []).append(process)
    return True


def _tell_mig(table: _Table, *, none_made: bool) -> None:
    for index, facts in table.said.gpus.items():
        if index in table.mig:
            facts.pop("mig", None)
            table.said.tell_gpu(index, "mig", value=True, note="instances: " + ", ".join(table.mig[index]))
        elif none_made and (fact := facts.get("mig")) and fact.value:
            facts.pop("mig")
            table.said.tell_gpu(index, "mig", value=True, note="no MIG devices found")


def parse_failures(lines: list[Line]) -> Said | None:
    """nvidia-smi that fails, as the NVML error behind it; the lines stay, since they are the symptom too.

    `Failed to initialize NVML: Driver/library version mismatch` -> `NVML error 18: Driver/library version mismatch`
    """
    said = Said("nvidia-smi")
    found = False
    for line in lines:
        text = line.text
        for words, code, meaning in FAILURES:
            if words in text:
                bus = find(r"GPU ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)", text)
                note = f"NVML error {code}: {meaning}"
                said.fail("lost" if code == 15 else "gpus", f"{note} (GPU {bus})" if bus else note)
                found = True
                break
        if text.startswith("No devices were found"):
            said.deny("gpus", "nvidia-smi: No devices were found")
            found = True
        elif "nvidia-smi" in text and ("command not found" in text or ": not found" in text):
            said.deny("gpus", "nvidia-smi is not installed")
            found = True
        if library := find(r"NVML library version: (\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)", text):
            said.tell("driver.library", library)
            found = True
    return said if found else None


def parse_kernel_log(lines: list[Line]) -> Said | None:
    """The driver's own lines in the kernel log and in /proc/driver/nvidia/version.

    ```
    NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.
    NVRM: API mismatch: the client has the version 550.144.03, but
    NVRM: this kernel module has the version 535.183.01.  Please
    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
    ```
    """
    said = Said("dmesg/NVRM")
    found = False
    for line in lines:
        text = line.text
        if "NVRM" not in text:
            continue
        found = True
        if "NVRM version:" in text or "loading NVIDIA UNIX" in text:
            said.tell(
                "driver.version",
                find(r"Kernel Module[ a-z]{0,12}(?:x86_64|aarch64|  )?\s*(\d{2,4}\.\d+(?:\.\d+)?)", text),
            )
            said.tell("driver.module", "open" if "Open" in text else "proprietary")
            if "NVRM version:" in text:
                said.lines.add(line.number)
        said.tell("driver.library", find(r"the client has the version (\d{2,4}\.\d+(?:\.\d+)?)", text))
        said.tell("driver.version", find(r"this kernel module has the version (\d{2,4}\.\d+(?:\.\d+)?)", text))
        if re.search(r"Xid \(PCI:[^)]{4,20}\): 79\b|fallen off the bus", text):
            bus = find(r"PCI:([0-9A-Fa-f:.]{7,16})", text) or find(r"GPU ([0-9A-Fa-f:.]{7,16})", text)
            said.fail("lost", f"NVML error 15: GPU is lost (Xid 79{', GPU ' + bus if bus else ''})")
    return said if found else None
