"""Parser for hand-written GPU descriptions: `2x RTX 5090 (32 GB each)`, `H100, MIG enabled (2g.20gb)`, `sm_61`."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.gpus import OTHER_BRANDS, compute_capability, parse_gpu_phrase
from envdoctor.reports.section import Section, first_group

CAPABILITY = lazy_pattern(
    r"\b(?:sm_?|SM)(\d{1,2})(\d)\b|(?:\bCC|[Cc]apability|[Cc]ompute(?: cap(?:ability)?)?)[ :=]{0,3}(\d{1,2})\.(\d)\b"
)
MIG_PROFILE = lazy_pattern(r"\b\d{1,2}[cg]\.[\w.+]{2,20}")
PARENTHESES = lazy_pattern(r"\([^()]{0,120}\)")
MAX_GPUS = 64


def record_gpus(section: Section, value: str) -> bool:
    """Record the GPUs of a phrase, with MIG mode and compute capability. Returns False if it names no GPU."""
    capability = _capability(value)
    value = re.sub(r"[\[\]\"']", "", value) if value[:1] == "[" else value  # a list of JSON or Python
    value = value.partition(" | ")[0]  # `NVIDIA GB200 | SM100 | 152 SMs | 184.3 GiB` of FlashInfer
    parts = re.split(
        r"\s*(?:[,;+/]|\band\b|&)\s*", PARENTHESES.sub(lambda match: re.sub("[,;+/&]", " ", match[0]), value)
    )
    names = [name for part in parts for name in _names(part)][:MAX_GPUS]
    names = names or [name for text in PARENTHESES.findall(value) for name in _names(text.strip("()").split(",")[0])]
    if not names and not capability:
        if other := OTHER_BRANDS.search(value):
            section.set_absent("gpus", f"no NVIDIA GPU, but {value[other.start() : other.start() + 60]}")
        return other is not None
    first = len(section.gpus)
    for index, name in enumerate(names, first):
        section.set_gpu_fact(index, "name", name)
    for index in range(first, first + max(len(names), 1)):
        if capability and len(set(names)) <= 1:
            section.set_gpu_fact(index, "compute_capability", capability)
    record_mig(section, first_group(r"(?i)\b(mig\b.{0,80})", value).removeprefix("MIG").strip())
    return True


def _names(part: str) -> list[str]:
    """The names in one part, repeated by its count. Names that are not in the GPU table are dropped."""
    count = first_group(r"\((?:x ?)?(\d)(?: ?x)?\)$", part.strip())  # `RTX 3090 (x2)`
    text = re.sub(r"\s*" + PARENTHESES.pattern, "", part).strip(" .:-")
    text = re.sub(r"^(\d{1,2}) (?=[A-Za-z])", r"\1x ", text)
    text = re.sub(r"\s+(?:each|(?<!Laptop )GPUs?|cards?|with|in)\b.{0,60}$|,?\s+\d{1,3} ?Gi?B(?: VRAM)?$", "", text)
    names = [name for name in parse_gpu_phrase(text) if compute_capability(name)]
    return names * int(count) if count and len(names) == 1 else names


def _capability(value: str) -> str:
    match = CAPABILITY.search(value)
    parts = [part for part in match.groups() if part] if match else []
    return ".".join(parts)


def record_compute_capability(section: Section, value: str) -> bool:
    """Record `8.6`, `sm_120` or `12.0 (Blackwell)` for all recorded GPUs, or for one unnamed GPU."""
    capability = first_group(r"^(\d{1,2}\.\d)\b", value) or _capability(value)
    for index in section.gpus or (0,) if capability else ():
        section.set_gpu_fact(index, "compute_capability", capability)
    return bool(capability)


def record_mig(section: Section, value: str) -> bool:
    """Record `enabled (2g.20gb)`, `2g.10gb` or `disabled` for all recorded GPUs. Returns False for other values."""
    off = re.match(r"(?i)(?:mode[: ]*)?(?:off|disabled|no\b|false|n/a)", value)
    profile = MIG_PROFILE.search(value)
    on = re.match(r"(?i)(?:mode[: ]*)?(?:is )?(?:on\b|enabled|yes|true)", value) or profile
    if not off and not on:
        return False
    for index in section.gpus or (0,):
        section.set_gpu_fact(index, "mig", not off, f"instances: {profile[0]}" if profile else "")
    return True
