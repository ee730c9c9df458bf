"""What common commands print: nvcc, gcc, uname, os-release, ldd, free, df, ulimit, and Python's own answers."""

from __future__ import annotations

import re

from envdoctor.core.records import Filesystem
from envdoctor.reports.collect_env import tell_python, tell_wsl
from envdoctor.reports.layout import command_of
from envdoctor.reports.section import Line, Said, find, is_version, parse_number, parse_size


def parse_nvcc(lines: list[Line]) -> Said | None:
    """`nvcc --version`, `which nvcc` and `gcc --version`.

    ```
    Cuda compilation tools, release 11.5, V11.5.119
    /usr/local/cuda/bin/nvcc
    gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
    ```
    """
    said = Said("nvcc --version")
    for line in lines:
        text = line.text
        if text.startswith(("Cuda compilation tools", "nvcc: Cuda compilation tools")):
            version = find(r"V(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)", text) or find(r"release (\d{1,2}\.\d{1,2})", text)
            said.tell("cuda.nvcc_version", version)
        elif re.fullmatch(r"/[\w./+-]{1,120}/nvcc", text):
            said.tell("cuda.nvcc", text)
        elif "nvcc" in text and re.search(r"nvcc[:'\"]? ?(?:command not found|: not found|not found$)", text):
            said.deny("cuda.nvcc", text[:120])
            said.deny("cuda.nvcc_version", text[:120])
            continue  # an error line too
        elif found := re.match(r"((?:[\w-]{1,30}-)?g?cc(?:-\d{1,2})? \([^)]{2,80}\) \d{1,2}\.\d{1,2}.*)", text):
            said.tell("cuda.compiler", found[1][:100])
        elif not text.startswith(("nvcc: NVIDIA (R) Cuda", "Built on ", "Build cuda_", "Copyright (c) 20")):
            continue
        said.lines.add(line.number)
    return said if said.facts else None


def parse_system(lines: list[Line]) -> Said | None:
    """uname, os-release and ldd.

    ```
    Linux vm 6.8.0-45-generic #1 SMP PREEMPT_DYNAMIC x86_64 x86_64 x86_64 GNU/Linux
    PRETTY_NAME="Ubuntu 24.04.3 LTS"
    ldd (Ubuntu GLIBC 2.39-0ubuntu8.9) 2.39
    ```
    """
    said = Said("system commands")
    for line in lines:
        text = line.text
        if found := re.match(r"Linux \S{1,64} (\d\.\d{1,3}[\w.+-]{1,60}) #\d", text):
            said.tell("system.kernel", found[1])
            said.tell("system.architecture", find(r"\b(x86_64|aarch64|ppc64le)\b", text))
            tell_wsl(said, found[1])
        elif name := find(
            r"^PRETTY_NAME=\"?([^\"]{2,80})|^Description:\s+((?:Ubuntu|Debian|CentOS|Red Hat).{1,60})$", text
        ):
            said.tell("system.os", name)
        elif found := re.match(r"ldd \([^)]{2,60}\) (\d\.\d{1,3})$", text):
            said.tell("system.glibc", found[1])
        elif not re.match(
            r"(?:NAME|VERSION|VERSION_ID|VERSION_CODENAME|ID|ID_LIKE|HOME_URL|LOGO|UBUNTU_CODENAME)=", text
        ):
            continue
        said.lines.add(line.number)
    return said if said.facts else None


LIMITS = (
    ("limits.open_files", re.compile(r"(?:open files\s+\(-n\)|nofiles)\s+(\d{1,12}|unlimited)$"), 0),
    ("limits.processes", re.compile(r"(?:max user processes\s+\(-u\)|process)\s+(\d{1,12}|unlimited)$"), 0),
    (
        "limits.locked_memory",
        re.compile(r"(?:max locked memory\s+\(kbytes, -l\)|locked memory\(kbytes\))\s+(\d{1,12}|unlimited)$"),
        10,
    ),
    ("limits.stack", re.compile(r"stack(?: size\s+\(kbytes, -s\)|\(kbytes\))\s+(\d{1,12}|unlimited)$"), 10),
)
ULIMIT_OPTIONS = {"-n": ("limits.open_files", 0), "-u": ("limits.processes", 0), "-l": ("limits.locked_memory", 10),
                  "-s": ("limits.stack", 10)}  # fmt: skip
