"""Lists that people write by hand into issue forms: `- GPU: 2x RTX 5090`, `| torch | 2.8 cu128 |`.

Only lines of a known key and a value that reads as what the key promises count, and two of them make a list: prose
and logs have single ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from envdoctor.redact.variables import redact_variable
from envdoctor.reports.collect_env import tell_platform, tell_python
from envdoctor.reports.environment import is_relevant
from envdoctor.reports.handwritten_gpus import tell_capability, tell_gpus, tell_mig
from envdoctor.reports.packages import SPOKEN
from envdoctor.reports.section import Line, Said, distribution_name, find, is_version

LINES_NEEDED = 2
EMPTY = "(empty)"  # of a value in quotes with nothing inside
# A bullet or number, a key that may be bold or code, a separator, a value. A blank must follow `-` and `=` as
# separators: `NCCL_DEBUG=INFO` is an assignment, `pre-release` a word.
ENTRY = re.compile(
    r"(?:[-*+\u2022\u00b7]\s+|\d{1,2}[.)]\s+|#{1,6}\s+)?[*_`\"']{0,3}([^\W\d][^:=|*`\"\n]{0,44}?)[*_`\"']{0,3}"
    r"\s{0,4}(?::[*_`\"']{0,3}\s{0,8}|\s(?:=|-|\u2013|\u2014|->|\u2192)\s+)(\S.{0,300})$"
)
ROW = re.compile(r"\|\s?([^|\n]{1,60}?)\s{0,20}\|\s{0,20}([^|\n]{1,200}?)\s{0,20}\|")
WISHES = re.compile(r"[<>~]=?\s?\d|\b\d[\d.]*\+(?:\s|$|,)|\bor (?:newer|later|higher|above)\b")  # not what is there
NUMBER = r"(\d{1,2}\.\d{1,2})(?![\d])"
VERSION = re.compile(r"v?(\d{1,4}\.\d[\w.+!-]{0,60}?)(?:[,;)]|\s|$)")
SYSTEMS = re.compile(
    r"ubuntu|debian|fedora|cent ?os|red hat|rhel|rocky|alma|\barch\b|manjaro|suse|windows|\bwin ?1[01]\b|mac ?os"
    r"|wsl|linux|\bmint\b|pop!?_os|nixos|gentoo",
    re.IGNORECASE,
)


def parse_written(lines: list[Line], taken: set[int]) -> Said | None:
    """What a hand-written list says, from lines that no other parser took.

    ```
    - GPU: 2x RTX 5090 (32 GB each)
    - driver: 580.105.08 / CUDA 13.0
    - PyTorch: 2.0.1 (CUDA 11.8)
    - OS: Windows 11, WSL 2, kernel 5.15.90.1
    ```
    """
    said = Said("written list")
    cuda = ""
    for line in lines:
        if line.number in taken or len(line.text) > 400:
            continue
        key, value = _entry(line.text)
        if not value or WISHES.search(re.sub(r"\([^()]*\)", "", value)):
            continue
        if _plain(key) in ("cuda", "cuda version"):
            cuda = cuda or find(rf"^v?{NUMBER}", value)
            if cuda:
                said.lines.add(line.number)
        elif _tell(said, key, value):
            said.lines.add(line.number)
    if len(said.lines) < LINES_NEEDED:
        return None
    _tell_bare_cuda(said, cuda)
    return said


def _entry(text: str) -> tuple[str, str]:
    """Key as it was written, and value; empty where the line is of another form."""
    found = ROW.match(text) if text[0] == "|" else ENTRY.match(text)
    if not found:
        return "", ""
    return found[1].strip(" *_`\"'"), found[2].strip(" *_`\"'") or EMPTY


def _plain(key: str) -> str:
    """The key to look up by: lower case, without emoji, and with blanks for underscores."""
    words = re.sub(r"[^\w()./ -]", "", key.lower()).replace("_", " ").strip()
    return re.sub(r"\s*(?:\u7248\u672c|\u578b\u53f7)$", " version", words).strip()  # Chinese: version, model


def _tell(said: Said, key: str, value: str) -> bool:
    """One line; False where its key is not known or its value does not read as one."""
    if key.isupper() and "_" in key:
        return _tell_variable(said, key, value)
    plain = _plain(key)
    tell = KEYS.get(plain) or KEYS.get(re.sub(r" version(?:s|\(s\))?$|\(s\)$| \(\d\)$", "", plain))
    if tell:
        return tell(said, value)
    if re.match(r"gpu \d{1,2}$", plain):
        return tell_gpus(said, value)
    if plain.startswith(("arch list", "torch arch", "built for", "torch built for", "torch.cuda.get arch list")):
        return _tell_architectures(said, plain, value)
    return _tell_package(said, plain, value)


def _tell_variable(said: Said, name: str, value: str) -> bool:
    if not is_relevant(name):
        return False
    told = "" if value == EMPTY else value.split(" ", maxsplit=1)[0].strip("\"',")
    said.environment.setdefault(name, redact_variable(name, told))
    return True


def _tell_package(said: Said, key: str, value: str) -> bool:
    """`vllm: 0.10.0 (Requires-Python <3.13)`, `transformers version: v4.46.0`."""
    name = distribution_name(re.sub(r" version$", "", key))
    found = VERSION.match(value)
    return name in SPOKEN and found is not None and said.add_distribution(name, found[1].rstrip(".,"))


def _tell_torch(said: Said, value: str) -> bool:
    """`2.0.1 (CUDA 11.8)`, `2.8 cu128`, `nightly, cu111`, `2.7.0.dev20250310+cu124 (nightly)`, `2.6.0 (CPU)`."""
    found = VERSION.match(value)
    version = found[1].rstrip(".,") if found and is_version(found[1].rstrip(".,")) else ""
    cuda = find(rf"(?i)(?:\bcuda[ :=]?v?|\d ?/ ?){NUMBER}", value) or _dotted(
        find(r"(?i)(?:\b|\+)cu(\d{3})\b", value)
    )
    if not version and not cuda:
        return False
    said.tell("stack.torch.version", version)
    said.tell("stack.torch.cuda", cuda)
    if not cuda and re.search(r"(?i)\bcpu\b", value):
        said.deny("stack.torch.cuda", f"a build without CUDA ({value[:60]})")
    return True


def _dotted(digits: str) -> str:
    """`128` as 12.8."""
    return f"{digits[:-1]}.{digits[-1]}" if digits else ""


def _tell_bare_cuda(said: Said, cuda: str) -> None:
    """`CUDA: 11.8` beside `torch: 2.0.1` is torch's, if there is such a build; else it may be anybody's."""
    version = said.facts.get("stack.torch.version")
    text = str(version.value) if version else ""
    if not cuda or not text or "+" in text or "stack.torch.cuda" in said.facts:
        return
    from envdoctor.knowledge.torch_builds import known_builds

    release = find(r"^(\d{1,2}\.\d{1,2})", text)
    if any((row.torch, row.cuda) == (release, cuda) for row in known_builds()):
        said.tell("stack.torch.cuda", cuda, "the list says CUDA only; torch has such a build")


def _tell_architectures(said: Said, key: str, value: str) -> bool:
    """`sm_50 sm_70 sm_80`, `['sm_80', 'sm_90']`, `7.5, 8.0, 12.0`; nothing of another build's list."""
    other = _dotted(find(r"\bcu(\d{3})\b", key))
    ours = said.facts.get("stack.torch.cuda")
    if other and (not ours or ours.value != other):
        return False
    names = re.findall(r"\b(?:sm|compute)_\d{2,3}[af]?\b", value)
    names = names or [f"sm_{each.replace('.', '')}" for each in re.findall(r"(?<![\d.])\d{1,2}\.\d(?![\d.])", value)]
    if not re.search(r"sm_|compute_", value) and len(names) == 1:  # `torch built for: 12.8` is a CUDA version
        return _tell_torch_cuda(said, value)
    if not names:
        return False
    said.tell("stack.torch.architectures", tuple(names))
    return True


