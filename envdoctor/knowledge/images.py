"""Container images: base images of exported environments (images.toml), and what an image's name implies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.releases import optional_specifier, required_specifier
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.torch_builds import torch_releases
from envdoctor.knowledge.versions import MajorMinor, major_minor, satisfies

# Images of an operating system, of Python, and of the CUDA toolkit. Their Dockerfiles install no package with pip:
# gitlab.com/nvidia/container-images/cuda and github.com/docker-library, 2026-11-26.
BARE = frozenset({
    "nvidia/cuda", "nvidia/cudagl", "nvidia/opencl", "ubuntu", "debian", "python", "rockylinux", "almalinux",
    "fedora", "centos", "buildpack-deps",
})  # fmt: skip
RELEASE = r"\d\.\d{1,2}\.\d{1,2}(?:\.?(?:post|rc)\d{1,2})?"
_CUDA = r"(?P<cuda>\d{1,2}\.\d{1,2})(?!\d)"
# Repository -> the versions in its tags, as named groups.
TAGS = {
    "nvidia/pytorch": r"(?P<ngc>\d\d\.\d\d)(?!\d)",
    "nvidia/cuda": r"(?P<cuda>\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)(?![\d.])",
    "pytorch/pytorch": r"(?P<torch>\d\.\d{1,2}\.\d)-cuda(?P<cuda>\d{1,2}\.\d{1,2})-",
    # Torch from pip, with the toolkit of the image. Sources: README.md of the repositories, 2026-11-27.
    "runpod/pytorch": rf"(?P<torch>\d\.\d{{1,2}}\.\d)-py(?P<python>3\.\d{{1,2}})-cuda{_CUDA}",
    "cnstark/pytorch": rf"(?P<torch>\d\.\d{{1,2}}\.\d)-py(?P<python>3\.\d{{1,2}})(?:\.\d{{1,2}})?-cuda{_CUDA}",
    "anibali/pytorch": rf"(?P<torch>\d\.\d{{1,2}}\.\d)-cuda{_CUDA}",
    "vastai/pytorch": rf"(?P<torch>\d\.\d{{1,2}}\.\d)-cuda-?{_CUDA}",
    "vllm/vllm-openai": rf"v?(?P<vllm>{RELEASE})(?![\w.])",
    "lmsysorg/sglang": rf"v?(?P<sglang>{RELEASE})(?![\w.])",
    "python": r"(?P<python>3\.\d{1,2}(?:\.\d{1,2})?)(?:-|$)",
    "huggingface/trl": rf"(?P<trl>{RELEASE})(?![\w.])",
    "huggingface/text-generation-inference": r"(?P<release>\d\.\d{1,2}(?:\.\d{1,2})?)(?![\w.-])",
    "nvidia/nemo": r"(?P<release>\d\d\.\d\d)(?![\d.])",
    "nvidia/nemo-rl": rf"v(?P<release>{RELEASE})(?![\w.])",
}
# The parts of verl's tags: `app-verl0.5-transformers4.55.4-vllm0.10.0-mcore0.13.0`, `ngc-th2.6.0-cu126-vllm0.8.4`.
# Source: docs/start/install.rst at the tags of github.com/volcengine/verl, 2026-11-25.
VERL = ("verlai/verl", "whatcanyousee/verl", "hiyouga/verl")
VERL_PART = lazy_pattern(rf"(?:^|-)(torch|th|vllm|sglang|transformers|cu)(\d{{3}}|{RELEASE}|\d\.\d{{1,2}})(?=-|$)")
# The parts of AMD's tags: `rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0`, `rocm6.4.1_vllm_0.9.1_20250715`.
# Source: rocm.docs.amd.com, installation of PyTorch and vLLM inference, as of 2025-07.
ROCM_PART = lazy_pattern(
    r"rocm(?P<hip>\d\.\d{1,2}(?:\.\d)?)|_py(?P<python>3\.\d{1,2})|pytorch_(?:release[-_])?v?(?P<torch>\d\.\d{1,2}\.\d)"
    r"|vllm[_-]v?(?P<vllm>\d\.\d{1,2}\.\d{1,2})"
)
HOSTS = lazy_pattern(r"^(?:docker\.io/(?:library/)?|nvcr\.io/|ghcr\.io/)")
BUILD = lazy_pattern(r"-cu(\d\d)(\d)(?:-|$)")  # of vLLM's and SGLang's tags
PACKAGES = ("torch", "vllm", "sglang", "trl")
# pip 25.3 is of 2025-10-24, so that earlier images have an older one. NVIDIA's containers contain setuptools and
# wheel; those of PyTorch have them from conda, up to https://github.com/pytorch/pytorch/pull/169873 of 2025-12-08.
_LAST_NGC_WITH_OLD_PIP = "25.10"
_LAST_TORCH_WITH_OLD_PIP = "2.9.0"
# python3-pip of these is 20.0.2, 22.0.2 and 24.0, and requires setuptools and wheel: packages.ubuntu.com, 2026-11-26.
UBUNTU_WITH_OLD_PIP = frozenset({"ubuntu20.04", "ubuntu22.04", "ubuntu24.04"})
UBUNTU = lazy_pattern(r"ubuntu[-_]?(\d\d)\.?04")


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


class ImageSystem(TableRow, frozen=True, kw_only=True):
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


class NgcGpus(TableRow, frozen=True, kw_only=True):
    """The compute capabilities that NVIDIA documents for its PyTorch containers from a release on."""

    first: str  # tag
    oldest: str  # "7.5"
    newest: str

    def includes(self, capability: MajorMinor) -> bool:
        """Whether a GPU with this capability is documented; the newest number stands for its major version."""
        return major_minor(self.oldest) <= capability and capability[0] <= major_minor(self.newest)[0]


class NgcConstraints(TableRow, frozen=True, kw_only=True):
    """NVIDIA's PyTorch containers from a release on have /etc/pip/constraint.txt, which PIP_CONSTRAINT names."""

    first: str  # tag


