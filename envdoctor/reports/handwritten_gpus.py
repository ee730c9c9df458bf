"""GPUs as people write them by hand: `2x RTX 5090 (32 GB each)`, `H100, MIG enabled (2g.20gb)`, `Pascal, sm_61`."""

from __future__ import annotations

import re

from envdoctor.reports.gpus import compute_capability, parse_gpu_phrase
from envdoctor.reports.section import Said, find

CAPABILITY = re.compile(
    r"\bsm_?(\d{1,2})(\d)\b|(?:\bCC|[Cc]apability|[Cc]ompute(?: cap(?:ability)?)?)[ :=]{0,3}(\d{1,2})\.(\d)\b"
)
PROFILE = re.compile(r"\b\d{1,2}[cg]\.[\w.+]{2,20}")
INSIDE = re.compile(r"\([^()]{0,120}\)")
MAX_GPUS = 64


def tell_gpus(said: Said, value: str) -> bool:
    """The GPUs of a phrase, one after the other; False where none is in it. MIG and a capability may stand beside."""
    capability = _capability(value)
    parts = re.split(r"\s*(?:[,;+/]|\band\b|&)\s*", INSIDE.sub(lambda found: re.sub("[,;+/&]", " ", found[0]), value))
    names = [name for part in parts for name in _names(part)][:MAX_GPUS]
    names = names or [name for inside in INSIDE.findall(value) for name in _names(inside.strip("()").split(",")[0])]
    if not names and not capability:
        return False
    first = len(said.gpus)
    for index, name in enumerate(names, first):
        said.tell_gpu(index, "name", name)
    for index in range(first, first + max(len(names), 1)):
        if capability and len(set(names)) <= 1:
            said.tell_gpu(index, "compute_capability", capability)
    tell_mig(said, find(r"(?i)\b(mig\b.{0,80})", value).removeprefix("MIG").strip())
    return True


def _names(part: str) -> list[str]:
    """The names in one part, as often as it counts them; only names whose GPU is known."""
    count = find(r"\((?:x ?)?(\d)(?: ?x)?\)$", part.strip())  # `RTX 3090 (x2)`
    plain = re.sub(r"\s*" + INSIDE.pattern, "", part).strip(" .:-")
    plain = re.sub(r"^(\d{1,2}) (?=[A-Za-z])", r"\1x ", plain)
    plain = re.sub(r"\s+(?:each|(?<!Laptop )GPUs?|cards?|with|in)\b.{0,60}$|,?\s+\d{1,3} ?Gi?B(?: VRAM)?$", "", plain)
    found = [name for name in parse_gpu_phrase(plain) if compute_capability(name)]
    return found * int(count) if count and len(found) == 1 else found


def _capability(value: str) -> str:
    found = CAPABILITY.search(value)
    parts = [part for part in found.groups() if part] if found else []
    return ".".join(parts)


def tell_capability(said: Said, value: str) -> bool:
    """`8.6`, `sm_120`, `12.0 (Blackwell)`: of every GPU that was named, or of one without a name."""
    found = find(r"^(\d{1,2}\.\d)\b", value) or _capability(value)
    for index in said.gpus or (0,) if found else ():
        said.tell_gpu(index, "compute_capability", found)
    return bool(found)


def tell_mig(said: Said, value: str) -> bool:
    """`enabled (2g.20gb)`, `2g.10gb`, `disabled`, of every GPU that was named."""
    off = re.match(r"(?i)(?:mode[: ]*)?(?:off|disabled|no\b|false|n/a)", value)
    profile = PROFILE.search(value)
    on = re.match(r"(?i)(?:mode[: ]*)?(?:is )?(?:on\b|enabled|yes|true)", value) or profile
    if not off and not on:
        return False
    for index in said.gpus or (0,):
        said.tell_gpu(index, "mig", not off, f"instances: {profile[0]}" if profile else "")
    return True