def _tell_torch_cuda(said: Said, value: str) -> bool:
    if value.lower() in ("none", "null"):
        said.deny("stack.torch.cuda", f"a build without CUDA (torch.version.cuda: {value})")
        return True
    return _tell_found(said, "stack.torch.cuda", rf"^(?:cuda )?{NUMBER}", value.lower())


def _tell_found(said: Said, path: str, pattern: str, value: str) -> bool:
    found = find(pattern, value)
    said.tell(path, found)
    return bool(found)


def _tell_driver(said: Said, value: str) -> bool:
    """`570.124.06`, `580.105.08 / CUDA 13.0`, `NVIDIA driver 550.90.07 (open)`."""
    said.tell("driver.cuda", find(rf"(?i)cuda(?: version)?[: ]?{NUMBER}", value))
    return _tell_found(said, "driver.version", r"(?<![\d.])(\d{3}\.\d{1,4}(?:\.\d{1,4})?)(?![\d.])", value)


def _tell_driver_cuda(said: Said, value: str) -> bool:
    return _tell_found(said, "driver.cuda", rf"^v?{NUMBER}", value)


def _tell_toolkit(said: Said, value: str) -> bool:
    return _tell_found(said, "cuda.nvcc_version", r"(?:^|[Vv ])(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)(?![\d.])", value)


