"""Parser for hand-written environment lists in issues: `- GPU: 2x RTX 5090`, `| torch | 2.8 cu128 |`.

A line counts if its key is known and its value has the form that the key requires. At least two such lines make a
list, because prose and logs contain single ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from envdoctor.core.patterns import lazy_pattern
from envdoctor.redact.variables import redact_variable
from envdoctor.reports.collect_env import record_compiler, record_platform, record_python_version, record_wsl
from envdoctor.reports.env_vars import is_relevant
from envdoctor.reports.handwritten_gpus import record_compute_capability, record_gpus, record_mig
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.section import (
    Line,
    Section,
    distribution_name,
    dotted_version,
    first_group,
    is_version,
    truth_of,
)
from envdoctor.reports.unlabeled_cuda import (
    CUDA_ALONE,
    CUDA_OWNERS,
    record_toolkit_next_to_cudnn,
    record_unlabeled_cuda,
)

Recorder = Callable[[Section, str], bool]  # records a value; returns False if it has the wrong form
MIN_LINES = 2
NOT_INSTALLED = "not installed"
EMPTY = "(empty)"  # stands for an empty quoted value
# A bullet or number, a key that may be bold or code, a separator, a value. The separators `-` and `=` need spaces
# around them: `NCCL_DEBUG=INFO` is an assignment, `pre-release` a word.
ENTRY = lazy_pattern(
    r"(?:[-*+\u2022\u00b7]\s+|\d{1,2}[.)]\s+|#{1,6}\s+)?[*_`\"']{0,3}([^\W\d][^:=|*`\"\n]{0,44}?)[*_`\"']{0,3}"
    r"\s{0,4}(?::[*_`\"']{0,3}\s{0,40}|\s(?:=|-|\u2013|\u2014|->|\u2192)\s+)(\S.{0,300})$"
)
# `PyTorch is not installed.`, `torch: NOT FOUND`, `WARNING: Package(s) not found: torch`
NO_TORCH = lazy_pattern(
    r"(?i)[^\w\s]{0,4}\s?(?:(?:py)?torch(?: version)?\s{0,20}[:=-]?\s{0,20}(?:is |was )?"
    r"(?:not (?:installed|found)|\u672a\u5b89\u88c5|no module named ['\"]?torch['\"]?|none)"
    r"|WARNING: Package\(s\) not found: torch)"
    r"\s{0,4}(?:\([^()]{0,40}\))?\W{0,3}$"
)
TABLE_ROW = lazy_pattern(r"\|\s?([^|\n]{1,60}?)\s{0,20}\|\s{0,20}([^|\n]{1,200}?)\s{0,20}\|")
# A requirement such as `>=2.4` or `2.4 or newer`, not an installed version.
REQUIREMENT = lazy_pattern(r"[<>~]=?\s?\d|\b\d[\d.]*\+(?:\s|$|,)|\bor (?:newer|later|higher|above)\b")
RELEASE = r"(\d{1,2}\.\d{1,2})(?![\d])"
VERSION = lazy_pattern(r"v?(\d{1,4}\.\d[\w.+!-]{0,60}?)(?:[,;)]|\s|$)")
OS_NAMES = lazy_pattern(
    r"ubuntu|debian|fedora|cent ?os|red hat|rhel|rocky|alma|\barch\b|manjaro|suse|windows|\bwin ?1[01]\b|mac ?os"
    r"|wsl|linux|\bmint\b|pop!?_os|nixos|gentoo",
    re.IGNORECASE,
)


def parse_handwritten(lines: list[Line], consumed: set[int]) -> Section | None:
    """Parse hand-written lists in the lines that no other parser consumed.

    ```
    - GPU: 2x RTX 5090 (32 GB each)
    - driver: 580.105.08 / CUDA 13.0
    - PyTorch: 2.0.1 (CUDA 11.8)
    - OS: Windows 11, WSL 2, kernel 5.15.90.1
    ```
    """
    flashinfer = any(
        "flashinfer.collect_env" in line.text or line.key == "target cuda archs (resolved)" for line in lines
    )
    section = Section("flashinfer collect_env" if flashinfer else "handwritten list")
    cuda, cuda_lines = "", set[int]()
    for line, following in pairwise([*lines, Line(-1, "#")]):
        if line.number in consumed or len(line.text) > 400:
            continue
        key, value = _entry(line.text) if line.text[0] != "#" else _titled_entry(line, following)
        if not value or REQUIREMENT.search(re.sub(r"\([^()]*\)", "", value)):
            continue
        numbers = {line.number, following.number} if value == following.text else {line.number}
        if _normalize_key(key) in ("cuda", "cuda version"):
            release = first_group(rf"^v?{RELEASE}", value)
            if owner := next((name for pattern, name in CUDA_OWNERS if re.search(pattern, value)), ""):
                section.set_fact(owner, release)
            elif not cuda:
                cuda, cuda_lines = release, numbers
            if release:
                section.consumed |= numbers
        elif _record_entry(section, key, value):
            section.consumed |= numbers
    record_toolkit_next_to_cudnn(section, cuda, cuda_lines, lines)
    rows = {line.number for line in lines if line.key == "os name" or line.text[0] == "|"}  # of systeminfo, a table
    if len(section.consumed) < MIN_LINES and not rows & section.consumed:
        return None
    record_unlabeled_cuda(section, cuda)
    return section


def _titled_entry(title: Line, value: Line) -> tuple[str, str]:
    """A heading and the line below it, as forms of issues print them: `### Operating System`, `Ubuntu 22.04`."""
    key, text = _entry(title.text)
    if key or len(value.text) > 120 or value.text[0] == "#":
        return key, text
    normalized = _normalize_key(key := title.text.strip("# "))
    is_package = distribution_name(normalized.removesuffix(" version")) in KNOWN_PACKAGES
    return (key, value.text) if normalized in FORM_KEYS or is_package else ("", "")


def _entry(text: str) -> tuple[str, str]:
    """The key as written and the value; both empty if the line has another form."""
    if NO_TORCH.match(text):
        return "torch", NOT_INSTALLED
    match = TABLE_ROW.match(text) if text[0] == "|" else ENTRY.match(text) or CUDA_ALONE.match(text)
    if not match:
        return "", ""
    return match[1].strip(" *_`\"'"), match[2].strip(" *_`\"'") or EMPTY


def _normalize_key(key: str) -> str:
    """The key for lookup: lower case, without emoji, with spaces for underscores."""
    words = re.sub(r"[^\w()./ -]", "", key.lower()).replace("_", " ").strip().removesuffix(" used")
    return re.sub(r"\s*(?:\u7248\u672c|\u578b\u53f7)$", " version", words).strip()  # Chinese: version, model


def _record_entry(section: Section, key: str, value: str) -> bool:
    """Record one entry. Returns False if the key is unknown or the value has the wrong form."""
    if key.isupper() and "_" in key:
        return _record_variable(section, key, value)
    normalized = _normalize_key(key)
    recorder = KEYS.get(normalized) or KEYS.get(re.sub(r" version(?:s|\(s\))?$|\(s\)$| \(\d\)$", "", normalized))
    if recorder:
        return recorder(section, value)
    if re.match(r"gpu \d{1,2}(?: \([a-z -]{4,20}\))?$", normalized):
        return record_gpus(section, value)
    if normalized.startswith(
        ("arch list", "torch arch", "built for", "torch built for", "torch compiled arch", "torch.cuda.get arch list")
    ):
        return _record_architectures(section, normalized, value)
    return _record_package(section, normalized, value)


def _record_variable(section: Section, name: str, value: str) -> bool:
    if not is_relevant(name):
        return False
    text = "" if value == EMPTY else value.split(" ", maxsplit=1)[0].strip("\"',")
    section.environment.setdefault(name, redact_variable(name, text))
    return True


def _record_package(section: Section, key: str, value: str) -> bool:
    """`vllm: 0.10.0 (Requires-Python <3.13)`, `transformers version: v4.46.0`."""
    name = distribution_name(re.sub(r"[. ]+version$", "", key))  # also of `trl.__version__`
    match = VERSION.match(value)
    return name in KNOWN_PACKAGES and match is not None and section.add_distribution(name, match[1].rstrip(".,"))


def _record_torch(section: Section, value: str) -> bool:
    """`2.0.1 (CUDA 11.8)`, `2.8 cu128`, `torch==2.7.0.dev2025+cu124 (nightly)`, `nightly, cu111`, `2.6.0 (CPU)`."""
    if value.lower() == NOT_INSTALLED:
        section.set_absent("stack.torch", "the report states that torch is not installed")
        return True
    value = re.sub(r"^(?:py)?torch\s?(?:==|=|:)?\s?(?=v?\d)", "", value, flags=re.IGNORECASE)
    match = VERSION.match(value)
    version = match[1].rstrip(".,") if match and is_version(match[1].rstrip(".,")) else ""
    cuda = first_group(rf"(?i)(?:\bcuda[ :=]?v?|\d ?/ ?){RELEASE}", value) or dotted_version(
        first_group(r"(?i)(?:\b|\+)cu(\d{3})\b", value)
    )
    if not version and not cuda:
        return False
    section.set_fact("stack.torch.version", version)
    section.set_fact("stack.torch.cuda", cuda)
    if not cuda and re.search(r"(?i)\bcpu\b", value):
        section.set_absent("stack.torch.cuda", f"a build without CUDA ({value[:60]})")
    return True


def _record_architectures(section: Section, key: str, value: str) -> bool:
    """`sm_50 sm_70 sm_80`, `['sm_80', 'sm_90']`, `7.5, 8.0, 12.0`; the list of another build is ignored."""
    other = dotted_version(first_group(r"\bcu(\d{3})\b", key))
    torch_cuda = section.facts.get("stack.torch.cuda")
    if other and (not torch_cuda or torch_cuda.value != other):
        return False
    names = re.findall(r"\b(?:sm|compute)_\d{2,3}[af]?\b", value)
    names = names or [
        f"sm_{capability.replace('.', '')}" for capability in re.findall(r"(?<![\d.])\d{1,2}\.\d(?![\d.])", value)
    ]
    if not re.search(r"sm_|compute_", value) and len(names) == 1:  # `torch built for: 12.8` is a CUDA version
        return _record_torch_cuda(section, value)
    if not names:
        return False
    section.set_fact("stack.torch.architectures", tuple(names))
    return True


def _record_torch_cuda(section: Section, value: str) -> bool:
    if value.lower() in ("none", "null"):
        section.set_absent("stack.torch.cuda", f"a build without CUDA (torch.version.cuda: {value})")
        return True
    return _record_match("stack.torch.cuda", rf"^(?:cuda )?{RELEASE}", section, value.lower())


def _record_match(path: str, pattern: str, section: Section, value: str) -> bool:
    text = first_group(pattern, value)
    section.set_fact(path, text)
    return bool(text)


def _record_driver(section: Section, value: str) -> bool:
    """`570.124.06`, `580.105.08 / CUDA 13.0`, `NVIDIA driver 550.90.07 (open)`."""
    section.set_fact("driver.cuda", first_group(rf"(?i)cuda(?: version)?[: ]?{RELEASE}", value))
    return _record_match("driver.version", r"(?<![\d.])(\d{3}\.\d{1,4}(?:\.\d{1,4})?)(?![\d.])", section, value)


def _record_python(section: Section, value: str) -> bool:
    text = re.sub(r"^(?:c?python|conda)\s+", "", value, flags=re.IGNORECASE)
    record_python_version(section, text)
    return bool(re.match(r"3\.\d", text))


def _record_python_path(section: Section, value: str) -> bool:
    if not re.search(r"python[\d.]{0,5}(?:\.exe)?$", value):
        return False
    section.set_fact("stack.python", value)
    return True


def _record_kernel(section: Section, value: str) -> bool:
    kernel = first_group(r"^(?:Linux[ -](?:version )?)?v?(\d\.\d{1,3}[\w.+-]{0,60})", value)
    if kernel:
        section.set_fact("system.kernel", kernel)
        record_wsl(section, kernel)
    return bool(kernel)


def _record_venv(section: Section, value: str) -> bool:
    section.set_fact("stack.kind", "venv" if value[:1] in "/~" or ":" in value[:2] else None)
    return "stack.kind" in section.facts


def record_system(section: Section, value: str) -> bool:
    """`Ubuntu 22.04 LTS (glibc 2.35)`, `Windows 11, WSL 2 (1.2.5.0), kernel 5.15.90.1`, `Linux-6.8.0-x86_64-...`."""
    if not OS_NAMES.search(value):
        return False
    if re.match(r"(?:Linux|Windows|macOS|Darwin)-", value):
        record_platform(section, value)
    _record_comma_list(section, value)
    wsl = re.search(r"\bwsl ?2?\b", value, re.IGNORECASE)
    if wsl:
        section.set_fact("system.wsl", wsl[0])
    elif re.search(r"windows|\bwin ?1[01]\b|mac", value, re.IGNORECASE):
        section.set_absent("system.wsl", "not Linux")
    name = re.split(r"\s*[(,;]|\s-\s", value)[0].strip()
    if "-" not in name and not re.fullmatch(r"(?i)wsl ?2?|linux", name):
        section.set_fact("system.os", re.sub(r"(?i)^win ?(1[01])", r"Windows \1", name)[:80])
    section.set_fact("system.kernel", first_group(r"[Kk]ernel[: ]v?(\d\.\d{1,3}[\w.+-]{0,60})", value))
    section.set_fact("system.glibc", first_group(r"(?i)glibc[ -]?v?(2\.\d{2})", value))
    section.set_fact("system.architecture", first_group(r"\b(x86_64|aarch64|arm64)\b", value))
    return True


def _record_comma_list(section: Section, value: str) -> bool:
    """`Ubuntu 22.04, Python 3.10, PyTorch 2.1.2+cu121`: several entries on one line."""
    matches = [
        re.match(r"(python|torch|pytorch|driver)[ =:]+v?(\d\S{1,40})$", part.strip(), re.IGNORECASE)
        for part in value.split(",")
    ]
    recorded = [KEYS[match[1].lower()](section, match[2]) for match in matches if match]
    return any(recorded)


def _record_wsl(section: Section, value: str) -> bool:
    if re.match(r"(?i)no\b|false|none|n/a|-", value):
        section.set_absent("system.wsl", f"WSL: {value[:40]}")
    else:
        section.set_fact("system.wsl", value[:60])
    return True


def _record_cuda_available(section: Section, value: str) -> bool:
    truth = truth_of(first_group(r"^(\w+)", value))
    section.set_fact("stack.cuda_available", truth)
    return truth is not None


def _record_container(section: Section, value: str) -> bool:
    """`vllm/vllm-openai:v0.9.0`, `nvcr.io/nvidia/pytorch:24.05-py3`, `vLLM 0.9.0`: an image implies a container."""
    vllm = first_group(r"(?i)\bvllm(?:[/ -]openai)?[: ]v?(\d\.\d{1,2}(?:\.[\w.]{1,20})?)", value)
    image = re.match(r"[\w.-]{2,60}(?:/[\w.-]{2,60}){1,4}(?::[\w.-]{1,80})?(?:[\s,;(@]|$)", value)
    if not vllm and not image:
        return False
    if vllm:
        section.add_distribution("vllm", vllm)
    section.set_fact("system.container", "docker", value[:80])
    return True


WHEEL = lazy_pattern(
    r"([A-Za-z0-9][\w.]{0,60})-(\d[\w.+!]{0,60})(?:-\d\w{0,20})?-\w{2,20}-\w{2,20}-[\w.]{3,80}\.whl\b"
)


def _record_installation(section: Section, value: str) -> bool:
    """Record pins of an install command, or a wheel by its file name, which becomes the distribution's source."""
    wheel = WHEEL.search(value)
    if wheel:
        return section.add_distribution(wheel[1], wheel[2], wheel[0])
    pins = re.findall(r"\b([A-Za-z][\w.-]{1,40})(?:\[[\w,]{1,30}\])?==(\d[\w.+!]{0,40})", value)
    recorded = [section.add_distribution(*pin) for pin in pins if distribution_name(pin[0]) in KNOWN_PACKAGES]
    return any(recorded)


