"""Splits a line into which a page, a form or a log joined the lines of a report."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.json_lines import expand_json
from envdoctor.reports.python_repr import expand_repr

MIN_CHARACTERS = 200  # of a line that contains the lines of a report which has many
MIN_LIST_CHARACTERS = 40  # of a line that contains a short list
MIN_LABELS = 4
MIN_LIST_LABELS = 3
TABLE_ROWS = lazy_pattern(r"(?<=[|+])\s+(?=[|+])")
# As lines are joined: cells without text are wider. A table can follow a sentence.
NARROW_ROWS = lazy_pattern(r"(?<=[|+]) (?=[|+])|\s(?=\| NVIDIA-SMI |\+-{20,}\+)|(?<=-\+)\s+")
ROW_AND_TEXT = lazy_pattern(r"(?<=\S \|) (?=[^\s|+][^|]*$)")  # the last row, and what comes after it
OPEN_ROWS = lazy_pattern(r"(?<=\|) (?=[A-Za-z_][\w.-]{0,80}\s{1,40}\|\s{1,20}v?\d)")  # they do not start with `|`
CONDA_HEADER = lazy_pattern(r"\bName\s{2,60}Version\s{2,60}Build\b")
MARKDOWN_TABLE = lazy_pattern(r"\| ?:?-{3,}:? ?\|")
LIST_HEADER = lazy_pattern(
    r"^(.{0,200}?)Package\s+Version\s+(?:Editable project location\s+)?-{3,}(?:\s+-{3,}){1,2}\s+"
)
CHECK_ENV = lazy_pattern(  # of sglang
    r"(?<!\s)\s+(?=(?:Python|CUDA available|GPU [\d,]{1,60}(?: Compute Capability)?|CUDA_HOME|NVCC"
    r"|CUDA Driver Version"
    r"|PyTorch|NVIDIA Topology|Hypervisor vendor|ulimit soft): |[a-z][\w-]{1,40}: (?:\d{1,4}\.\d|Module Not Found))"
)
COLLECT_ENV = lazy_pattern(
    r"(?<!\s)\s+(?=(?:PyTorch version|Is debug build|CUDA used to build PyTorch|(?:ROCM|XPU) used to build PyTorch|OS"
    r"|GCC version|Clang version|CMake version|Libc version|Python version|Python platform|Is CUDA available"
    r"|CUDA runtime version|CUDA_MODULE_LOADING set to|GPU models and configuration|GPU \d{1,2}|Nvidia driver version"
    r"|cuDNN version|HIP runtime version|MIOpen runtime version|Is XNNPACK available|CPU|Architecture|CPU\(s\)"
    r"|Byte Order|Vendor ID|Model name|On-line CPU\(s\) list|Thread\(s\) per core|NUMA node\(s\)|Flags"
    r"|Versions of relevant libraries|ROCM Version|vLLM Version|vLLM Build Flags)\s{0,30}: |\[(?:pip3?|conda)\] "
    r"|MIG \dg\.\d{1,3}gb "
    r"|(?:LD_LIBRARY_PATH|OMP_NUM_THREADS|(?:CUDA|NCCL|VLLM|TORCH|PYTORCH|NVIDIA|MKL)_\w{2,40})=)"
    r"|(?<!\s)\s+={10,}[^=]{3,40}={10,}\s"
)
DS_REPORT = lazy_pattern(
    r"(?<!\s)\s+(?=(?:(?:torch|deepspeed) install path|(?:torch|deepspeed|torch cuda|torch hip|nvcc) version"
    r"|deepspeed info"
    r"|deepspeed wheel compiled w\.|shared memory \(/dev/shm\) size) \.{3,})"
)
LISTING = lazy_pattern(  # of nvidia-smi -q
    r"(?<!\s)\s+(?=(?:Driver Version|CUDA Version|Attached GPUs|Product (?:Name|Brand|Architecture)|Persistence Mode"
    r"|GPU UUID|Bus Id|Compute Mode|Current|Pending|Total|Used|Free|FB Memory Usage|MIG Mode|Display Mode)\s{2,60}: "
    r"|GPU [0-9A-F]{4,8}:[0-9A-F]{2}:|(?:MIG Mode|FB Memory Usage|BAR1 Memory Usage|Driver Model|PCI)\s)"
)
FLASHINFER = lazy_pattern(
    r"(?<!\s)\s+(?=(?:flashinfer(?:-[a-z-]{3,20}| file)?|Target CUDA archs \(resolved\)|Python(?: executable)?"
    r"|Virtual env|Platform|libc|OS|Container|Driver version|CUDA_VISIBLE_DEVICES|GPU \d{1,2} \(CUDA order\)"
    r"|torch|nvcc"
    r"|CUDA_HOME) {1,40}: "
    r"|==== )"
)
TOPOLOGY = lazy_pattern(
    r"(?<!\s)\s+(?=GPU0\s+GPU1\b|(?:GPU|NIC)\d{1,2}\s+(?:X|NV\d{1,2}|SYS|NODE|PHB|PXB|PIX|C2C)\b|Legend:)"
)
PCI = lazy_pattern(
    r"(?<!\s)\s+(?=(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d (?:VGA compatible|3D|Display) controller)"
)
PIP = lazy_pattern(
    r"(?<!\s)\s+(?=Requirement already satisfied: |Collecting \w|Using cached |Downloading |Installing collected "
    r"|Attempting uninstall: |Found existing installation: |Successfully (?:un)?installed )"
)
TIMES = lazy_pattern(r"(?<!\s)\s+(?=\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)")
XML = lazy_pattern(r"(?<=>)\s+(?=<)")
DISCOVERY = lazy_pattern(r"(?<!\s)\s+(?=(?:GPU ID|Name|PCI Bus ID|Device UUID): )")  # of dcgmi
DISKS = lazy_pattern(
    r"(?<!\s)\s+(?=\S{1,80}\s+(?:[\d.]{1,8}[KMGTP]?i?\s+){3}\d{1,3}% /|Filesystem\s+Size )|(?<=% /dev/shm)\s+"
)
CONTAINER_CLI = lazy_pattern(
    r"(?<!\s)\s+(?=(?:NVRM version|CUDA version|Device (?:Index|Minor)|Model|Brand|GPU UUID|Bus Location"
    r"|Architecture): {2,20})"
)
XFORMERS = lazy_pattern(r"(?<!\s)\s+(?=(?:[a-z_]\w{1,40}[.@][\w.@-]{1,60}|source\.privacy):\s)")
KUBERNETES = lazy_pattern(
    r"(?<!\s)\s+(?=(?:[a-z0-9-]{1,40}\.)+[a-z]{2,10}/[\w./-]{1,60}=|(?:Kernel Version|OS Image|Operating System"
    r"|Architecture"
    r"|Container Runtime Version|Kubelet Version|Capacity|Allocatable|System Info):\s)"
)
COMFYUI = lazy_pattern(
    r"(?<!\s)\s+(?=(?:\*\* )?(?:Python executable|Python version|ComfyUI (?:version|frontend version)|Platform"
    r"|Log path)\s?: "
    r"|\*\* ComfyUI startup time: |Using \w{3,20} attention\b|\[(?:START|DONE)\] |Checkpoint files "
    r"|pytorch version: |Total VRAM |Device: cuda:|Set vram state|- \*\*\w|## \w)"
)
# Of lists of a person: one label of a component, at most one further word, and a colon.
LABELS = lazy_pattern(
    r"(?:^|(?<!\s)\s+)(?=(?:[-*\u2022] |\d[.)] )?(?:\*\*)?(?:OS|Operating [Ss]ystem|[Gg][Pp][Uu]s?"
    r"|Graphics card|[Dd]river"
    r"|NVIDIA [Dd]river|CUDA|[Pp]ython|[Pp]y[Tt]orch|torch|torchvision|torchaudio|transformers|[Vv][Ll][Ll][Mm]|nvcc"
    r"|cuDNN|NCCL|triton|flash-attn|xformers|accelerate|bitsandbytes|sglang|sgl[-_]kernel|flashinfer[\w-]{0,20}|deepspeed|trl|peft|[Kk]ernel|cuda|glibc|GCC|CPU|RAM|VRAM|Platform"
    r"|Docker|Container|Image|numpy|Chip|Memory|[Mm]odel|CUDNN|cudnn|torch\.[\w.]{4,60}\(\))"
    r"(?: (?:[Vv]ersion|[Aa]vailable|[Dd]river|[Tt]oolkit|[Rr]untime))?"
    r"(?:\*\*)?\s?:(?:\*\*)? )"
)
BULLETS = lazy_pattern(r"(?<!\s)\s+(?=[-*\u2022] [`*\w][^:\n]{1,48}: )")
PINS = lazy_pattern(
    r"(?<![\]\s+~-])\s+(?=(?:\[(?:pip\d?|uv)\] |[+~-] )?[A-Za-z][\w.-]{0,80}(?:==\S| @ (?:file|https?|git)))"
)
COLUMNS = lazy_pattern(r"(?<=\S) (?=[A-Za-z_][\w.-]{0,80}\s{2,60}v?\d)")  # a name and a version in columns
CHANGES = lazy_pattern(r"(?<!\s)\s+(?=[+~-] [A-Za-z][\w.-]{0,80}==)")  # of uv
EXPORTS = lazy_pattern(r"(?<!\s)\s+(?=[a-z0-9_][\w.-]{0,80}=\d[^=\s]{0,40}=\w)")  # of `conda list --export`
ROWS = lazy_pattern(r"(?<=\S) (?=[A-Za-z_][\w.-]{0,80}\s{1,60}v?\d[\w.+!-]{0,40}(?:\s|$))")  # also the longest name
# What follows the facts of a text that is a single line.
NEXT_SUBJECT = lazy_pattern(
    r"(?<!\s)\s+(?=(?:[a-z_]{2,30}\.){0,4}[A-Z]\w{2,40}(?:Error|Exception): |Traceback \(most recent|ERROR: "
    r"|nvcc fatal|(?:WARNING|ERROR)[\[:]|PS [A-Z]:\\|[A-Z]:\\[^\s>]{0,80}> ?\w"
    r"|\$ \w|(?:uv )?pip3? (?:install|list|show)|python3? -[cm] |docker run |Error \d{3}: )"
    r"|(?<=\)[\"'])\s+(?=\d{1,3}\.\d|True|False|None)"  # the output of `python -c "..."`
)
MIN_COLUMNS = 4
# Reports by a text that all have, the starts of their lines, and how many of those a line must have.
REPORTS = (
    (lazy_pattern("nvidia_smi_log"), XML, MIN_LABELS),
    (lazy_pattern(r"\d:\d\d"), TIMES, MIN_LABELS),
    (lazy_pattern("CUDA Driver Version: |(?<!Is )CUDA available: "), CHECK_ENV, MIN_LABELS),
    (lazy_pattern("PyTorch"), COLLECT_ENV, MIN_LABELS),
    (lazy_pattern("deepspeed"), DS_REPORT, MIN_LABELS),
    (lazy_pattern("Product Name|Driver Version {2,}:"), LISTING, MIN_LABELS),
    (lazy_pattern(r"\bpytorch\.version:"), XFORMERS, MIN_LABELS),
    (lazy_pattern(r"flashinfer {2,40}: "), FLASHINFER, MIN_LABELS),
    (lazy_pattern("NVRM version: "), CONTAINER_CLI, MIN_LABELS),
    (lazy_pattern(r"nvidia\.com/"), KUBERNETES, MIN_LABELS),
    (lazy_pattern("ComfyUI|pytorch version: "), COMFYUI, MIN_LIST_LABELS),
    (lazy_pattern("GPU0"), TOPOLOGY, 2),
    (lazy_pattern(" controller"), PCI, 1),
    (lazy_pattern("Requirement already|Collecting |Successfully "), PIP, 2),
    (lazy_pattern("% /"), DISKS, 1),
    (lazy_pattern("Device UUID: "), DISCOVERY, MIN_LIST_LABELS),
)


# Entries of lists, and characters of which each has one: to count them takes a hundredth of the time.
LISTS = (
    ("=", CHANGES, 2),
    ("=", EXPORTS, MIN_LABELS),
    ("=@", PINS, MIN_LABELS),
    (":", BULLETS, MIN_LABELS),
    (":", LABELS, MIN_LIST_LABELS),
)


def split_line(line: str) -> list[str]:
    """The lines of a report that are joined in this line; the line itself if it is a single one."""
    expanded = expand_json(line) if "OrderedDict(" not in line and "{'" not in line else expand_repr(line)
    if len(expanded) > 1:
        return [part for each in expanded for part in split_line(each)]
    if len(line) < MIN_LIST_CHARACTERS:
        return expanded
    parts = _split_table(line) or _split_report(line)
    if len(parts) > 1:
        return [each for part in parts for each in split_line(part)]
    return _split_list(line) or expanded


def _split_table(line: str) -> list[str]:
    if len(OPEN_ROWS.findall(line)) >= MIN_COLUMNS:
        return OPEN_ROWS.split(line)
    if MARKDOWN_TABLE.search(line):
        return NARROW_ROWS.split(line)
    if CONDA_HEADER.search(line):
        return ROWS.split(line)
    return [] if len(line) < MIN_CHARACTERS else _split_drawn_table(line) or _split_columns(line)


def _split_drawn_table(line: str) -> list[str]:
    if not ("NVIDIA-SMI" in line and "Driver Version" in line) and line.count("+--") < 2:
        return []
    rows = NARROW_ROWS if len(NARROW_ROWS.findall(line)) >= MIN_LABELS else TABLE_ROWS
    *others, last = rows.split(line)
    return [*others, *ROW_AND_TEXT.sub("\n", last).split("\n")]


def _split_columns(line: str) -> list[str]:
    header = LIST_HEADER.match(line)
    if not header:
        return []
    rest = line[header.end() :]
    if len(COLUMNS.findall(f"x {rest}")) >= MIN_LIST_LABELS:
        return [header[1], "Package Version", *ROWS.split(rest)]
    words = rest.split()
    return [header[1], "Package Version", *map(" ".join, zip(words[::2], words[1::2], strict=False))]


def _split_report(line: str) -> list[str]:
    for sign, starts, needed in REPORTS:
        if sign.search(line) and len(starts.findall(line)) >= needed:
            return [part.rstrip().removesuffix(" >") for part in starts.split(line)]  # of a quote in each line
    return []


def _split_list(line: str) -> list[str]:
    if line.count("  ") >= MIN_COLUMNS and len(COLUMNS.findall(line)) >= MIN_COLUMNS:
        return ROWS.split(line)
    for characters, starts, needed in LISTS:
        if sum(map(line.count, characters)) >= needed and len(starts.findall(line)) >= needed:
            parts = [part for part in starts.split(line) if part.strip()]
            return [part.rstrip(" |") for part in parts] if starts is LABELS else parts
    return []


def split_single_line(line: str) -> list[str]:
    """The facts of a text of one line, and what comes after them: `torch 2.8.0, driver 570 RuntimeError: ...`."""
    if len(line) < MIN_LIST_CHARACTERS or line.lstrip()[:1] in ("{", "["):
        return [line]
    parts = NEXT_SUBJECT.split(line)
    if parts[0].count(" | ") >= MIN_LIST_LABELS and "--" not in line and "| |" not in line:
        parts[:1] = parts[0].split(" | ")
    if LABELS.match(parts[0]) and len(LABELS.findall(parts[0])) < MIN_LIST_LABELS:  # `split_line` splits the others
        return [*filter(None, LABELS.split(parts[0])), *parts[1:]]
    return parts
