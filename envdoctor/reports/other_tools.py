"""Parsers for other tools that list GPUs: rocm-smi, amd-smi, dcgmi, nvidia-container-cli."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.collect_env import record_python_version
from envdoctor.reports.gpus import TORCH_DEVICE, clean_name, is_gpu_name, record_torch_device
from envdoctor.reports.nvidia_smi import PCI_BUS_ID
from envdoctor.reports.preprocess import extract_command
from envdoctor.reports.section import Line, Section, dotted_version, first_group

AMD_HEADINGS = (
    "ROCm System Management Interface", "End of ROCm SMI Log", "AMD-SMI ", "ROCk module is loaded",
    "ROCk module version",
)  # fmt: skip
AMD_NAME = lazy_pattern(
    r"(?:Card [Ss]eries|Card model|Marketing Name|Market Name|MARKET_NAME|Device Name)\s*:\s*"
    r"(.*(?:AMD|Radeon|Instinct|gfx).*)$"
)
AMD_COMMAND = lazy_pattern(r"^(?:sudo )?(?:amd-smi|rocm-smi|rocminfo)\b")
AMD_ROW = lazy_pattern(
    r"\d{1,2}\s+(?:\d{1,2}\s+)?(?:\[0x|0x)[0-9a-f]{2,6}|GPU\[\d{1,2}\]\s*:|={20,}|[= ]{8,}\S.{0,60}[= ]{8,}$"
    r"|Device\s+(?:Node|\[Model)|GPU\s+Temp\s+|\(DID,"
)


def parse_amd_tools(lines: list[Line]) -> Section | None:
    """Parse rocm-smi, amd-smi and rocminfo. Their GPUs are not NVIDIA's, which is all that the rules need.

    ```
    ====================== ROCm System Management Interface ======================
    GPU[0]          : Card series:          AMD Instinct MI250X
    ```
    """
    section = Section("rocm-smi")
    found = False
    name = ""
    for line in lines:
        text = line.text
        if any(heading in text for heading in AMD_HEADINGS):
            found = True
        elif match := AMD_NAME.search(text):
            name, found = name or match[1].strip(" |\t")[:60], True
        elif AMD_COMMAND.search(extract_command(text)):
            found = True
        elif not (found and (AMD_ROW.match(text) or line.key in ("driver version", "gpu", "bdf", "uuid"))):
            continue
        section.consumed.add(line.number)
    if not found:
        return None
    section.set_absent("gpus", f"no NVIDIA GPU, but {name or 'GPUs of AMD (rocm-smi)'}")
    return section


DCGM_NAME = lazy_pattern(r"\|\s*(\d{1,2})\s*\|\s*Name: (.{1,60}?)\s*\|$")
DCGM_FIELD = lazy_pattern(r"(?:\|\s*\|\s*)?(PCI Bus ID|Device UUID): (\S{8,60})(?:\s*\|)?$")
DCGM_DIAG = lazy_pattern(r"\| (?:DCGM Version|GPU Device IDs Detected) |\| [^|]{0,40}\| (?:GPU\d+: )?(?:Pass|Skip)\b")
DCGM_DIAG_START = lazy_pattern(r"Successfully ran diagnostic for group|\| Diagnostic\s+\| Result\s+\|")


def parse_dcgmi(lines: list[Line]) -> Section | None:
    """Parse `dcgmi discovery -l`.

    ```
    | 0      | Name: NVIDIA H100 80GB HBM3                                          |
    |        | PCI Bus ID: 00000000:4C:00.0                                         |
    |        | Device UUID: GPU-d6a2c177-4cd8-8d01-0310-79f2720f37de                |
    ```

    Without the table: `GPU ID: 0`, and below it `Name: Quadro RTX 5000`. Of `dcgmi diag` the driver is read, and its
    tests that passed or were skipped are no error lines.
    """
    section = Section("dcgmi discovery")
    index = -1
    for line in lines:
        if match := DCGM_NAME.match(line.text) if line.text[0] == "|" else None:
            index = int(match[1])
            section.gpus.setdefault(index, {})
            section.set_gpu_fact(index, "name", clean_name(match[2]) if is_gpu_name(match[2]) else None)
        elif line.key == "gpu id" and line.value.isdecimal():
            index = int(line.value[:2])
        elif index >= 0 and line.key == "name" and is_gpu_name(line.value):
            section.set_gpu_fact(index, "name", clean_name(line.value))
        elif index >= 0 and (match := DCGM_FIELD.match(line.text)):
            section.set_gpu_fact(index, "pci_bus" if match[1] == "PCI Bus ID" else "uuid", match[2])
        elif driver := first_group(r"^\| Driver Version Detected\s+\| (\d{3}\.[\d.]{2,12})", line.text):
            section.kind = "dcgmi diag"
            section.set_fact("driver.version", driver)
        elif DCGM_DIAG_START.match(line.text):
            section.kind = "dcgmi diag"
        elif "Device Information" not in line.text and not DCGM_DIAG.match(line.text):
            continue
        section.consumed.add(line.number)
    return section if section.gpus or section.facts or section.kind == "dcgmi diag" else None


GPUSTAT_HEADER = lazy_pattern(
    r"\S{1,60}\s+[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\s+(\d{3}\.[\d.]{2,12})$"
)
GPUSTAT_ROW = lazy_pattern(r"\[(\d{1,2})\] ([^|]{4,60}?)\s*\|.*\d+ / \d+ MB")


def parse_gpustat(lines: list[Line]) -> Section | None:
    """Parse gpustat.

    ```
    node7  Tue Aug  5 10:00:00 2025  550.127.05
    [0] NVIDIA RTX A6000 | 45C,   0 % |     3 / 49140 MB |
    ```
    """
    section = Section("gpustat")
    for line in lines:
        if (match := GPUSTAT_ROW.match(line.text)) and is_gpu_name(match[2]):
            section.set_gpu_fact(int(match[1]), "name", clean_name(match[2]))
        elif match := GPUSTAT_HEADER.match(line.text):
            section.set_fact("driver.version", match[1])
        else:
            continue
        section.consumed.add(line.number)
    return section if section.gpus else None


PCI_DEVICE = lazy_pattern(
    r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d (?:VGA compatible|3D|Display) controller(?: \[\d{4}\])?: "
    r"NVIDIA Corporation \S{2,20} \[([^\]]{3,60})\]"
)
CUDA_DEVICE = lazy_pattern(r"([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d) (\d{1,2}): (.{4,60}?) \[(\d{2,3})\]")


def parse_device_lists(lines: list[Line]) -> Section | None:
    """Parse `nvidia-container-cli info`, and the diagnostic file of a launcher of ComfyUI.

    ```
    NVRM version:   535.113.01                  |  CUDA Driver:
    CUDA version:   12.2                        |    Devices:
    Device Index:   0                           |      00000000:09:00.0 0: NVIDIA GeForce RTX 2080 Ti [75] 22 GB
    Model:          NVIDIA GeForce RTX 4090     |
    Architecture:   8.9                         |
    ```
    """
    section = Section("nvidia-container-cli info")
    index = -1
    for line in lines:
        if line.key == "nvrm version" and re.match(r"\d{3}\.\d", line.value):
            section.set_fact("driver.version", line.value.split()[0])
        elif line.key == "cuda version" and "driver.version" in section.facts and index < 0:
            section.set_fact("driver.cuda", first_group(r"^(\d{1,2}\.\d{1,2})", line.value))
        elif line.key == "device index" and line.value.isdecimal():
            index = int(line.value[:2])
        elif index >= 0 and line.key == "model" and is_gpu_name(line.value):
            section.set_gpu_fact(index, "name", clean_name(line.value))
        elif index >= 0 and line.key == "architecture" and re.fullmatch(r"\d{1,2}\.\d", line.value):
            section.set_gpu_fact(index, "compute_capability", line.value)
        elif index >= 0 and line.key == "bus location" and PCI_BUS_ID.match(line.value):
            section.set_gpu_fact(index, "pci_bus", line.value)
        elif (match := CUDA_DEVICE.match(line.text)) and is_gpu_name(match[3]):
            section.kind = "device list"
            section.set_gpu_fact(int(match[2]), "name", clean_name(match[3]))
            section.set_gpu_fact(int(match[2]), "compute_capability", dotted_version(match[4]))
            section.set_gpu_fact(int(match[2]), "pci_bus", match[1])
        elif not (index >= 0 and line.key in ("device minor", "brand", "gpu uuid")):
            continue
        section.consumed.add(line.number)
    return section if section.gpus else None


OTHER_DISPLAY = lazy_pattern(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d (?:VGA compatible|3D|Display) controller")
NO_PCI_GPU = "lspci lists no NVIDIA GPU"


def parse_lspci(lines: list[Line]) -> Section | None:
    """Parse `01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)`."""
    section = Section("lspci")
    others = 0  # display controllers of other vendors below the command
    for line in lines:
        others += bool(OTHER_DISPLAY.match(line.text)) and "NVIDIA" not in line.text
        if line.text.endswith("(rev ff)"):  # a device that does not respond: a symptom
            continue
        match = PCI_DEVICE.match(line.text) if "NVIDIA Corporation" in line.text else None
        if match and is_gpu_name(match[1]):
            section.set_gpu_fact(len(section.gpus), "name", clean_name(match[1]))
            section.consumed.add(line.number)
    text = "\n".join(line.text for line in lines)
    if others and "NVIDIA Corporation" not in text and re.search(r"\blspci\b", text):
        section.set_absent("gpus", NO_PCI_GPU)
    return section if section.gpus or section.facts else None


def parse_comfyui_log(lines: list[Line]) -> Section | None:
    """Parse the start of ComfyUI's log.

    ```
    Device: cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync
    ** Platform: Windows
    ** Python executable: K:\\ComfyUI\\python_embeded\\python.exe
    ```
    """
    section = Section("ComfyUI log")
    for line in lines:
        if (line.key == "device" and line.value.startswith(("cuda:", "mps", "cpu", "xpu"))) or (
            line.key == "name" and TORCH_DEVICE.match(line.value)  # in the JSON of its server
        ):
            if not record_torch_device(section, line.value):
                continue
        elif line.key == "comfyui version" and section.add_distribution("comfyui", line.value):
            pass
        elif line.text.startswith("** ") and line.key == "platform":
            section.set_fact("system.os", line.value if line.value in ("Windows", "Darwin") else None)
        elif line.text.startswith("** ") and line.key == "python executable":
            section.set_fact("stack.python", line.value if "python" in line.value.lower() else None)
        elif line.text.startswith("** ") and line.key == "python version":
            record_python_version(section, line.value)
        else:
            continue
        section.consumed.add(line.number)
    return section if section.facts or section.gpus else None