RECORDERS: tuple[tuple[Recorder, tuple[str, ...]], ...] = (
    (record_gpus, (
        "gpu", "gpus", "gpu model", "gpu models", "gpu type", "gpu name", "gpu card", "gpu device", "graphics card",
        "graphics cards", "video card", "graphics", "nvidia gpu", "nvidia gpus", "cuda device", "cuda devices",
        "cuda device(s)", "card", "cards", "device name", "accelerator", "hardware", "gpu hardware", "gpu info",
        "gpu(s)", "\u663e\u5361", "\u663e\u5361 version", "gpu version",
    )),
    (record_mig, ("mig", "mig mode", "mig enabled", "mig profile")),
    (record_compute_capability, (
        "compute capability", "cuda capability", "gpu compute capability", "gpu arch", "gpu architecture",
        "compute cap", "sm", "cc",
    )),
    (_record_driver, (
        "driver", "drivers", "nvidia driver", "nvidia drivers", "nvidia-driver", "gpu driver", "cuda driver",
        "nvidia gpu driver", "graphics driver", "nvidia-smi", "nvidia-smi driver", "\u9a71\u52a8",
        "\u9a71\u52a8 version", "\u663e\u5361\u9a71\u52a8",
    )),
    (partial(_record_match, "driver.cuda", rf"^v?{RELEASE}"), (
        "cuda (nvidia-smi)", "nvidia-smi cuda", "cuda (driver)", "driver cuda", "cuda driver api",
        "cuda version (nvidia-smi)", "nvidia-smi cuda version", "cuda version (driver)",
    )),
    (partial(_record_match, "cuda.nvcc_version", r"(?:^|[Vv ])(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)(?![\d.])"), (
        "cuda toolkit", "cudatoolkit", "toolkit", "installed cuda", "installed cuda toolkit", "cuda installed",
        "system cuda", "system cuda toolkit", "local cuda", "nvcc", "cuda (nvcc)", "nvcc cuda", "cuda nvcc",
        "cuda toolkit (nvcc)",
    )),
    (record_compiler, ("gcc", "g++", "gcc/g++", "gcc compiler", "compiler", "c++ compiler", "c compiler")),
    (_record_torch, (
        "torch", "pytorch", "torch.  version", "torch build", "pytorch build", "pytorch/cuda", "pytorch / cuda",
    )),
    (_record_torch_cuda, (
        "torch compiled with", "torch compiled with cuda", "torch cuda", "pytorch cuda", "torch.version.cuda",
        "pytorch compiled with", "pytorch compiled with cuda", "torch built with", "torch built with cuda",
        "pytorch built with cuda", "torch compiled for cuda", "cuda (torch)", "cuda (pytorch)", "cuda of torch",
        "cuda (via torch)", "torch was compiled with",
    )),
    (_record_python, ("python", "cpython")),
    (_record_python_path, ("python executable", "python path", "python bin")),
    (_record_venv, ("virtual env", "virtual environment")),
    (record_system, (
        "os", "os name", "os version", "operating system", "system", "platform", "host", "host os", "distro",
        "distribution", "linux distro", "environment", "os/platform", "os / platform", "\u7cfb\u7edf",
        "\u64cd\u4f5c\u7cfb\u7edf",
    )),
    (_record_comma_list, (
        "versions", "version info", "software", "env", "setup", "packages", "dependencies",
    )),
    (_record_wsl, ("wsl", "wsl2")),
    (_record_kernel, ("kernel", "kernel release", "linux kernel")),
    (partial(_record_match, "system.glibc", r"(?:^|glibc[ -]?|[ )])(2\.\d{2})(?![\d.])"), (
        "glibc", "libc", "gnu libc",
    )),
    (partial(_record_match, "system.architecture", r"(?i)\b(x86_64|aarch64|arm64|ppc64le)\b"), (
        "arch", "architecture", "cpu architecture", "cpu arch", "machine",
    )),
    (_record_cuda_available, (
        "torch.cuda.is available()", "torch.cuda.is available", "cuda.is available()", "cuda available",
        "is cuda available", "cuda is available",
    )),
    (_record_container, (
        "image", "docker image", "container", "container image", "docker", "vllm image", "base image",
        "docker container",
    )),
    (_record_installation, (
        "wheel", "whl", "wheel file", "package", "install", "installation", "installed with", "install method",
        "installed via", "install command", "installation method",
    )),
)  # fmt: skip
KEYS = {key: recorder for recorder, keys in RECORDERS for key in keys}
FORM_KEYS = frozenset(
    f"{key}{ending}" for key in (*KEYS, "cuda") for ending in ("", " version")
)  # headings above a value