class ReleasedImage(TableRow, frozen=True, kw_only=True):
    """Releases of an image whose contents are known. Without `torch` it has the one that its vLLM requires."""

    repository: str
    versions: str  # specifier
    torch: str = ""
    cuda: str = ""  # of torch
    python: str = ""
    system: str = ""
    packages: dict[str, str] = {}


class ImageContents(NamedTuple):
    """The facts that an image's name implies; an empty text is unknown. `versions` has torch and other packages."""

    system: ImageSystem | None = None
    python: str = ""
    cuda: str = ""  # of torch and of the toolkit, if the image has them
    has_nvcc: bool = False
    versions: dict[str, str] = {}
    release: str = ""  # the version in the tag


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


def ngc_tag_of(torch: str) -> str:
    """The tag of the container that a torch version is of: "25.08" of "2.8.0a0+34c6371d24.nv25.8"; else empty."""
    suffix = re.search(r"\.nv(\d\d)\.(\d{1,2})$", torch)
    row = None if suffix else ngc_image_of(torch)
    return f"{suffix[1]}.{int(suffix[2]):02}" if suffix else row.tag if row else ""


def ngc_gpus(tag: str) -> NgcGpus | None:
    """The compute capabilities of the container with this tag; None for tags before the table."""
    rows = load_table("ngc_images.toml", tuple[NgcGpus, ...], "gpus")
    return next((row for row in reversed(rows) if row.first <= tag), None)


def ngc_has_constraints(tag: str) -> bool:
    """Whether pip of the container with this tag reads a file that pins the packages of the container."""
    rows = load_table("ngc_images.toml", tuple[NgcConstraints, ...], "constraints")
    return any(row.first <= tag for row in rows)


def has_old_pip(name: str, tag: str) -> bool:
    """Whether an image has a pip from before 25.3, which builds without isolation if there is no pyproject.toml."""
    repository = known_repository(name)
    match = re.match(TAGS.get(repository, "(?!)"), tag)
    if repository == "nvidia/pytorch" and match:
        return match["ngc"] <= _LAST_NGC_WITH_OLD_PIP
    torch = match["torch"] if repository == "pytorch/pytorch" and match else "99"
    return satisfies(torch, f"<={_LAST_TORCH_WITH_OLD_PIP}") is True


def ngc_image_for(capability: MajorMinor) -> NgcImage | None:
    """The newest container that NVIDIA documents for a compute capability."""
    rows = reversed(ngc_images())
    return next((row for row in rows if (gpus := ngc_gpus(row.tag)) and gpus.includes(capability)), None)


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


