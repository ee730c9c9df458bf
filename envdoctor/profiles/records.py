"""What a profile says, as records."""

from __future__ import annotations

from typing import Literal

from envdoctor.core.records import Record

PROFILE_SCHEMA = 1

# What transformers takes as `attn_implementation` that a profile may fall back to.
ATTENTIONS = ("flash_attention_3", "flash_attention_2", "sdpa", "eager", "flex_attention")


class When(Record, frozen=True):
    """The machine that a profile needs."""

    architectures: tuple[str, ...]
    glibc: str
    disk_gb: float  # environment and cache, in GiB
    gpus: int = 0  # at least this many
    compute_capability: str = ""  # at least, for every GPU
    gpu_memory_gb: float = 0  # at least, for every GPU, in GiB
    driver: str = ""  # at least, where more is needed than the CUDA build alone asks for
    driver_recommended: str = ""  # an older one is told what it cannot do, and not refused
    driver_why: str = ""
    driver_url: str = ""


class Python(Record, frozen=True):
    """The Python versions that the stack's wheels exist for, preferred first."""

    versions: tuple[str, ...]


class Cuda(Record, frozen=True):
    """The CUDA build of torch; the driver that it needs follows from the table of CUDA releases."""

    build: str  # "12.8"


class Pin(Record, frozen=True):
    """A requirement or constraint, and why it is what it is."""

    spec: str
    why: str = ""
    url: str = ""


class Source(Record, frozen=True):
    """A place to take torch and its family from. Sources are tried in the order in which they are written.

    `configured`: whatever pip or uv are configured to use, else PyPI; `torch-index`: the PyTorch index of `backend`
    (cpu, cu128 ...) for the PyTorch family, everything else from the configured sources.
    """

    kind: Literal["configured", "torch-index"]
    backend: str = ""


class Wheel(Record, frozen=True, kw_only=True):
    """A wheel that no index has, by its address and hash, and what it was built for.

    Those of one distribution are tried in the order in which they are written; a condition left empty holds for all.
    """

    name: str
    file: str  # its name, kept: pip reads name, version and tags from it
    url: str
    sha256: str
    python: str = ""  # "3.12"
    architecture: str = ""
    torch: str = ""  # "2.8"
    cuda: str = ""
    glibc: str = ""  # "2.32": the oldest that its symbols ask for, where its name does not say
    abi: Literal["", "TRUE", "FALSE"] = ""  # of torch's C++: _GLIBCXX_USE_CXX11_ABI
    why: str = ""


class Build(Record, frozen=True, kw_only=True):
    """Packages that are compiled on the machine; everything else is taken as wheels, whatever happens.

    They are built against the environment (--no-build-isolation): against its torch, and with build requirements that
    came by the lock, with their hashes. An isolated build would fetch its own, without any.
    """

    packages: tuple[str, ...]
    memory_gb_per_job: float = 4.0  # of one compiler; MAX_JOBS follows from the machine's memory and cores
    core_minutes: float = 0  # of one core, measured; the estimate of the time follows from it
    needs: tuple[str, ...] = ()  # beside a C++ compiler and Python's headers: "nvcc", "ninja"
    environment: dict[str, str] = {}
    why: str = ""


class Verify(Record, frozen=True):
    """Probes that must pass before anything is trained."""

    required: tuple[str, ...]


class Train(Record, frozen=True):
    """The recipe that shows that this stack trains."""

    recipe: str


class Shown(Record, frozen=True):
    """Evidence: what was shown of this profile, where and when."""

    what: Literal["resolved", "installed", "verified", "trained"]
    where: str  # machine, GPU, driver
    date: str
    detail: str  # versions and figures


class Profile(Record, frozen=True, kw_only=True):
    """A stack: what it needs, what it installs and from where, and what was shown of it."""

    schema: int = PROFILE_SCHEMA
    id: str
    title: str
    summary: str
    preference: int  # among several that fit, the highest wins
    when: When
    python: Python
    cuda: Cuda | None = None  # None: a CPU build of torch
    requirements: tuple[Pin, ...]
    constraints: tuple[Pin, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    fallbacks: dict[str, str] = {}  # by distribution of [[wheels]]: the attention to use where none of them fits
    build: Build | None = None
    system: tuple[str, ...] = ()  # what the stack needs of the system, by the names of knowledge/system_packages.toml
    exclude_newer: str = ""  # a date: nothing uploaded later, so that a historical stack stays what it was
    sources: tuple[Source, ...]
    environment: dict[str, str] = {}
    verify: Verify
    train: Train
    evidence: tuple[Shown, ...] = ()
