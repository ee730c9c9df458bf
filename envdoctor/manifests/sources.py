"""Where torch comes from in a step: PyPI or one of the PyTorch indexes, and the CUDA of its build."""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.knowledge.cuda import cuda_of_driver, driver_key
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.torch_builds import KnownBuild, known_builds
from envdoctor.knowledge.versions import cuda_of_local, major_minor, minor_of, satisfies
from envdoctor.manifests.actions import Install

_INDEX = re.compile(r"whl/(nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]*)")
TORCH_FAMILY = frozenset(
    {"torch", "torchvision", "torchaudio", "triton", "pytorch-triton", "torchtext", "torchdata", "torchao"}
)
# What the PyTorch index holds beside torch itself: what torch requires, and a few more.
ON_TORCH_INDEX = TORCH_FAMILY | frozenset({
    "numpy", "pillow", "sympy", "jinja2", "networkx", "filelock", "fsspec", "typing-extensions", "setuptools",
    "mpmath",
    "markupsafe", "requests", "packaging", "wheel", "xformers", "torchtune", "torchrec", "fbgemm-gpu", "torchcodec",
    "torchserve", "certifi", "charset-normalizer", "idna", "urllib3", "tqdm", "vllm", "ninja",
})  # fmt: skip


class TorchSource(NamedTuple):
    """One place for torch. `backend`: cu128, cpu, rocm6.2, auto; empty for PyPI."""

    backend: str = ""
    nightly: bool = False
    first: bool = False  # asked before PyPI, which then only has the rest
    only: bool = False  # PyPI is not asked at all

    def __str__(self) -> str:
        """The place by name."""
        if not self.backend:
            return "PyPI"
        return f"the PyTorch {'nightly ' if self.nightly else ''}index {self.backend}"

    @property
    def cuda(self) -> str:
        """CUDA of its builds: "12.8", "cpu"; empty for PyPI and for `auto`."""
        return cuda_name(self.backend)


def cuda_name(backend: str) -> str:
    """`cu128` as 12.8, `cpu` and ROCm as cpu; empty for anything else."""
    found = re.fullmatch(r"cu(\d{1,2})(\d)", backend)
    if found:
        return f"{found[1]}.{found[2]}"
    return "cpu" if backend.startswith(("cpu", "rocm")) else ""


def source_of(step: Install) -> TorchSource:
    """The place that a step takes torch from."""
    if step.backend:
        return TorchSource(step.backend, first=True)
    for address in (step.index_url, *step.extra_indexes, *step.find_links):
        found = _INDEX.search(address)
        if found:
            only = address == step.index_url
            return TorchSource(found[2], bool(found[1]), first=only or step.tool == "uv", only=only)
    return TorchSource()


def torch_has_build(version: str, cuda: str, platform: str) -> bool | None:
    """Whether the PyTorch index has a build; None for releases that the table does not hold."""
    rows = [row for row in known_builds() if row.torch == minor_of(version) and row.platform == platform]
    if not rows:
        return False if platform == "aarch64" and satisfies(version, "<2.5") else None
    return any(row.cuda == cuda for row in rows)


def builds_of(version: str, platform: str) -> list[str]:
    """CUDA releases with a build of a torch release on the PyTorch index."""
    return [row.cuda for row in known_builds() if row.torch == minor_of(version) and row.platform == platform]


def cuda_of_torch(version: str, source: TorchSource, platform: str, driver: str = "") -> str:
    """CUDA of the torch that a source gives: "12.8", "cpu", or empty where it cannot be told."""
    named = cuda_of_local(version)
    if named:
        return named
    if source.backend == "auto":
        return _newest_for(version, platform, driver)
    if source.backend and (source.first or torch_has_build(version, source.cuda, platform)):
        return source.cuda
    return cuda_on_pypi(version, platform)


def _newest_for(version: str, platform: str, driver: str) -> str:
    limit = major_minor(cuda_of_driver(driver)) if driver and cuda_of_driver(driver) else (99, 0)
    fitting = [cuda for cuda in builds_of(version, platform) if major_minor(cuda) <= limit]
    return max(fitting, key=major_minor, default=cuda_on_pypi(version, platform))


def arm_build(version: str, driver: str, vllm: str) -> KnownBuild | None:
    """The CUDA build of a torch release for aarch64: of CUDA 12 for a driver before 580 and for vLLM before 0.20."""
    rows = [row for row in known_builds() if row.torch == minor_of(version) and row.platform == "aarch64"]
    old = (driver and driver_key(driver) < (580,)) or (vllm and satisfies(vllm, "<0.20"))
    fitting = [row for row in rows if not old or row.cuda.startswith("12.")]
    return (fitting or rows)[-1] if rows else None