def _tell_python(said: Said, value: str) -> bool:
    text = re.sub(r"^(?:c?python|conda)\s+", "", value, flags=re.IGNORECASE)
    tell_python(said, text)
    return bool(re.match(r"3\.\d", text))


def _tell_system(said: Said, value: str) -> bool:
    """`Ubuntu 22.04 LTS (glibc 2.35)`, `Windows 11, WSL 2 (1.2.5.0), kernel 5.15.90.1`, `Linux-6.8.0-x86_64-...`."""
    if not SYSTEMS.search(value):
        return False
    if re.match(r"(?:Linux|Windows|macOS|Darwin)-", value):
        tell_platform(said, value)
    _tell_parts(said, value)
    wsl = re.search(r"\bwsl ?2?\b", value, re.IGNORECASE)
    if wsl:
        said.tell("system.wsl", wsl[0])
    elif re.search(r"windows|\bwin ?1[01]\b|mac", value, re.IGNORECASE):
        said.deny("system.wsl", "not Linux")
    name = re.split(r"\s*[(,;]|\s-\s", value)[0].strip()
    if "-" not in name and not re.fullmatch(r"(?i)wsl ?2?|linux", name):
        said.tell("system.os", re.sub(r"(?i)^win ?(1[01])", r"Windows \1", name)[:80])
    said.tell("system.kernel", find(r"[Kk]ernel[: ]v?(\d\.\d{1,3}[\w.+-]{0,60})", value))
    said.tell("system.glibc", find(r"(?i)glibc[ -]?v?(2\.\d{1,2})", value))
    said.tell("system.architecture", find(r"\b(x86_64|aarch64|arm64)\b", value))
    return True


def _tell_parts(said: Said, value: str) -> bool:
    """`Ubuntu 22.04, Python 3.10, PyTorch 2.1.2+cu121`: several in one line."""
    found = [
        re.match(r"(python|torch|pytorch|driver)[ =:]+v?(\d\S{1,40})$", part.strip(), re.IGNORECASE)
        for part in value.split(",")
    ]
    told = [KEYS[each[1].lower()](said, each[2]) for each in found if each]
    return any(told)


def _tell_wsl(said: Said, value: str) -> bool:
    if re.match(r"(?i)no\b|false|none|n/a|-", value):
        said.deny("system.wsl", f"WSL: {value[:40]}")
    else:
        said.tell("system.wsl", value[:60])
    return True


def _tell_glibc(said: Said, value: str) -> bool:
    return _tell_found(said, "system.glibc", r"(?:^|glibc[ -]?|[ )])(2\.\d{1,2})(?![\d.])", value)


def _tell_architecture(said: Said, value: str) -> bool:
    return _tell_found(said, "system.architecture", r"(?i)\b(x86_64|aarch64|arm64|ppc64le)\b", value)


def _tell_available(said: Said, value: str) -> bool:
    found = re.match(r"(true|false)\b", value, re.IGNORECASE)
    if found:
        said.tell("stack.cuda_available", value=found[1].lower() == "true")
    return bool(found)


def _tell_container(said: Said, value: str) -> bool:
    """`vllm/vllm-openai:v0.9.0`, `nvcr.io/nvidia/pytorch:24.05-py3`, `vLLM 0.9.0`: an image is run in a container."""
    vllm = find(r"(?i)\bvllm(?:[/ -]openai)?[: ]v?(\d\.\d{1,2}(?:\.[\w.]{1,20})?)", value)
    image = re.match(r"[\w.-]{2,60}(?:/[\w.-]{2,60}){1,4}(?::[\w.-]{1,80})?(?:[\s,;(@]|$)", value)
    if not vllm and not image:
        return False
    if vllm:
        said.add_distribution("vllm", vllm)
    said.tell("system.container", "docker", value[:80])
    return True


WHEEL = re.compile(r"([A-Za-z0-9][\w.]{0,60})-(\d[\w.+!]{0,60})(?:-\d\w{0,20})?-\w{2,20}-\w{2,20}-[\w.]{3,80}\.whl\b")


