"""Parsers for GPU names, GPU lists and the NVLink topology in pasted text."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import NvLink
from envdoctor.reports.section import Line, Section, first_group

BRANDS = lazy_pattern(
    r"NVIDIA|Tesla|GeForce|Quadro|\b[RG]TX(?:\b|(?=\d{3,4}))|TITAN|GRID|Orin|Xavier|Graphics Device|CMP "
    r"|\b(?:[345]0[5-9]0|20[678]0|10[5-8]0) ?(?:Ti|Super)\b"
    r"|\b(?:[AHBTLVPK]\d{1,3}S?|GH200|GB10|GB[23]00|A10G|L40S|V100S|MX\d{3})(?:\b|-)",
    re.IGNORECASE,
)
OTHER_BRANDS = lazy_pattern(
    r"\bamd\b|radeon|\bintel\b|\barc\b|\bapple\b|\bm[1-5] (?:max|pro|ultra)|ascend|\bmi\d{2,3}", re.IGNORECASE
)  # Intel Arc A770 matches the pattern of NVIDIA's A models
GPU_LINE = lazy_pattern(r"GPU (\d{1,2}(?:,\d{1,2}){0,63}): ([^|=]{2,80}?)\s*(?:\(UUID: ([^)]{4,60})\)|$)")
CAPABILITY_LINE = lazy_pattern(r"GPU (\d{1,2}(?:,\d{1,2}){0,63}) Compute Capability: (\d{1,2}\.\d)\b")
MIG_LINE = lazy_pattern(r"MIG (\d{1,2}[cg]\.[\w.+]{2,20})\s+Device\s+(\d{1,2}):")
ENTRY_START = lazy_pattern(r"(?=GPU \d{1,2}: )")


def parse_gpu_list(lines: list[Line], kind: str) -> Section:
    """Parse names by index, as printed by `nvidia-smi -L`, collect_env and sglang's check_env.

    ```
    GPU 0: NVIDIA H200 (UUID: GPU-b54fd2a5-...)
      MIG 1g.18gb     Device  0: (UUID: MIG-...)
    GPU 1,2: NVIDIA H200
    GPU 1,2 Compute Capability: 9.0
    ```
    """
    section = Section(kind)
    instances: dict[int, list[str]] = {}
    last = 0
    for line in lines:
        if "GPU " not in line.text and "MIG " not in line.text:
            continue
        start = line.text.find("GPU ")
        prefix = line.text[:start].strip(" -*").rstrip(": ").lower()
        if start > 0 and prefix not in ("gpu models and configuration", "gpu", "gpus", "gpu type"):
            start = 0 if line.text.startswith("GPU ") else -1
        if match := CAPABILITY_LINE.match(line.text):
            for index in match[1].split(","):
                section.set_gpu_fact(int(index), "compute_capability", match[2])
            section.consumed.add(line.number)
        elif match := MIG_LINE.match(line.text.lstrip("- ")):
            instances.setdefault(last, []).append(match[1])
            section.consumed.add(line.number)
        elif start >= 0:
            for part in ENTRY_START.split(line.text[start:]):
                last = _record_gpus(section, part.strip(), line.number, last)
    for index, names in instances.items():
        section.set_gpu_fact(index, "mig", True, "instances: " + ", ".join(names))
    _forget_other_vendors(section)
    return section


def _forget_other_vendors(section: Section) -> None:
    """Remove compute capabilities of GPUs that are not NVIDIA's."""
    if "gpus" in section.facts and not any("name" in gpu for gpu in section.gpus.values()):
        section.gpus.clear()


def _record_gpus(section: Section, text: str, number: int, last: int) -> int:
    """Record the GPUs of one entry. Returns the index of the last one."""
    match = GPU_LINE.match(text)
    if match and OTHER_BRANDS.search(match[2]):
        section.set_absent("gpus", f"no NVIDIA GPU, but {clean_name(match[2])}")
        section.consumed.add(number)
    if not match or not is_gpu_name(match[2]):
        return last
    section.consumed.add(number)
    for index in (int(part) for part in match[1].split(",")):
        section.set_gpu_fact(index, "name", clean_name(match[2]))
        if match[3] and match[3].startswith("GPU-"):
            section.set_gpu_fact(index, "uuid", match[3])
        last = index
    return last


def is_gpu_name(text: str) -> bool:
    """Whether a text can be the name of an NVIDIA GPU. Messages about GPUs are excluded."""
    message = re.search(r"\berror|out of memory|\bGiB\b|allocat|process|capability|CUDA [Vv]ersion|nvidia-smi", text)
    return bool(BRANDS.search(text)) and not message and not OTHER_BRANDS.search(text)


def clean_name(text: str) -> str:
    """The name without decoration: `NVIDIA H200 (...)` -> `NVIDIA H200`."""
    text = re.sub(r"(?<=\d)(?=Ti\b)", " ", text.strip(" -*`,;[]"))
    return re.sub(r"\s*\((?:\.\.\.|UUID[^)]*)\)$", "", text).strip()


# Numbers with a measure word: `8\u5f20A100`, `\u4e24\u5757 RTX 3090`, `4\u5361 A800`.
CHINESE_COUNT = lazy_pattern(r"(?:(\d{1,2})|([\u4e24\u56db\u516b]))\s?[\u5f20\u5757\u5361]\s?(?=[A-Za-z])")
CHINESE_NUMBERS = {"\u4e24": "2", "\u56db": "4", "\u516b": "8"}


def plain_count(text: str) -> str:
    """The text with `8x A100` for a Chinese number of GPUs."""
    return CHINESE_COUNT.sub(lambda match: f"{match[1] or CHINESE_NUMBERS[match[2]]}x ", text)


