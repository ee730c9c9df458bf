"""What decides whether a container of an image starts: image_starts.toml, and the syntax of NVIDIA_REQUIRE_CUDA."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import dotted_numbers, major_minor, satisfies

# Brands of NVML by the kind of a GPU. The container runtime compares the brand of each GPU.
BRANDS = {
    "data-centre": ("tesla", "nvidia"),
    "workstation": ("quadro", "quadrortx", "nvidiartx"),
    "consumer": ("geforce", "geforcertx", "titan", "titanrtx"),
}
LISTED_BRANDS = (*BRANDS["data-centre"], *BRANDS["workstation"])
# Suffixes of tags for one CPU architecture. `igpu` and `l4t` are for Jetson.
SUFFIXES = {
    "x86_64": r"x86_64|amd64|x86",
    "aarch64": r"aarch64|arm64|sbsa|gb200|gh200|igpu",
}
COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt, "=": operator.eq,
}  # fmt: skip
CONDITION = lazy_pattern(r"(?P<name>[a-z]+)(?P<operator>>=|<=|!=|=|>|<)(?P<value>[\w.]+)")
NUMBERS = lazy_pattern(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")


class StartRequirement(TableRow, frozen=True, kw_only=True):
    """NVIDIA_REQUIRE_CUDA of nvidia/cuda for one CUDA release."""

    cuda: str
    branches: tuple[int, ...]
    geforce: bool
    data_centre: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The value of the variable, with each brand once."""
        brands = (*LISTED_BRANDS, *(BRANDS["consumer"] if self.geforce else ()))
        rows = [("tesla", branch) for branch in self.data_centre]
        rows += [(brand, branch) for branch in self.branches for brand in brands]
        listed = (f"brand={brand},driver>={branch},driver<{branch + 1}" for brand, branch in rows)
        return " ".join((f"cuda>={self.cuda}", *listed))


class ImageBase(TableRow, frozen=True, kw_only=True):
    """Images with the variables of nvidia/cuda, or with a requirement of their own."""

    repository: str
    tag: str = ""
    require: str = ""  # empty: that of nvidia/cuda for the image's CUDA
    compat: tuple[str, ...]


class ImagePlatform(TableRow, frozen=True, kw_only=True):
    """The CPU architectures of a repository's tags."""

    repository: str
    tag: str = ""
    versions: str = ""
    architectures: tuple[str, ...]


class CompatPath(TableRow, frozen=True, kw_only=True):
    """Images that put cuda-compat before every driver, by a file of the loader's configuration."""

    repository: str
    versions: str
    file: str


class StartTables(Record, frozen=True, kw_only=True):
    """The tables of image_starts.toml."""

    requirement: tuple[StartRequirement, ...]
    base: tuple[ImageBase, ...]
    platform: tuple[ImagePlatform, ...]
    compat_path: tuple[CompatPath, ...]


def _tables() -> StartTables:
    return load_table("image_starts.toml", StartTables)


def image_base(repository: str, tag: str) -> ImageBase | None:
    """The row of a public repository; None if it is not known what its images inherit."""
    rows = (row for row in _tables().base if row.repository == repository and re.search(row.tag, tag))
    return next(rows, None)


def start_requirement(repository: str, tag: str, cuda: str) -> str:
    """NVIDIA_REQUIRE_CUDA of an image; empty if it is not known."""
    base = image_base(repository, tag)
    if base is None or base.require:
        return base.require if base else ""
    row = next((row for row in _tables().requirement if major_minor(row.cuda) == major_minor(cuda or "0")), None)
    return row.text if row else ""


def compat_path(repository: str, version: str) -> str:
    """The file that puts cuda-compat before every driver in an image of this version; empty if there is none."""
    rows = (row for row in _tables().compat_path if row.repository == repository and version)
    return next((row.file for row in rows if satisfies(version, row.versions) is True), "")


def image_architectures(repository: str, tag: str, version: str) -> tuple[str, ...]:
    """The CPU architectures of a tag; empty if they are not known."""
    for architecture, suffix in SUFFIXES.items():
        if re.search(rf"(?:^|[-_])(?:{suffix})(?:$|[-_])", tag):
            return (architecture,)
    for row in _tables().platform:
        in_range = not row.versions or (bool(version) and satisfies(version, row.versions) is True)
        if row.repository == repository and in_range and re.search(row.tag, tag):
            return row.architectures
    return ()


def start_condition(require: str, properties: Mapping[str, str | tuple[str, ...]]) -> bool | None:
    """Whether a value of NVIDIA_REQUIRE_CUDA holds: alternatives at blanks, of conditions at commas.

    `properties` has `cuda` and `driver` of the driver, `arch`, and `brand`, which may be several names. None if a
    condition on another property, or one without a version, decides.
    """
    results = [_alternative(text, properties) for text in require.split()]
    return True if True in results or not results else None if None in results else False


def _alternative(text: str, properties: Mapping[str, str | tuple[str, ...]]) -> bool | None:
    results = [_condition(part, properties) for part in text.split(",")]
    return False if False in results else None if None in results else True


def _condition(text: str, properties: Mapping[str, str | tuple[str, ...]]) -> bool | None:
    match = CONDITION.fullmatch(text)
    if not match or not (actual := properties.get(match["name"])):
        return None
    if isinstance(actual, tuple):
        return (match["value"].lower() in actual) == (match["operator"] != "!=")
    if not NUMBERS.fullmatch(match["value"]):  # nothing is compared with an invalid version
        return None
    expected = dotted_numbers(match["value"])
    return COMPARISONS[match["operator"]](dotted_numbers(actual)[: len(expected)], expected)
