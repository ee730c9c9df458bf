"""Parser for the lines in which programs report torch and the GPU at their start: YOLO, kohya_ss, SD.Next.

The last banner counts: a log, and a text that shows two starts, ends with the present environment. The lines are not
consumed, because they are symptoms.
"""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import known
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Line, Section, is_version

GPU_NAME = r"(?P<gpu>[A-Z][\w /()-]{2,60}?)"
CAPABILITY = r"\(?(?P<major>\d{1,2})(?:\.|, ?)(?P<minor>\d)\)?"
CUDA_OF_TORCH = r"cuda=(?P<cuda>\d{1,2}\.\d)\b"
PYTHON_OF_YOLO = r"(?:Python-(?P<python>3\.\d{1,2}\.\d{1,2}) )?"
BANNERS = (
    # YOLOv5 v6.2-109-g23701ea Python-3.8.13 torch-1.12.1+cpu CPU
    # Ultralytics 8.3.40 Python-3.11.9 torch-2.5.1+cu121 CUDA:0 (NVIDIA GeForce RTX 3060, 12287MiB)
    (
        "torch",
        rf"{PYTHON_OF_YOLO}\btorch[- ](?P<torch>\d[\w.+]{{2,30}}) (?:CUDA:\d{{1,2}} \({GPU_NAME}, \d|CPU(?:\W|$))",
    ),
    # INFO     Torch 2.2.1+cpu
    ("Torch ", r"\bINFO\s{1,8}Torch (?P<torch>\d\.\d{1,2}\.[\w.+]{1,30})\s*$"),
    # Torch detected GPU: NVIDIA GeForce RTX 3090 VRAM 24150 Arch (8, 6) Cores 82
    (
        "Torch detected GPU: ",
        rf"Torch detected GPU: {GPU_NAME} VRAM [\d.]{{3,8}} ?(?:[MG]i?B)?(?:\s{{1,40}}Arch {CAPABILITY})?",
    ),
    # device=NVIDIA GeForce RTX 5090 n=1 arch=sm_90 capability=(12, 0) cuda=12.6 cudnn=90501 driver=576.02
    (
        "device=",
        rf"\bdevice={GPU_NAME} n=\d{{1,2}} (?:arch=\S{{3,12}} )?cap(?:ability)?={CAPABILITY} {CUDA_OF_TORCH}",
    ),
    # Platform: arch=AMD64 cpu=AMD64 Family 26 system=Windows release=Windows-10-10.0.22631-SP0 python=3.10.11
    ("system=", r"\bsystem=(?P<system>Windows|Linux)\s{1,40}release=\S{3,80}(?: python=(?P<python>3\.[\d.]{1,6}))?"),
)  # fmt: skip
PATTERNS = tuple((part, lazy_pattern(pattern, re.MULTILINE)) for part, pattern in BANNERS)
PATHS = {
    "torch": "stack.torch.version", "python": "stack.python_version", "cuda": "stack.torch.cuda",
    "system": "system.os",
}  # fmt: skip


def parse_startup_banners(lines: list[Line]) -> Section | None:
    """Parse the banners of programs in a log."""
    section = Section("log lines")
    text = "\n".join(line.text for line in lines)
    for part, pattern in PATTERNS:
        for match in pattern.finditer(text) if part in text else ():
            _record(section, match.groupdict())
    return section if section.facts or section.gpus else None


def _record(section: Section, found: dict[str, str | None]) -> None:
    for name, path in PATHS.items():
        value = found.get(name)
        if value and (name == "system" or is_version(value)):
            section.facts[path] = known(value, section.source)
    gpu = (found.get("gpu") or "").strip()
    if is_gpu_name(gpu) and not section.gpus:
        section.set_gpu_fact(0, "name", gpu)
        section.set_fact("stack.cuda_available", value=True)
        if found.get("major"):
            section.set_gpu_fact(0, "compute_capability", f"{found['major']}.{found['minor']}")
