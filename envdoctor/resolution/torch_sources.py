"""The index that an install step takes torch from, and the CUDA version of its builds."""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.torch_builds import KnownBuild, known_builds, torch_releases
from envdoctor.knowledge.versions import cuda_of_local, dotted_numbers, major_minor, minor_of, satisfies

TORCH_FAMILY = frozenset(
    {"torch", "torchvision", "torchaudio", "triton", "pytorch-triton", "torchtext", "torchdata", "torchao"}
)
# Packages on the PyTorch index: the torch family, the dependencies of torch, and a few others.
ON_TORCH_INDEX = TORCH_FAMILY | frozenset({
    "numpy", "pillow", "sympy", "jinja2", "networkx", "filelock", "fsspec", "typing-extensions", "setuptools",
    "mpmath", "markupsafe", "requests", "packaging", "wheel", "xformers", "torchtune", "torchrec", "fbgemm-gpu",
    "torchcodec", "torchserve", "certifi", "charset-normalizer", "idna", "urllib3", "tqdm", "vllm", "ninja",
})  # fmt: skip


# Mirrors keep the name: `mirrors.nju.edu.cn/pytorch/whl/cu121`. Other projects have builds of their own under
# `/whl/cu121`, such as FlashInfer and llama-cpp-python.
_INDEX = lazy_pattern(r"whl/(nightly/|test/)?(cu\d{2,3}|cpu|xpu|rocm[\d.]*)")
_OTHER_HOST = lazy_pattern(r"https?://(?!.*pytorch.*/whl/)(?!.*[${])")


class TorchIndex(NamedTuple):
    """An index of the wheels of PyTorch: the builds that it has, and whether they are not released."""

    backend: str
    is_nightly: bool


def torch_index(url: str) -> TorchIndex | None:
    """The index of PyTorch, or its mirror, that a URL names; None for others. A variable can be any host."""
    match = None if _OTHER_HOST.match(url) else _INDEX.search(url)
    return TorchIndex(match[2], match[1] == "nightly/") if match else None


class TorchSource(NamedTuple):
    """An index for torch. `backend` is cu128, cpu, rocm6.2, xpu or auto; empty for PyPI."""

    backend: str = ""
    nightly: bool = False
    has_priority: bool = False  # PyPI is used only for packages that this index does not have
    is_exclusive: bool = False  # PyPI is not used at all

    def __str__(self) -> str:
        """The name of the index."""
        if not self.backend:
            return "PyPI"
        return f"the PyTorch {'nightly ' if self.nightly else ''}index {self.backend}"

    @property
    def is_for_other_gpus(self) -> bool:
        """Whether its builds are for GPUs of AMD or Intel."""
        return self.backend.startswith(("rocm", "xpu"))

    @property
    def cuda(self) -> str:
        """CUDA version of its builds: "12.8", "cpu"; empty for PyPI, ROCm, XPU and `auto`."""
        return cuda_name(self.backend)


def may_be_on_torch_index(name: str, source: TorchSource) -> bool:
    """Whether the PyTorch index can have a package: its own projects, such as torchtitan, and NVIDIA's libraries.

    The nightly index has builds of further projects.
    """
    is_own = name.startswith(("torch", "pytorch-", "nvidia-", "cuda-", "fbgemm", "tensordict", "executorch"))
    return name in ON_TORCH_INDEX or is_own or source.nightly


def cuda_name(backend: str) -> str:
    """`cu128` -> `12.8`, `cpu` -> `cpu`; empty for anything else, such as a ROCm or XPU backend."""
    match = re.fullmatch(r"cu(\d{1,2})(\d)", backend)
    if match:
        return f"{match[1]}.{match[2]}"
    return "cpu" if backend == "cpu" else ""


def torch_has_build(version: str, cuda: str, platform: str) -> bool | None:
    """Whether the PyTorch index has a build; None if the tables do not prove either.

    A release has no build for a CUDA version older or newer than those of all its known builds. One between them is
    excluded only if the list of builds is complete.
    """
    line = minor_of(version)
    if platform == "aarch64" and satisfies(version, "<2.5"):
        return False
    rows = [row for row in known_builds() if row.torch == line]
    if any((row.cuda, row.platform) == (cuda, platform) for row in rows):
        return True
    if not rows or not dotted_numbers(cuda):
        return None
    known = [major_minor(row.cuda) for row in rows]
    is_complete = line in torch_releases() and platform in torch_releases()[line].complete
    return None if not is_complete and min(known) <= major_minor(cuda) <= max(known) else False


def may_provide(version: str, cuda: str, platform: str, *, is_pinned: bool) -> bool:
    """Whether a step can get a release from an index; of an open one it gets a build that is not proven.

    An open requirement gets none that is newer than all known builds for the CUDA version.
    """
    has_build = torch_has_build(version, cuda, platform)
    if has_build is not None or is_pinned or minor_of(version) not in torch_releases():
        return has_build is not False
    known = [dotted_numbers(row.torch) for row in known_builds() if (row.cuda, row.platform) == (cuda, platform)]
    return dotted_numbers(minor_of(version)) < max(known, default=())


def cuda_builds(version: str, platform: str) -> list[str]:
    """CUDA versions for which the PyTorch index has a build of a torch release."""
    return [row.cuda for row in known_builds() if row.torch == minor_of(version) and row.platform == platform]


def torch_cuda(version: str, source: TorchSource, platform: str, driver: str = "") -> str:
    """CUDA version of the torch build that a source provides: "12.8", "cpu"; empty if it is not known."""
    if from_version := cuda_of_local(version):
        return from_version
    if source.is_for_other_gpus:
        return ""
    if source.backend == "auto":
        return _newest_cuda_build(version, platform, driver)
    if source.backend and (source.has_priority or torch_has_build(version, source.cuda, platform) is not False):
        return source.cuda
    return cuda_on_pypi(version, platform)


def _newest_cuda_build(version: str, platform: str, driver: str) -> str:
    limit = major_minor(cuda_of_driver(driver)) if driver and cuda_of_driver(driver) else (99, 0)
    supported = [cuda for cuda in cuda_builds(version, platform) if major_minor(cuda) <= limit]
    return max(supported, key=major_minor, default=cuda_on_pypi(version, platform))


def aarch64_build(version: str, driver: str, vllm: str) -> KnownBuild | None:
    """The newest CUDA build of a torch release for aarch64.

    A driver before 580 and vLLM before 0.20 need a build for CUDA 12.
    """
    rows = [row for row in known_builds() if row.torch == minor_of(version) and row.platform == "aarch64"]
    needs_cuda_12 = (driver and dotted_numbers(driver) < (580,)) or (vllm and satisfies(vllm, "<0.20"))
    compatible = [row for row in rows if not needs_cuda_12 or row.cuda.startswith("12.")]
    return (compatible or rows)[-1] if rows else None