def parse_gpu_phrase(text: str) -> list[str]:
    """The GPU names in a phrase for one or several GPUs.

    `8x NVIDIA H100 80GB HBM3`, `NVIDIA A100-SXM4-40GB, NVIDIA A100-SXM4-40GB`, `RTX 3090 * 2`,
    `NVIDIA A100, 40960 MiB` -> one name for each
    """
    count, text = 1, plain_count(text)
    match = re.match(r"(\d{1,2})\s?[xX\u00d7*]\s?(?=[A-Za-z])", text)
    if match:
        count, text = int(match[1]), text[match.end() :]
    elif match := re.search(r"\s?[xX\u00d7*]\s?(\d{1,2})$", text):
        count, text = int(match[1]), text[: match.start()]
    parts = [re.sub(r"\s*\(\d[^)]*\)$|,? \d+ ?[GM]i?B( VRAM)?$", "", part.strip()) for part in text.split(",")]
    names = [clean_name(part) for part in parts if 2 < len(part) < 70 and is_gpu_name(part)]
    return names * min(count, 64) if len(names) == 1 else names


def record_gpu_names(section: Section, text: str) -> None:
    """Record the GPU names in a phrase, unless the section already has GPUs."""
    if not section.gpus:
        for index, name in enumerate(parse_gpu_phrase(text)):
            section.set_gpu_fact(index, "name", name)


TORCH_DEVICE = lazy_pattern(r"cuda:(\d{1,2}) (.{3,60}?)(?: : \w+)?$")


def record_torch_device(section: Section, text: str) -> bool:
    """Record a device as ComfyUI names it: `cuda:0 NVIDIA GeForce RTX 5070 Ti : cudaMallocAsync`, `mps`, `cpu`."""
    match = TORCH_DEVICE.match(text)
    if match and is_gpu_name(match[2]):
        section.set_gpu_fact(int(match[1]), "name", clean_name(match[2]))
    elif match or text in ("mps", "xpu:0"):
        section.set_absent("gpus", f"no NVIDIA GPU, but {match[2] if match else text}")
    elif text == "cpu":
        section.set_absent("gpus", "the only device is the CPU")
    else:
        return False
    return True


# The numbers that a name cut by nvidia-smi can have: `NVIDIA GeForce RTX 509...`, `NVIDIA RTX A60...`.
CUT_NUMBER = lazy_pattern(r"(?i)\b(?P<series>RTX A|RTX PRO |Quadro RTX |RTX |GTX )(?P<digits>\d{1,3})$")
NUMBERS = {
    "rtx a": ("2000", "4000", "4500", "5000", "5500", "6000"),
    "rtx pro ": ("2000", "4000", "4500", "5000", "6000"),
    "quadro rtx ": ("3000", "4000", "5000", "6000", "8000"),
    "rtx ": tuple(f"{first}0{third}0" for first in "2345" for third in "56789" if (first, third) != ("2", "9")),
    "gtx ": ("1010", "1030", "1050", "1060", "1070", "1080", "1630", "1650", "1660"),
}


def compute_capability(name: str) -> str | None:
    """The compute capability of a GPU name in the table; of a truncated one if all that begin so have the same."""
    from envdoctor.knowledge.gpus import compute_capability as lookup

    stem = name.removesuffix("...").strip()
    cut = CUT_NUMBER.search(stem) if stem != name.strip() else None
    if not cut:
        return lookup(stem)
    if cut["series"] == "RTX " and len(cut["digits"]) < 3 and "GeForce" not in stem:
        return None  # an RTX 5000 Ada or an RTX 5090
    numbers = (each for each in NUMBERS[cut["series"].lower()] if each.startswith(cut["digits"]))
    found = {lookup(stem[: cut.start("digits")] + number) for number in numbers}
    return found.pop() if len(found) == 1 else None


LINK_TYPE = lazy_pattern(r"(?:NV\d{1,2}|SYS|NODE|PHB|PXB|PIX|X|C2C|OK|NS)$")


LEGEND = lazy_pattern(r"Legend:$|(?:X|SYS|NODE|PHB|PXB|PIX|NV#)\s+= ")


def parse_topology(lines: list[Line]) -> Section:
    """Parse the links of `nvidia-smi topo -m`, which vLLM and sglang also print. The note holds the row.

    ```
            GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity
    GPU0     X      NV18    NODE    0-47            0
    GPU1    NV18     X      NODE    0-47            0
    ```
    """
    section = Section("nvidia-smi topo")
    for line in lines:
        if not (line.text.startswith(("GPU", "NIC", "X ", "SYS ", "NODE", "PHB", "PXB", "PIX", "NV#", "Legend:"))):
            continue
        cells = line.text.split()
        if LEGEND.match(line.text) or cells[:2] == ["GPU0", "GPU1"]:
            section.consumed.add(line.number)
            continue
        index = first_group(r"^GPU(\d{1,2})$", cells[0])
        links = [cell for cell in cells[1:65] if LINK_TYPE.match(cell)]
        if not re.fullmatch(r"(?:GPU|NIC)\d{1,2}", cells[0]) or "X" not in links:
            continue
        section.consumed.add(line.number)
        bonded = [int(link[2:]) for link in links if link.startswith("NV")]
        if index and bonded:
            # With NVSwitch all links reach every peer. In a mesh (DGX-1) each peer has its own links.
            total = bonded[0] if len(set(bonded)) == 1 and (bonded[0] > 4 or len(bonded) == 1) else sum(bonded)
            section.set_gpu_fact(int(index), "nvlink", NvLink(total, total), " ".join(links))
    return section
