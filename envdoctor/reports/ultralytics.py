"""Parser for `yolo checks` of Ultralytics."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.collect_env import record_platform, record_python_version
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Line, Section

KEYS = (
    "OS", "Environment", "Python", "Install", "Path", "RAM", "Disk", "CPU", "CPU count", "GPU", "GPU count", "CUDA",
)  # fmt: skip
ROW = lazy_pattern(rf"({'|'.join(KEYS)})\s{{2,30}}(\S.{{0,200}})$")
OWN_KEYS = frozenset({"Environment", "Install"})  # which no other table has next to the rest
PACKAGE = lazy_pattern(
    r"([A-Za-z][\w.-]{1,40})\s{1,30}[\u2705\u274c]\s?(\d[\w.+!]{0,40}?)(?=[<>=!~]|\s|$)(?:[<>=!~].{0,200})?$"
)
GPU = lazy_pattern(r"(.{4,60}?), \d{3,6}Mi?B$")


def parse_ultralytics(lines: list[Line]) -> Section | None:
    """Parse the table of `yolo checks`.

    ```
    OS                  Windows-11-10.0.26100-SP0
    Python              3.13.3
    GPU                 NVIDIA GeForce RTX 4080 SUPER, 16376MiB
    CUDA                12.6

    torch               (a mark) 2.6.0+cu126>=1.8.0
    ```
    """
    section = Section("yolo checks")
    rows = [(line, match[1], match[2].strip()) for line in lines if (match := ROW.match(line.text))]
    marked = sum(PACKAGE.match(line.text) is not None for line in lines)
    is_table = {key for _, key, _ in rows} >= OWN_KEYS or (bool(rows) and marked > 1)
    for line, key, value in rows if is_table else ():
        _record_row(section, key, value)
        section.consumed.add(line.number)
    for line in lines:
        if is_table and (package := PACKAGE.match(line.text)):
            section.add_distribution(package[1], package[2])
            section.consumed.add(line.number)
    return section if section.facts or section.gpus or section.distributions else None


def _record_row(section: Section, key: str, value: str) -> None:
    if key == "OS":
        record_platform(section, value)
    elif key == "Python":
        record_python_version(section, value)
    elif key == "GPU" and (match := GPU.match(value)) and is_gpu_name(match[1]):
        section.set_gpu_fact(0, "name", match[1])
    elif key == "GPU count" and value.isdecimal():
        for index in range(1, min(int(value[:3]), 64) if 0 in section.gpus else 0):
            section.gpus.setdefault(index, dict(section.gpus[0]))
    elif key == "CUDA":  # torch.version.cuda if CUDA is available to torch, else None
        section.set_fact("stack.cuda_available", value != "None")
        section.set_fact("stack.torch.cuda", value if re.fullmatch(r"\d{1,2}\.\d{1,2}", value) else None)