def _tell_installation(said: Said, value: str) -> bool:
    """Pins of an install command, and a wheel by its file name, which stays as the distribution's source."""
    wheel = WHEEL.search(value)
    if wheel:
        return said.add_distribution(wheel[1], wheel[2], wheel[0])
    pins = re.findall(r"\b([A-Za-z][\w.-]{1,40})(?:\[[\w,]{1,30}\])?==(\d[\w.+!]{0,40})", value)
    told = [said.add_distribution(name, version) for name, version in pins if distribution_name(name) in SPOKEN]
    return any(told)


def _keys(tell: Callable[[Said, str], bool], names: Iterable[str]) -> dict[str, Callable[[Said, str], bool]]:
    return dict.fromkeys(names, tell)


KEYS: dict[str, Callable[[Said, str], bool]] = {
    **_keys(tell_gpus, (
        "gpu", "gpus", "gpu model", "gpu models", "gpu type", "gpu name", "gpu card", "gpu device", "graphics card",
        "graphics cards", "video card", "graphics", "nvidia gpu", "nvidia gpus", "cuda device", "cuda devices",
        "cuda device(s)", "card", "cards", "device name", "accelerator", "hardware", "gpu hardware", "gpu info",
        "gpu(s)", "\u663e\u5361", "\u663e\u5361 version", "gpu version",
    )),
    **_keys(tell_mig, ("mig", "mig mode", "mig enabled", "mig profile")),
    **_keys(tell_capability, (
        "compute capability", "cuda capability", "gpu compute capability", "gpu arch", "gpu architecture",
        "compute cap", "sm", "cc",
    )),
    **_keys(_tell_driver, (
        "driver", "drivers", "nvidia driver", "nvidia drivers", "nvidia-driver", "gpu driver", "cuda driver",
        "nvidia gpu driver", "graphics driver", "nvidia-smi", "nvidia-smi driver", "\u9a71\u52a8",
        "\u9a71\u52a8 version", "\u663e\u5361\u9a71\u52a8",
    )),
    **_keys(_tell_driver_cuda, (
        "cuda (nvidia-smi)", "nvidia-smi cuda", "cuda (driver)", "driver cuda", "cuda driver api",
    )),
    **_keys(_tell_toolkit, (
        "cuda toolkit", "cudatoolkit", "toolkit", "installed cuda", "installed cuda toolkit", "cuda installed",
        "system cuda", "system cuda toolkit", "local cuda", "nvcc", "cuda (nvcc)", "nvcc cuda", "cuda nvcc",
        "cuda toolkit (nvcc)",
    )),
    **_keys(_tell_torch, ("torch", "pytorch", "torch.  version", "torch build", "pytorch build", "pytorch/cuda",
                          "pytorch / cuda")),
    **_keys(_tell_torch_cuda, (
        "torch compiled with", "torch compiled with cuda", "torch cuda", "pytorch cuda", "torch.version.cuda",
        "pytorch compiled with", "pytorch compiled with cuda", "torch built with", "torch built with cuda",
        "pytorch built with cuda", "torch compiled for cuda", "cuda (torch)", "cuda (pytorch)", "cuda of torch",
        "torch was compiled with",
    )),
    **_keys(_tell_python, ("python", "cpython")),
    **_keys(_tell_system, (
        "os", "operating system", "system", "platform", "host", "host os", "distro", "distribution", "linux distro",
        "environment", "os/platform", "os / platform", "\u7cfb\u7edf", "\u64cd\u4f5c\u7cfb\u7edf",
    )),
    **_keys(_tell_parts, ("versions", "version info", "software", "env", "setup", "packages", "dependencies")),
    **_keys(_tell_wsl, ("wsl", "wsl2")),
    **_keys(_tell_glibc, ("glibc", "libc", "gnu libc")),
    **_keys(_tell_architecture, ("arch", "architecture", "cpu architecture", "cpu arch", "machine")),
    **_keys(_tell_available, (
        "torch.cuda.is available()", "torch.cuda.is available", "cuda.is available()", "cuda available",
        "is cuda available", "cuda is available",
    )),
    **_keys(_tell_container, (
        "image", "docker image", "container", "container image", "docker", "vllm image", "base image",
        "docker container",
    )),
    **_keys(_tell_installation, (
        "wheel", "whl", "wheel file", "package", "install", "installation", "installed with", "install method",
        "installed via", "install command", "installation method",
    )),
}  # fmt: skip
