"""What the parsers of pasted text gather: facts by path, and the lines they were read from."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from envdoctor.core.records import Distribution, Fact, absent, known, unreadable

NOTHING = frozenset({
    "", "n/a", "na", "none", "could not collect", "not installed", "not found", "no cuda", "unknown", "null",
    "module not found", "not installed (na)", "[n/a]", "[not supported]", "not set", "<fill in>", "not available",
})  # fmt: skip
# Names under which a package is spoken of, and the distribution's.
DISTRIBUTION_NAMES = {
    "pytorch": "torch",
    "hf-hub": "huggingface-hub",
    "flash-attention": "flash-attn",
    "flash-attention-2": "flash-attn",
    "xformer": "xformers",
    "liger": "liger-kernel",
    "pil": "pillow",
    "zmq": "pyzmq",
    "multipart": "python-multipart",
    "hugging-face-hub": "huggingface-hub",
}


class Line(NamedTuple):
    """One line of a paste without what stands before it (prompts of a log, quotes), split at its first colon."""

    number: int
    text: str
    key: str = ""  # lower case, empty without a colon
    value: str = ""


class Said:
    """What one parser read; the first clear value of a fact stays."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.facts: dict[str, Fact[Any]] = {}
        self.distributions: dict[str, Distribution] = {}
        self.environment: dict[str, str] = {}
        self.gpus: dict[int, dict[str, Fact[Any]]] = {}
        self.lines: set[int] = set()

    @property
    def source(self) -> str:
        """The source of its facts, which starts with `report` as the contract asks."""
        return f"report: {self.kind}"

    def tell(self, path: str, value: Any, note: str = "") -> None:
        """A value that was read; one that is none or empty is no value."""
        standing = self.facts.get(path)
        if value not in (None, "") and (standing is None or standing.state != "known"):
            self.facts[path] = known(value, self.source, note)

    def deny(self, path: str, note: str) -> None:
        """What the report's own tool looked for and did not find."""
        self.facts.setdefault(path, absent(self.source, note))

    def fail(self, path: str, note: str) -> None:
        """What the report's own tool could not read.

        The source is the bare `report` unless NVML gave the reason: rules on a driver that does not answer are for
        live machines, and know a report by that.
        """
        self.facts.setdefault(path, unreadable(self.source if "NVML error" in note else "report", note))

    def tell_gpu(self, index: int, field: str, value: Any, note: str = "") -> None:
        """A fact of one GPU."""
        if value not in (None, ""):
            self.gpus.setdefault(index, {}).setdefault(field, known(value, self.source, note))

    def add_distribution(self, name: str, version: str, source: str = "pip") -> bool:
        """An installed distribution; False where this is no version that Python's packaging knows."""
        name = distribution_name(name)
        if not name or name[0] == "-" or not is_version(version):  # conda's `_libgcc_mutex` is no distribution
            return False
        self.distributions.setdefault(name, Distribution(name=name, version=version, source=source))
        return True


def distribution_name(text: str) -> str:
    """The normalised name: `Flash_Attn` is flash-attn, `PyTorch` torch."""
    name = re.sub(r"[-_. ]+", "-", text.strip().lower())
    return DISTRIBUTION_NAMES.get(name, name)


@lru_cache(maxsize=4096)
def is_version(text: str) -> bool:
    """Whether rules may compare it: conda's `1.1.1w` is none."""
    if len(text) > 80:
        return False
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def is_nothing(value: str) -> bool:
    """Whether a value only says that there is none."""
    return value.strip().lower() in NOTHING


def find(pattern: str, text: str) -> str:
    """The first group of a pattern that took part, or empty."""
    found = re.search(pattern, text)
    return next((group for group in found.groups() if group), "") if found else ""


UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str, unit: str = "") -> int | None:
    """Bytes of `143771MiB`, `125.77 GB`, `64M`; powers of two, as nvidia-smi, df and DeepSpeed mean them."""
    found = re.match(r"([\d.]{1,15})\s?([kKmMgGtT]?)i?B?", text.strip())
    if not found or found[1].count(".") > 1 or found[1].strip(".") == "":
        return None
    return int(float(found[1]) * (1 << UNITS[(found[2] or unit).lower()]))


def parse_number(text: str, convert: Callable[[str], Any] = int) -> Any:
    """The number at the start of `77 W`, `31C` or `16x`; None where there is none."""
    found = re.match(r"-?\d{1,15}(?:\.\d{1,6})?", text.strip())
    return convert(found[0] if convert is float else found[0].partition(".")[0]) if found else None
