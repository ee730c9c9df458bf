"""Container images: base images of exported environments (images.toml), and what an image's name implies."""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import major_minor

RELEASE = r"\d\.\d{1,2}\.\d{1,2}(?:\.?(?:post|rc)\d{1,2})?"
# Repository -> the versions in its tags, as named groups.
TAGS = {
    "nvidia/pytorch": r"(?P<ngc>\d\d\.\d\d)(?!\d)",
    "nvidia/cuda": r"(?P<cuda>\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)(?![\d.])",
    "pytorch/pytorch": r"(?P<torch>\d\.\d{1,2}\.\d)-cuda(?P<cuda>\d{1,2}\.\d{1,2})-",
    "vllm/vllm-openai": rf"v?(?P<vllm>{RELEASE})(?![\w.])",
    "lmsysorg/sglang": rf"v?(?P<sglang>{RELEASE})(?![\w.])",
    "python": r"(?P<python>3\.\d{1,2}(?:\.\d{1,2})?)(?:-|$)",
}
HOSTS = re.compile(r"^(?:docker\.io/(?:library/)?|nvcr\.io/)")
UBUNTU = re.compile(r"ubuntu[-_]?(\d\d)\.?04")


class CudaImage(TableRow, frozen=True, kw_only=True):
    """A release of nvidia/cuda for one CUDA build and operating system."""

    build: str
    version: str
    system: str


class PythonImage(TableRow, frozen=True, kw_only=True):
    """A variant of the official Python image."""

    tag: str
    system: str


class UvImage(TableRow, frozen=True, kw_only=True):
    """The images of uv: one that contains only the program, and one with an operating system."""

    program: str
    system: str


class NvccUser(TableRow, frozen=True, kw_only=True):
    """A package that compiles CUDA code at run time."""

    name: str


class ImageSystem(Record, frozen=True, kw_only=True):
    """An operating system of images, with its glibc and Python."""

    name: str
    glibc: str
    python: str


class NgcImage(TableRow, frozen=True, kw_only=True):
    """A release of NVIDIA's PyTorch container: `tag` is 25.08, `torch` 2.8.0a0+34c6371d24, `system` ubuntu24.04."""

    tag: str
    cuda: str
    torch: str
    system: str

    @property
    def build(self) -> str:
        """The version that torch has in the container: "2.8.0a0+34c6371d24.nv25.08"; before 24.03 without suffix."""
        return f"{self.torch}.nv{self.tag}" if self.tag >= "24.03" else self.torch


class ImageContents(NamedTuple):
    """The facts that an image's name implies; an empty text is unknown. `versions` has torch, vllm and sglang."""

    system: ImageSystem | None = None
    python: str = ""
    cuda: str = ""  # of torch and of the toolkit, if the image has them
    has_nvcc: bool = False
    versions: dict[str, str] = {}


class ImageTables(Record, frozen=True, kw_only=True):
    """The tables of images.toml."""

    cuda: tuple[CudaImage, ...]
    python: tuple[PythonImage, ...]
    uv: tuple[UvImage, ...]
    nvcc: tuple[NvccUser, ...]
    system: tuple[ImageSystem, ...]


def image_tables() -> ImageTables:
    """The content of images.toml."""
    return load_table("images.toml", ImageTables)


def ngc_images() -> tuple[NgcImage, ...]:
    """NVIDIA's PyTorch containers, oldest first."""
    return load_table("ngc_images.toml", tuple[NgcImage, ...], "image")


def ngc_image_of(torch: str) -> NgcImage | None:
    """The container that a torch version with a commit is of: "2.8.0a0+34c6371d24.nv25.8"; None for a release."""
    commits = (row for row in ngc_images() if "+" in row.torch)
    return next((row for row in commits if re.match(rf"{re.escape(row.torch)}(?:\.nv|$)", torch)), None)


def first_ngc_image(cuda: str) -> NgcImage | None:
    """The oldest of NVIDIA's PyTorch containers with a CUDA release, "12.8"."""
    return next((row for row in ngc_images() if major_minor(row.cuda) == major_minor(cuda)), None)


def system_of_image(text: str) -> ImageSystem | None:
    """The operating system in an image's name and tag: `12.8.0-devel-ubuntu22.04`, `ubuntu:20.04`."""
    plain = UBUNTU.sub(r"ubuntu\1.04", text.replace(":", "").replace("-slim", "").replace("/", ""))
    return next((row for row in image_tables().system if row.name in plain), None)


def public_repository(name: str) -> str:
    """The repository on Docker Hub or NVIDIA's registry: `nvidia/cuda` of `docker.io/nvidia/cuda`."""
    return HOSTS.sub("", name)


def image_contents(name: str, tag: str) -> ImageContents:
    """The contents of an image, also on a mirror, from its name and tag and the table of NVIDIA's containers."""
    system = system_of_image(f"{name}:{tag}")
    pattern = next((pattern for key, pattern in TAGS.items() if f"/{name}".endswith(f"/{key}")), "(?!)")
    match = re.match(pattern, tag)
    found: dict[str, str] = match.groupdict() if match else {}
    row = next((row for row in ngc_images() if row.tag == found.get("ngc")), None)
    if row:
        system = system_of_image(row.system)
        return ImageContents(system, system.python if system else "", row.cuda, True, {"torch": row.build})
    versions = {key: value for key, value in found.items() if key in ("torch", "vllm", "sglang")}
    return ImageContents(system, found.get("python", ""), found.get("cuda", ""), "devel" in tag, versions)