ULIMIT_OTHERS = re.compile(
    r"(?:[a-z -]{4,28}\((?:[a-z0-9 -]{2,20}, )?-[a-zA-Z]\)|(?:time|file|data|coredump|memory|vmemory|locks|rtprio)"
    r"(?:\([a-z]{4,8}\))?)\s+(?:\d+|unlimited)$"
)


def parse_limits(lines: list[Line]) -> Said | None:
    """`ulimit -a` of bash and of ksh or dash, and `ulimit -n` with the number below it.

    ```
    max locked memory           (kbytes, -l) 8192
    open files                          (-n) 1024
    ```
    """
    said = Said("ulimit -a")
    asked: tuple[str, int] | None = None
    for line in lines:
        text = line.text
        if asked and re.fullmatch(r"\d{1,12}|unlimited", text):
            _tell_limit(said, *asked, text)
            said.lines.add(line.number)
            asked = None
            continue
        if "ulimit -" in text:
            command = command_of(text) or text
            asked = ULIMIT_OPTIONS.get(command.removeprefix("ulimit ").strip())
            continue
        asked = None
        for path, pattern, shift in LIMITS:
            if text[0] in "omnlsp" and (found := pattern.match(text)):
                _tell_limit(said, path, shift, found[1])
                said.lines.add(line.number)
                break
        else:
            if said.facts and ULIMIT_OTHERS.match(text):
                said.lines.add(line.number)
    return said if said.facts else None


def _tell_limit(said: Said, path: str, shift: int, text: str) -> None:
    said.tell(path, -1 if text == "unlimited" else int(text) << shift)


# Mount points that a stack writes to, by the role that the rules know; boot, EFI and snap mounts are none.
ROLES = {"/dev/shm": "shm", "/tmp": "tmp", "/home": "home", "/root": "home", "/": "root", "/workspace": "workspace",
         "/data": "data", "/scratch": "scratch"}  # fmt: skip


DF_ROW = re.compile(
    r"(\S{1,80})\s+([\d.]+[KMGTP]?i?)\s+[\d.]+[KMGTP]?i?\s+([\d.]+[KMGTP]?i?)\s+\d{1,3}%\s+(/\S{0,80})$"
)
ROOM_HEADING = re.compile(r"Filesystem\s+(?:Size|1K-blocks)|total\s+used\s+free|Swap: ")


def parse_room(lines: list[Line]) -> Said | None:
    """`df -h` and `free -h` (or `free -g` where the command is shown).

    ```
    Filesystem      Size  Used Avail Use% Mounted on
    tmpfs            64M     0   64M   0% /dev/shm
    Mem:           125Gi        12Gi       100Gi       1.0Gi        13Gi       112Gi
    ```
    """
    said = Said("df and free")
    places: dict[str, Filesystem] = {}
    unit = ""
    for line in lines:
        text = line.text
        if found := re.search(r"\bfree -([hgmk])\b", text):
            unit = found[1] if found[1] != "h" else ""
        row = DF_ROW.match(text)
        if row:
            plain = row[2].isdecimal() and row[2] != "0"  # df without -h counts KiB
            total, free = parse_size(row[2], "k" if plain else ""), parse_size(row[3], "k" if plain else "")
            if row[4] in ROLES and total is not None and free is not None:
                places.setdefault(ROLES[row[4]], Filesystem(path=row[4], total=total, free=free, kind=row[1]))
        elif text.startswith("Mem:") and len(words := text.split()) >= 7:
            if unit or not words[1].isdecimal():
                said.tell("memory.total", parse_size(words[1], unit))
                said.tell("memory.available", parse_size(words[6], unit))
        elif not ROOM_HEADING.match(text):
            continue
        said.lines.add(line.number)
    said.tell("storage.places", places or None)
    return said if said.facts else None


ASKED = re.compile(
    r"torch\.__version__|torch\.version\.cuda|torch\.cuda\.is_available\(\)|torch\.cuda\.get_device_name\("
    r"|torch\.cuda\.get_device_capability\(|torch\.cuda\.get_arch_list\(\)|(?:vllm|transformers|trl|triton|numpy|flash_attn"
    r"|peft|accelerate|bitsandbytes|datasets|xformers|torchvision|torchaudio)\.__version__|sys\.version"
)