def known_repository(name: str) -> str:
    """The repository of the tables that a name, also one on a mirror, is a copy of; empty if there is none."""
    return next((key for key in (*TAGS, *VERL) if f"/{name}".endswith(f"/{key}")), "")


def image_contents(name: str, tag: str) -> ImageContents:
    """The contents of an image, also on a mirror, from its name and tag and the tables of releases."""
    system = system_of_image(f"{name}:{tag}")
    repository = known_repository(name)
    if repository in VERL:
        return _contents_of_verl(tag)
    match = re.match(TAGS.get(repository, "(?!)"), tag)
    found: dict[str, str] = match.groupdict() if match else {}
    row = next((row for row in ngc_images() if row.tag == found.get("ngc")), None)
    if row:
        system = system_of_image(row.system)
        python = system.python if system else ""
        return ImageContents(system, python, row.cuda, True, {"torch": row.build}, row.tag)
    versions = {key: value for key, value in found.items() if key in PACKAGES}
    build = BUILD.search(tag)
    cuda = f"{build[1]}.{build[2]}" if build else found.get("cuda", "")
    release = next(iter(found.values()), "")
    contents = ImageContents(system, found.get("python", ""), cuda, "devel" in tag, versions, release)
    return _with_release(contents, repository)


def is_bare_image(image: str) -> bool:
    """Whether an image contains no Python packages except pip and its own: `nvidia/cuda:12.4.1-devel-ubuntu22.04`."""
    repository = public_repository(image.partition("@")[0].rpartition(":")[0] or image)
    return repository.removeprefix("library/") in BARE


def rocm_contents(tag: str) -> dict[str, str]:
    """The versions in the tag of an image of AMD: `hip`, `python`, `torch` and `vllm`, as far as it names them."""
    return {name: text for part in ROCM_PART.finditer(tag) for name, text in part.groupdict().items() if text}


def released_images(repository: str) -> tuple[ReleasedImage, ...]:
    """The rows of a repository, in the order of its releases."""
    rows = load_table("image_releases.toml", tuple[ReleasedImage, ...], "image")
    return tuple(row for row in rows if row.repository == repository)


def _with_release(contents: ImageContents, repository: str) -> ImageContents:
    """Add what the table of released images has about the version in the tag."""
    rows = released_images(repository)
    row = next((row for row in rows if satisfies(contents.release, row.versions)), None)
    row = row or ReleasedImage(repository=repository, versions="", source="", date="")
    torch = row.torch or _torch_of_engine(contents.versions, contents.cuda)
    return contents._replace(
        system=contents.system or system_of_image(row.system),
        python=contents.python or row.python,
        cuda=contents.cuda or row.cuda,
        versions=({"torch": torch} if torch else {}) | contents.versions | row.packages,
    )


def _torch_of_engine(versions: Mapping[str, str], cuda: str) -> str:
    """The torch that vLLM or SGLang requires. SGLang's images for CUDA 13 have another one (docker/Dockerfile)."""
    pin = required_specifier("vllm", versions.get("vllm", ""), "torch")
    if "sglang" in versions and cuda.startswith("12."):
        pin = optional_specifier("sglang", versions["sglang"], "torch") or required_specifier(
            "sglang", versions["sglang"], "torch"
        )
    return pin.removeprefix("==") if re.fullmatch(r"==[\d.]+", pin) else ""


def _contents_of_verl(tag: str) -> ImageContents:
    versions: dict[str, str] = {}
    cuda = ""
    for kind, value in VERL_PART.findall(tag):
        if kind == "cu":
            cuda = f"{value[:2]}.{value[2:]}"
        else:
            versions[{"th": "torch"}.get(kind, kind)] = value
    torch = versions.pop("torch", "")
    if torch.count(".") == 1:  # "2.6" is 2.6.0 if that line has no other release
        line = torch_releases().get(torch)
        torch = line.latest if line and line.latest == f"{torch}.0" else ""
    torch = torch or _torch_of_engine(versions, cuda)
    return ImageContents(cuda=cuda, versions=versions | ({"torch": torch} if torch else {}))
