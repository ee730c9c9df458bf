"""`Section`: the facts that one parser reads from a pasted text. Helpers for versions, sizes and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Distribution, Fact, absent, known, unreadable

MISSING_VALUES = frozenset({
    "", "n/a", "na", "none", "could not collect", "not installed", "not found", "no cuda", "unknown", "null",
    "module not found", "not installed (na)", "[n/a]", "[not supported]", "not set", "<fill in>", "not available",
})  # fmt: skip
# Other names of packages, and the names of their distributions.
DISTRIBUTION_ALIASES = {
    "pytorch": "torch", "hf-hub": "huggingface-hub", "flash-attention": "flash-attn",
    "flash-attention-2": "flash-attn", "xformer": "xformers", "liger": "liger-kernel", "pil": "pillow",
    "zmq": "pyzmq", "multipart": "python-multipart", "hugging-face-hub": "huggingface-hub",
    "flashattn": "flash-attn", "flashattention": "flash-attn", "flash-attn2": "flash-attn",
    "flashattention2": "flash-attn", "flash-attention2": "flash-attn", "flashattention-2": "flash-attn",
    "onnx-runtime": "onnxruntime", "onnx-runtime-gpu": "onnxruntime-gpu", "onnx-gpu": "onnxruntime-gpu",
    "tf": "tensorflow", "pyg": "torch-geometric", "pytorch-geometric": "torch-geometric", "bnb": "bitsandbytes",
    "paddle-gpu": "paddlepaddle-gpu", "huggingface-transformers": "transformers", "hf-transformers": "transformers",
    "pytorch-scatter": "torch-scatter", "pytorch-sparse": "torch-sparse", "torch-vision": "torchvision",
    "torch-audio": "torchaudio", "deep-speed": "deepspeed",
}  # fmt: skip


# What a text contains if a value was cut: no driver has a number of one digit after the first dot, no build of torch
# since CUDA 10 has two digits.
CUT_DRIVER_VERSION = lazy_pattern(r"\.\d(?:\.|$)")
CUT_BUILD = lazy_pattern(r"\+c(?:p|u(?:[2-7]?|1\d?|(?!\d{2,3}\b)\w{1,40}))?$")


class Line(NamedTuple):
    """One line of a pasted text without log prefixes and quote marks, split at its first colon."""

    number: int
    text: str
    key: str = ""  # lower case; empty if the line has no colon
    value: str = ""


class Section:
    """The facts that one parser read. The first known value of a fact is kept.

    Facts are keyed by their path in the records (`driver.version`), and GPU facts by index and field. `consumed`
    holds the numbers of the lines that belong to this section.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.facts: dict[str, Fact[Any]] = {}
        self.distributions: dict[str, Distribution] = {}
        self.versions: dict[str, list[str]] = {}  # every version of a distribution, of which the first is kept
        self.environment: dict[str, str] = {}
        self.gpus: dict[int, dict[str, Fact[Any]]] = {}
        self.consumed: set[int] = set()

    @property
    def source(self) -> str:
        """The source of the facts. Rules recognise pasted facts by the prefix `report`."""
        return f"report: {self.kind}"

    def set_fact(self, path: str, value: Any, note: str = "") -> None:
        """Record a known value; None, an empty text and the start of a driver's version are ignored."""
        if path == "driver.version" and CUT_DRIVER_VERSION.search(value or ""):
            return
        if path == "stack.torch.version":
            value = without_cut_build(value or "")
        current = self.facts.get(path)
        if value not in (None, "") and (current is None or current.state != "known"):
            self.facts[path] = known(value, self.source, note)

    def set_absent(self, path: str, note: str) -> None:
        """Record that the reporting tool searched for this and did not find it."""
        self.facts.setdefault(path, absent(self.source, note))

    def set_unreadable(self, path: str, note: str) -> None:
        """Record that the reporting tool could not read this.

        The source is the bare `report` unless NVML gave the reason. Rules about a driver that does not respond
        apply to live machines only, and recognise a report by that source.
        """
        self.facts.setdefault(path, unreadable(self.source if "NVML error" in note else "report", note))

    def set_gpu_fact(self, index: int, field: str, value: Any, note: str = "") -> None:
        """Record a known value for one GPU; None and an empty text are ignored."""
        if value not in (None, ""):
            self.gpus.setdefault(index, {}).setdefault(field, known(value, self.source, note))

    def add_distribution(self, name: str, version: str, source: str = "pip", location: str = "") -> bool:
        """Record an installed distribution. Returns False if the version is not a PEP 440 version."""
        name, version = distribution_name(name), without_cut_build(version)
        if not name or name[0] == "-" or not is_version(version):  # conda's `_libgcc_mutex` is not a distribution
            return False
        self.versions.setdefault(name, []).append(version)
        self.distributions.setdefault(
            name, Distribution(name=name, version=version, source=source, location=location)
        )
        return True

    def remove_distribution(self, name: str) -> None:
        """Forget a distribution that a later command replaced."""
        self.distributions.pop(distribution_name(name), None)
        self.versions.pop(distribution_name(name), None)


def without_cut_build(version: str) -> str:
    """The version without a part that is not complete: `2.7.1+cu12` is the start of `2.7.1+cu128`, 3.3 of `3.3.x`."""
    return CUT_BUILD.sub("", version.removesuffix(".x"))


def distribution_name(text: str) -> str:
    """The normalized name: `Flash_Attn` is flash-attn, `PyTorch` is torch."""
    name = re.sub(r"[-_. ]+", "-", text.strip().lower())
    return DISTRIBUTION_ALIASES.get(name, name)


@lru_cache(maxsize=4096)
def is_version(text: str) -> bool:
    """Whether a text is a PEP 440 version. Conda's `1.1.1w` is not."""
    if len(text) > 80:
        return False
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def is_missing(value: str) -> bool:
    """Whether a text means that there is no value, such as `N/A`."""
    return value.strip().lower() in MISSING_VALUES


def truth_of(value: str) -> bool | None:
    """True or False of a line of collect_env, which up to torch 1.6 prints Yes or No; None of another value."""
    return {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().lower())


def first_group(pattern: str, text: str) -> str:
    """The first non-empty group of the first match, or an empty text."""
    match = re.search(pattern, text)
    return next((group for group in match.groups() if group), "") if match else ""


def dotted_version(digits: str) -> str:
    """A version without its dot, as in `cu128` or `sm_120`: `128` -> `12.8`. Empty for an empty text."""
    return f"{digits[:-1]}.{digits[-1]}" if digits else ""


UNIT_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str, unit: str = "") -> int | None:
    """Bytes of `143771MiB`, `125.77 GB` or `64M`. Units are powers of two, as in nvidia-smi, df and DeepSpeed."""
    match = re.match(r"([\d.]{1,15})\s?([kKmMgGtT]?)i?B?", text.strip())
    if not match or match[1].count(".") > 1 or match[1].strip(".") == "":
        return None
    return int(float(match[1]) * (1 << UNIT_SHIFTS[(match[2] or unit).lower()]))


def parse_number(text: str, convert: Callable[[str], Any] = int) -> Any:
    """The number at the start of `77 W`, `31C` or `16x`; None if the text does not start with a number."""
    match = re.match(r"-?\d{1,15}(?:\.\d{1,6})?", text.strip())
    return convert(match[0] if convert is float else match[0].partition(".")[0]) if match else None