def parse_python(lines: list[Line]) -> Said | None:
    """Answers to questions put to Python, one a line or all in one, and `Python 3.12.3` of `python --version`.

    ```
    >>> import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())
    2.4.0+cu121 12.1 True
    ```
    """
    said = Said("python")
    questions: list[str] = []
    for line in lines:
        text = line.text
        asked = ASKED.findall(text) if "torch." in text or "__version__" in text or "sys.version" in text else []
        if asked and ("print" in text or ">>>" in text or len(asked) == 1) and "Error" not in text:
            questions += asked
            said.lines.add(line.number)
        elif questions:
            questions = _answer(said, questions, line)
        elif found := re.match(r"Python (\d\.\d{1,2}\.\d{1,2})(?: ::.*)?$", text):
            said.tell("stack.python_version", found[1])
            said.lines.add(line.number)
        elif found := re.match(r"Python (\d\.\d{1,2}\.\d{1,2} .{0,4}\(.{4,80}\) ?\[.{3,40}\].*)$", text):
            tell_python(said, found[1])
            said.lines.add(line.number)
    return said if said.facts or said.distributions or said.gpus else None


def _answer(said: Said, questions: list[str], line: Line) -> list[str]:
    """Give a line of answers to the questions that wait; the questions that are left."""
    text = line.text
    if "get_device_name" in questions[0] or "get_device_capability" in questions[0] or "get_arch" in questions[0]:
        words = [text]
    else:
        words = text.split()
    if len(words) > len(questions) or not words:
        return []
    told = [
        _tell_answer(said, question, word.strip("'\",()")) for question, word in zip(questions, words, strict=False)
    ]
    if not any(told):
        return []
    said.lines.add(line.number)
    return questions[len(words) :]


def _tell_answer(said: Said, question: str, word: str) -> bool:
    name, _, what = question.partition(".")
    if what == "__version__" and is_version(word):
        if name == "torch":
            said.tell("stack.torch.version", word)
        else:
            said.add_distribution(name, word)
    elif what == "version.cuda" and re.fullmatch(r"\d{1,2}\.\d{1,2}", word):
        said.tell("stack.torch.cuda", word)
    elif what == "version.cuda" and word == "None":
        said.deny("stack.torch.cuda", "a build without CUDA (torch.version.cuda is None)")
    elif "is_available" in what and word in ("True", "False"):
        said.tell("stack.cuda_available", word == "True")
    elif "get_device_name" in what and 3 < len(word) < 60:
        said.tell_gpu(0, "name", word)
    elif "get_device_capability" in what and (found := re.fullmatch(r"(\d{1,2}), (\d)", word)):
        said.tell_gpu(0, "compute_capability", f"{found[1]}.{found[2]}")
    elif "get_arch_list" in what and (architectures := re.findall(r"(?:sm|compute)_\d{2,3}[af]?", word)):
        said.tell("stack.torch.architectures", tuple(architectures))
    else:
        return False
    return True


def parse_notes(lines: list[Line]) -> Said | None:
    """What people fill into issue forms: `OS: Ubuntu 22.04`, `- GPU: 8x H100`, `NVIDIA driver: 535.129.03`.

    Weak: only taken where nothing better says it.
    """
    from envdoctor.reports.gpus import parse_gpu_phrase

    said = Said("notes")
    for line in lines:
        key, value = line.key.strip("` *"), line.value.strip("* `")
        if not key or not value or len(value) > 120:
            continue
        if key in ("os", "operating system") and re.match(
            r"Ubuntu|Debian|CentOS|RHEL|Red Hat|Rocky|Windows|macOS|Arch|Fedora|WSL", value
        ):
            said.tell("system.os", value)
        elif key in ("nvidia driver", "driver", "driver version", "gpu driver", "nvidia driver version"):
            said.tell("driver.version", find(r"^v?(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\b", value))
        elif key in ("gpu", "gpus", "gpu model", "gpu type", "graphics card", "hardware") and not said.gpus:
            for index, name in enumerate(parse_gpu_phrase(value)):
                said.tell_gpu(index, "name", name)
        elif key in ("python", "python version"):
            said.tell("stack.python_version", find(r"^v?(\d\.\d{1,2}(?:\.\d{1,2})?)(?![\w.])", value))
        elif key in ("ram", "system memory", "host memory") and parse_number(value):
            said.tell("memory.total", parse_size(value) if re.search(r"[GM]i?B", value) else None)
        else:
            continue
        said.lines.add(line.number)
    return said if said.facts or said.gpus else None
