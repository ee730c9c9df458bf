"""The records of a profile file."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.record import Record

PROFILE_SCHEMA = 1

# Values of transformers' `attn_implementation` that a profile may use as a fallback.
ATTENTIONS = ("flash_attention_3", "flash_attention_2", "sdpa", "eager", "flex_attention")


class When(Record, frozen=True):
    """The machine that a profile needs."""

    architectures: tuple[str, ...]
    glibc: str
    disk_gb: float  # environment and cache, in GiB
    gpus: int = 0  # at least this many
    compute_capability: str = ""  # at least, for every GPU
    gpu_memory_gb: float = 0  # at least, for every GPU, in GiB
    driver: str = ""  # at least, if the stack needs a newer driver than the CUDA build
    driver_recommended: str = ""  # an older driver is accepted with advice
    driver_why: str = ""
    driver_url: str = ""


class Python(Record, frozen=True):
    """The Python versions for which the stack has wheels, preferred first."""

    versions: tuple[str, ...]


class Cuda(Record, frozen=True):
    """The CUDA build of torch. The table of CUDA releases has the driver that it needs."""

    build: str  # "12.8"


class Pin(Record, frozen=True):
    """A requirement or constraint, with its reason."""

    spec: str
    why: str = ""
    url: str = ""


class Source(Record, frozen=True):
    """A package source for torch and its family. Sources are tried in the order of the file.

    `configured`: the indexes that pip or uv are configured to use, otherwise PyPI. `torch-index`: the PyTorch index
    of `backend` (cpu, cu128 ...) for the PyTorch family, and the configured sources for all other packages.
    """

    kind: Literal["configured", "torch-index"]
    backend: str = ""


class Wheel(Record, frozen=True, kw_only=True):
    """A wheel that no index has, with its URL and hash, and the environment that it was built for.

    Wheels of one distribution are tried in the order of the file. An empty condition always holds.
    """

    name: str
    file: str  # the file name, from which pip reads name, version and tags
    url: str
    sha256: str
    python: str = ""  # "3.12"
    architecture: str = ""
    torch: str = ""  # "2.8"
    cuda: str = ""
    glibc: str = ""  # "2.32": the oldest that its symbols require, if the file name does not state it
    abi: Literal["", "TRUE", "FALSE"] = ""  # torch's _GLIBCXX_USE_CXX11_ABI
    why: str = ""


class Build(Record, frozen=True, kw_only=True):
    """Packages that are compiled on the machine. All other packages are only installed as wheels.

    They are built without isolation (--no-build-isolation): against the torch of the environment, and with the locked
    and hashed build requirements. An isolated build would download build requirements without hashes.
    """

    packages: tuple[str, ...]
    memory_gb_per_job: float = 4.0  # of one compiler; used to compute MAX_JOBS
    core_minutes: float = 0  # measured on one core; used to estimate the duration
    needs: tuple[str, ...] = ()  # in addition to a C++ compiler and Python's headers: "nvcc", "ninja"
    environment: dict[str, str] = {}
    why: str = ""


class NotebookImage(Record, frozen=True, kw_only=True):
    """The preinstalled packages of a notebook service, which the profile adds to. It has no environment of its own.

    torch, what is compiled for it and its CUDA libraries keep their versions; other packages keep them if the
    requirements permit. A lock contains only what is installed on top.
    """

    service: str  # id in notebook_services.toml
    date: str  # of the list of packages
    url: str
    packages: tuple[str, ...]  # "torch==2.11.0+cu128"; those that the stack uses


class Verify(Record, frozen=True):
    """Probes that must pass before a training run."""

    required: tuple[str, ...]


class Train(Record, frozen=True):
    """The training recipe that tests this stack."""

    recipe: str


class ProfileEvidence(Record, frozen=True):
    """Evidence for a profile: what was tested, on which machine, and when."""

    what: Literal[
        "resolved", "emulated", "installed", "verified", "trained"
    ]  # emulated: without its processor or GPU
    where: str  # machine, GPU, driver
    date: str
    detail: str  # versions and figures


class Profile(Record, frozen=True, kw_only=True):
    """A stack: its conditions, its packages and their sources, and evidence that it works."""

    schema: int = PROFILE_SCHEMA
    id: str
    title: str
    summary: str
    preference: int  # the fitting profile with the highest preference is chosen
    when: When
    python: Python
    cuda: Cuda | None = None  # None: a CPU build of torch
    requirements: tuple[Pin, ...]
    constraints: tuple[Pin, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    fallbacks: dict[str, str] = {}  # by distribution of [[wheels]]: the attention implementation if no wheel fits
    build: Build | None = None
    notebook: NotebookImage | None = None  # packages are added to those of a notebook service
    system: tuple[str, ...] = ()  # needs of the system, by the names of knowledge/system_packages.toml
    exclude_newer: str = ""  # a date: packages uploaded later are ignored, so that a historical stack is reproducible
    sources: tuple[Source, ...]
    environment: dict[str, str] = {}
    verify: Verify
    train: Train
    evidence: tuple[ProfileEvidence, ...] = ()
