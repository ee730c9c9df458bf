"""What is known of a container image, and the input of the rules on images."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.core.record import Record
from envdoctor.core.records import Machine, Stack


class Image(Record, frozen=True, kw_only=True):
    """An image. Empty fields are unknown."""

    reference: str  # as a container tool takes it
    source: str  # where the facts come from
    repository: str = ""  # the public one that the name or a mirror names: "nvidia/cuda"
    tag: str = ""
    cuda: str = ""  # of torch, or of the toolkit
    system: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    architectures: tuple[str, ...] = ()
    require: str = ""  # NVIDIA_REQUIRE_CUDA
    has_requirement: bool | None = None  # None: not known
    other_requirements: tuple[str, ...] = ()  # other variables NVIDIA_REQUIRE_*, each of which must hold as well
    code_list: str = ""  # TORCH_CUDA_ARCH_LIST: the GPU code that its builder compiled
    compat: tuple[str, ...] | None = None  # architectures for which it contains cuda-compat; None: not known
    compat_cuda: str = ""  # the CUDA release of cuda-compat, which may be older than that of torch
    compat_path: str = ""  # the file or variable that puts cuda-compat before every driver
    has_toolkit: bool = False
    uses_gpu: bool = True  # False: nothing in it needs a GPU
    unread: tuple[str, ...] = ()  # what decides and was not read, with the reason

    @property
    def is_known(self) -> bool:
        """Whether anything about its contents is known that a driver or a GPU can contradict."""
        return "$" not in self.reference and bool(self.cuda or self.packages or not self.uses_gpu)


class ImageContext(NamedTuple):
    """An image on a machine."""

    image: Image
    stack: Stack
    machine: Machine
    options: tuple[str, ...] = ()  # that name the machine, for commands that judge the image again
