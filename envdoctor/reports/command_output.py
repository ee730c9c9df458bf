"""Parsers for the output of nvcc, gcc, uname, os-release, ldd, free, df and ulimit, and for fields of issue forms."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Filesystem
from envdoctor.reports.collect_env import record_wsl
from envdoctor.reports.gpus import record_gpu_names
from envdoctor.reports.preprocess import extract_command
from envdoctor.reports.section import Line, Section, first_group, parse_number, parse_size


def parse_nvcc(lines: list[Line]) -> Section | None:
    """Parse `nvcc --version`, `which nvcc` and `gcc --version`.

    ```
    Cuda compilation tools, release 11.5, V11.5.119
    /usr/local/cuda/bin/nvcc
    gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
    ```
    """
    section = Section("nvcc --version")
    for line in lines:
        text = line.text
        if text.startswith(("Cuda compilation tools", "nvcc: Cuda compilation tools")):
            version = first_group(r"V(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)", text) or first_group(
                r"release (\d{1,2}\.\d{1,2})", text
            )
            section.set_fact("cuda.nvcc_version", version)
        elif re.fullmatch(r"/[\w./+-]{1,120}/nvcc", text):
            section.set_fact("cuda.nvcc", text)
        elif "nvcc" in text and re.search(r"nvcc[:'\"]? ?(?:command not found|: not found|not found$)", text):
            section.set_absent("cuda.nvcc", text[:120])
            section.set_absent("cuda.nvcc_version", text[:120])
            continue  # keep the line: it is also an error message
        elif match := re.match(r"((?:[\w-]{1,30}-)?g?cc(?:-\d{1,2})? \([^)]{2,80}\) \d{1,2}\.\d{1,2}.*)", text):
            section.set_fact("cuda.compiler", match[1][:100])
        elif not text.startswith(("nvcc: NVIDIA (R) Cuda", "Built on ", "Build cuda_", "Copyright (c) 20")):
            continue
        section.consumed.add(line.number)
    return section if section.facts else None


# The machine as conda and pixi describe it: `__glibc=2.35=0`, `__cuda=12.4=0`.
VIRTUAL_PACKAGE = lazy_pattern(r"(?:^|[:\s])__(glibc|linux|cuda|osx|win)=(\d{1,2}[\d.]{1,20})(?:=\w{1,20})?$")
VIRTUAL_PACKAGES = {"glibc": "system.glibc", "linux": "system.kernel", "cuda": "driver.cuda"}
OS_OF_CONDA = {"osx": "macOS ", "win": "Windows "}


def parse_system_commands(lines: list[Line]) -> Section | None:
    """Parse uname, os-release, ldd, sw_vers, and the virtual packages of `conda info` and `pixi info`.

    ```
    Linux vm 6.8.0-45-generic #1 SMP PREEMPT_DYNAMIC x86_64 x86_64 x86_64 GNU/Linux
    PRETTY_NAME="Ubuntu 24.04.3 LTS"
    ldd (Ubuntu GLIBC 2.39-0ubuntu8.9) 2.39
    ```
    """
    section = Section("system commands")
    for line in lines:
        text = line.text
        if match := re.match(r"Linux \S{1,64} (\d\.\d{1,3}[\w.+-]{1,60}) #\d", text):
            section.set_fact("system.kernel", match[1])
            section.set_fact("system.architecture", first_group(r"\b(x86_64|aarch64|ppc64le)\b", text))
            record_wsl(section, match[1])
        elif name := first_group(
            r"^PRETTY_NAME=\"?([^\"]{2,80})|^Description:\s+((?:Ubuntu|Debian|CentOS|Red Hat).{1,60})$", text
        ):
            section.set_fact("system.os", name)
        elif match := re.match(r"ldd \([^)]{2,60}\) (\d\.\d{1,3})$", text):
            section.set_fact("system.glibc", match[1])
        elif match := VIRTUAL_PACKAGE.search(text):
            path = VIRTUAL_PACKAGES.get(match[1], "system.os")
            section.set_fact(path, OS_OF_CONDA.get(match[1], "") + match[2])
        elif match := re.match(r"ProductVersion:\s+(\d{2}\.[\d.]{1,6})$", text):
            section.set_fact("system.os", f"macOS {match[1]}")
        elif not re.match(
            r"(?:NAME|VERSION|VERSION_ID|VERSION_CODENAME|ID|ID_LIKE|HOME_URL|LOGO|UBUNTU_CODENAME)=", text
        ):
            continue
        section.consumed.add(line.number)
    return section if section.facts else None


# Fact, pattern, and the shift that converts the unit of ulimit to items or bytes.
LIMITS = (
    ("limits.open_files", lazy_pattern(r"(?:open files\s+\(-n\)|nofiles)\s+(\d{1,12}|unlimited)$"), 0),
    ("limits.processes", lazy_pattern(r"(?:max user processes\s+\(-u\)|process)\s+(\d{1,12}|unlimited)$"), 0),
    (
        "limits.locked_memory",
        lazy_pattern(r"(?:max locked memory\s+\(kbytes, -l\)|locked memory\(kbytes\))\s+(\d{1,12}|unlimited)$"),
        10,
    ),
    ("limits.stack", lazy_pattern(r"stack(?: size\s+\(kbytes, -s\)|\(kbytes\))\s+(\d{1,12}|unlimited)$"), 10),
)
ULIMIT_OPTIONS = {
    "-n": ("limits.open_files", 0),
    "-u": ("limits.processes", 0),
    "-l": ("limits.locked_memory", 10),
    "-s": ("limits.stack", 10),
}
OTHER_LIMITS = lazy_pattern(
    r"(?:[a-z -]{4,28}\((?:[a-z0-9 -]{2,20}, )?-[a-zA-Z]\)|(?:time|file|data|coredump|memory|vmemory|locks|rtprio)"
    r"(?:\([a-z]{4,8}\))?)\s+(?:\d+|unlimited)$"
)


def parse_ulimit(lines: list[Line]) -> Section | None:
    """Parse `ulimit -a` of bash, ksh and dash, and `ulimit -n` with the number on the next line.

    ```
    max locked memory           (kbytes, -l) 8192
    open files                          (-n) 1024
    ```
    """
    section = Section("ulimit -a")
    pending: tuple[str, int] | None = None
    for line in lines:
        text = line.text
        if pending and re.fullmatch(r"\d{1,12}|unlimited", text):
            _record_limit(section, *pending, text)
            section.consumed.add(line.number)
            pending = None
            continue
        if "ulimit -" in text:
            command = extract_command(text) or text
            pending = ULIMIT_OPTIONS.get(command.removeprefix("ulimit ").strip())
            continue
        pending = None
        for path, pattern, shift in LIMITS:
            if text[0] in "omnlsp" and (match := pattern.match(text)):
                _record_limit(section, path, shift, match[1])
                section.consumed.add(line.number)
                break
        else:
            if section.facts and OTHER_LIMITS.match(text):
                section.consumed.add(line.number)
    return section if section.facts else None


def _record_limit(section: Section, path: str, shift: int, text: str) -> None:
    section.set_fact(path, -1 if text == "unlimited" else int(text) << shift)


# Mount points that a GPU stack writes to -> the names that the rules use. Others, such as /boot, are ignored.
MOUNT_POINTS = {
    "/dev/shm": "shm", "/tmp": "tmp", "/home": "home", "/root": "home", "/": "root", "/workspace": "workspace",
    "/data": "data", "/scratch": "scratch",
}  # fmt: skip


DF_ROW = lazy_pattern(
    r"(\S{1,80})\s+([\d.]+[KMGTP]?i?)\s+[\d.]+[KMGTP]?i?\s+([\d.]+[KMGTP]?i?)\s+\d{1,3}%\s+(/\S{0,80})$"
)
TABLE_HEADING = lazy_pattern(r"Filesystem\s+(?:Size|1K-blocks)|total\s+used\s+free|Swap: ")


# Of top: `MiB Mem : 128686.2 total, 571.3 free, ...`, `MiB Swap: 0.0 total, 0.0 free, 0.0 used. 524.7 avail Mem`.
TOP_MEMORY = lazy_pattern(
    r"([KMGT])iB Mem ?: *([\d.]{1,12}) total, *([\d.]{1,12}) free(?:.{0,80}?([\d.]{1,12}) avail)?"
)
TOP_SWAP = lazy_pattern(r"([KMGT])iB Swap: .{0,80}?([\d.]{1,12}) avail Mem")


def parse_disk_and_memory(lines: list[Line]) -> Section | None:
    """Parse `df -h` and `free -h`, and `free -g` if the command line is in the text.

    ```
    Filesystem      Size  Used Avail Use% Mounted on
    tmpfs            64M     0   64M   0% /dev/shm
    Mem:           125Gi        12Gi       100Gi       1.0Gi        13Gi       112Gi
    ```
    """
    section = Section("df and free")
    filesystems: dict[str, Filesystem] = {}
    unit = ""
    for line in lines:
        text = line.text
        if match := re.search(r"\bfree -([hgmk])\b", text):
            unit = match[1] if match[1] != "h" else ""
        row = DF_ROW.match(text)
        if row:
            in_kib = row[2].isdecimal() and row[2] != "0"  # df without -h counts KiB
            total, free = parse_size(row[2], "k" if in_kib else ""), parse_size(row[3], "k" if in_kib else "")
            if row[4] in MOUNT_POINTS and total is not None and free is not None:
                filesystems.setdefault(
                    MOUNT_POINTS[row[4]], Filesystem(path=row[4], total=total, free=free, kind=row[1])
                )
        elif text.startswith("Mem:") and len(words := text.split()) >= 7:
            if unit or not words[1].isdecimal():
                section.set_fact("memory.total", parse_size(words[1], unit))
                section.set_fact("memory.available", parse_size(words[6], unit))
        elif match := TOP_MEMORY.match(text):
            section.set_fact("memory.total", parse_size(match[2], match[1]))
            section.set_fact("memory.available", parse_size(match[4], match[1]) if match[4] else None)
        elif (match := TOP_SWAP.match(text)) and "memory.total" in section.facts:
            section.set_fact("memory.available", parse_size(match[2], match[1]))
        elif not TABLE_HEADING.match(text):
            continue
        section.consumed.add(line.number)
    section.set_fact("storage.places", filesystems or None)
    return section if section.facts else None


# A further field on the line: `GPU: RTX 5070 | torch: 2.6.0`, `Hardware: A100, Software: PyTorch 2.6.0`.
SECOND_FIELD = lazy_pattern(r"(?:,| \|| /) ?[A-Za-z][\w ]{1,16}: ")


def parse_issue_form(lines: list[Line]) -> Section | None:
    """Parse fields of issue forms: `OS: Ubuntu 22.04`, `- GPU: 8x H100`, `NVIDIA driver: 535.129.03`.

    These have the lowest precedence of all sections.
    """
    section = Section("notes")
    for line in lines:
        key, value = line.key.strip("` *"), line.value.strip("* `")
        if not key or not value or len(value) > 120 or SECOND_FIELD.search(value):
            continue
        if key in ("os", "operating system") and re.match(
            r"Ubuntu|Debian|CentOS|RHEL|Red Hat|Rocky|Windows|macOS|Arch|Fedora|WSL", value
        ):
            section.set_fact("system.os", value.partition(",")[0])
        elif key in ("nvidia driver", "driver", "driver version", "gpu driver", "nvidia driver version"):
            section.set_fact("driver.version", first_group(r"^v?(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\b", value))
        elif key in ("gpu", "gpus", "gpu model", "gpu type", "graphics card", "hardware") and not section.gpus:
            record_gpu_names(section, value)
        elif key in ("python", "python version"):
            section.set_fact("stack.python_version", first_group(r"^v?(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\w.])", value))
        elif key in ("ram", "system memory", "host memory") and parse_number(value):
            section.set_fact("memory.total", parse_size(value) if re.search(r"[GM]i?B", value) else None)
        else:
            continue
        section.consumed.add(line.number)
    return section if section.facts or section.gpus else None
