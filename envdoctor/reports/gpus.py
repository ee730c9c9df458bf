"""GPU names in a paste: what stands for a GPU, its list, its topology, and what follows from its name."""

from __future__ import annotations

import re

from envdoctor.core.records import NvLink
from envdoctor.reports.section import Line, Said, find

BRANDS = re.compile(
    r"NVIDIA|Tesla|GeForce|Quadro|\bRTX\b|\bGTX\b|TITAN|GRID|Orin|Xavier|Graphics Device|CMP "
    r"|\b(?:[AHBTLVPK]\d{1,3}S?|GH200|GB10|GB[23]00|A10G|L40S|V100S|MX\d{3})(?:\b|-)",
    re.IGNORECASE,
)
OTHER_BRANDS = re.compile(
    r"\bamd\b|radeon|\bintel\b|\barc\b|\bapple\b|\bm[1-5] (?:max|pro|ultra)|ascend|\bmi\d{2,3}", re.IGNORECASE
)  # an Arc A770 is no A-something of NVIDIA's
GPU_LINE = re.compile(r"GPU (\d{1,2}(?:,\d{1,2}){0,63}): ([^|=]{2,80}?)\s*(?:\(UUID: ([^)]{4,60})\)|$)")
CAPABILITY_LINE = re.compile(r"GPU (\d{1,2}(?:,\d{1,2}){0,63}) Compute Capability: (\d{1,2}\.\d)\b")
MIG_LINE = re.compile(r"MIG (\d{1,2}[cg]\.[\w.+]{2,20})\s+Device\s+(\d{1,2}):")
INLINE = re.compile(r"(?=GPU \d{1,2}: )")


def parse_gpu_list(lines: list[Line], kind: str) -> Said:
    """Names by index, as `nvidia-smi -L`, collect_env and sglang's check_env print them.

    ```
    GPU 0: NVIDIA H200 (UUID: GPU-b54fd2a5-...)
      MIG 1g.18gb     Device  0: (UUID: MIG-...)
    GPU 1,2: NVIDIA H200
    GPU 1,2 Compute Capability: 9.0
    ```
    """
    said = Said(kind)
    instances: dict[int, list[str]] = {}
    last = 0
    for line in lines:
        if "GPU " not in line.text and "MIG " not in line.text:
            continue
        start = line.text.find("GPU ")
        before = line.text[:start].strip(" -*").rstrip(": ").lower()
        if start > 0 and before not in ("gpu models and configuration", "gpu", "gpus", "gpu type"):
            start = 0 if line.text.startswith("GPU ") else -1
        if found := CAPABILITY_LINE.match(line.text):
            for index in found[1].split(","):
                said.tell_gpu(int(index), "compute_capability", found[2])
            said.lines.add(line.number)
        elif found := MIG_LINE.match(line.text.lstrip("- ")):
            instances.setdefault(last, []).append(found[1])
            said.lines.add(line.number)
        elif start >= 0:
            for part in INLINE.split(line.text[start:]):
                last = _add_gpus(said, part.strip(), line.number, last)
    for index, names in instances.items():
        said.tell_gpu(index, "mig", True, "instances: " + ", ".join(names))
    return said


def _add_gpus(said: Said, text: str, number: int, last: int) -> int:
    """The GPUs that one entry names; the index of the last one."""
    found = GPU_LINE.match(text)
    if not found or not is_gpu_name(found[2]):
        return last
    said.lines.add(number)
    for index in (int(each) for each in found[1].split(",")):
        said.tell_gpu(index, "name", clean_name(found[2]))
        if found[3] and found[3].startswith("GPU-"):
            said.tell_gpu(index, "uuid", found[3])
        last = index
    return last


def is_gpu_name(text: str) -> bool:
    """Whether a text may be an NVIDIA GPU's name, and no message about one."""
    message = re.search(r"\berror|out of memory|\bGiB\b|allocat|process|capability", text)
    return bool(BRANDS.search(text)) and not message and not OTHER_BRANDS.search(text)


def clean_name(text: str) -> str:
    """The name alone: `NVIDIA H200 (...)` is NVIDIA H200."""
    return re.sub(r"\s*\((?:\.\.\.|UUID[^)]*)\)$", "", text.strip(" -*`,;")).strip()


def parse_gpu_phrase(text: str) -> list[str]:
    """The names that people and tools write for one or several GPUs.

    `8x NVIDIA H100 80GB HBM3`, `NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-40GB`, `RTX 3090 * 2`,
    `NVIDIA A100, 40960 MiB` -> one name for each
    """
    count = 1
    found = re.match(r"(\d{1,2})\s?[xX\u00d7*]\s?(?=[A-Za-z])", text)
    if found:
        count, text = int(found[1]), text[found.end() :]
    elif found := re.search(r"\s?[xX\u00d7*]\s?(\d{1,2})$", text):
        count, text = int(found[1]), text[: found.start()]
    parts = [re.sub(r"\s*\(\d[^)]*\)$|,? \d+ ?[GM]i?B( VRAM)?$", "", part.strip()) for part in text.split(",")]
    names = [clean_name(part) for part in parts if 2 < len(part) < 70 and is_gpu_name(part)]
    return names * min(count, 64) if len(names) == 1 else names


def compute_capability(name: str) -> str | None:
    """What the knowledge table says of a name; also of one that nvidia-smi cut short with dots."""
    from envdoctor.knowledge.gpus import compute_capability as look_up

    return look_up(name.removesuffix("...").strip())


LINK = re.compile(r"(?:NV\d{1,2}|SYS|NODE|PHB|PXB|PIX|X|C2C|OK|NS)$")


LEGEND = re.compile(r"Legend:$|(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= ")


def parse_topology(lines: list[Line]) -> Said:
    """The links of `nvidia-smi topo -m`, which vLLM and sglang print too; the row stays as the note.

    ```
            GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
    GPU0     X      NV18    NODE    0-47            0
    GPU1    NV18     X      NODE    0-47            0
    ```
    """
    said = Said("nvidia-smi topo")
    for line in lines:
        if not (line.text.startswith(("GPU", "NIC", "X ", "SYS ", "NODE", "PHB", "PXB", "PIX", "NV#", "Legend:"))):
            continue
        cells = line.text.split()
        if LEGEND.match(line.text) or cells[:2] == ["GPU0", "GPU1"]:
            said.lines.add(line.number)
            continue
        index = find(r"^GPU(\d{1,2})$", cells[0])
        links = [cell for cell in cells[1:65] if LINK.match(cell)]
        if not re.fullmatch(r"(?:GPU|NIC)\d{1,2}", cells[0]) or "X" not in links:
            continue
        said.lines.add(line.number)
        bonded = [int(link[2:]) for link in links if link.startswith("NV")]
        if index and bonded:
            # Through NVSwitch all links reach every peer; in a mesh (DGX-1) each peer has its own.
            total = bonded[0] if len(set(bonded)) == 1 and (bonded[0] > 4 or len(bonded) == 1) else sum(bonded)
            said.tell_gpu(int(index), "nvlink", NvLink(total, total), " ".join(links))
    return said
