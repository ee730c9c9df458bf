"""What setup guides rely on and no package metadata says: the table guides.toml."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table
from envdoctor.knowledge.versions import satisfies

R = TypeVar("R", bound=Record)


class PypiTorch(Record, frozen=True, kw_only=True):
    """CUDA of the torch wheels on PyPI from one release on."""

    first: str
    x86_64: str
    aarch64: str
    source: str
    date: str


class Container(Record, frozen=True, kw_only=True):
    """A release of NVIDIA's PyTorch container."""

    tag: str
    cuda: str
    torch: str
    python: str
    source: str
    date: str


class FirstContainer(Record, frozen=True, kw_only=True):
    """The first of these containers with a CUDA release."""

    cuda: str
    tag: str
    source: str
    date: str


class BaseSystem(Record, frozen=True, kw_only=True):
    """What an operating system of images has."""

    name: str
    glibc: str
    python: str


class UbuntuCuda(Record, frozen=True, kw_only=True):
    """CUDA of Ubuntu's own toolkit package."""

    system: str
    cuda: str
    source: str
    date: str


class Argument(Record, frozen=True, kw_only=True):
    """An argument that some or all ("") TRL releases do not know; `silent`: known there, and without effect."""

    owner: str
    name: str
    absent: str
    silent: str = ""
    instead: str


class Loss(Record, frozen=True, kw_only=True):
    """A value of loss_type, and the first TRL that has it."""

    name: str
    first: str


class Switch(Record, frozen=True, kw_only=True):
    """An environment variable that nothing reads."""

    name: str
    instead: str
    source: str
    date: str


class ModulePresence(Record, frozen=True, kw_only=True):
    """A module that only some releases of its package have."""

    name: str
    package: str
    present: str
    instead: str
    source: str
    date: str


class Guides(Record, frozen=True, kw_only=True):
    """The whole table."""

    pypi_torch: tuple[PypiTorch, ...]
    ngc: tuple[Container, ...]
    ngc_first: tuple[FirstContainer, ...]
    system: tuple[BaseSystem, ...]
    ubuntu_cuda: tuple[UbuntuCuda, ...]
    argument: tuple[Argument, ...]
    loss: tuple[Loss, ...]
    switch: tuple[Switch, ...]
    module: tuple[ModulePresence, ...]


@cache
def guides() -> Guides:
    """The table."""
    return msgspec.convert(read_table("guides.toml"), Guides)


@cache
def cuda_on_pypi(torch: str, platform: str) -> str:
    """CUDA of PyPI's wheel of a torch release: "12.8", "cpu", or empty where it is not known."""
    row = next((each for each in reversed(guides().pypi_torch) if satisfies(torch, f">={each.first}")), None)
    return (row.aarch64 if platform == "aarch64" else row.x86_64) if row else ""


def base_system(text: str) -> BaseSystem | None:
    """The operating system that an image's name and tag speak of: `12.8.0-devel-ubuntu22.04`, `ubuntu:20.04`."""
    plain = text.replace(":", "").replace("-slim", "").replace("/", "")
    return next((row for row in guides().system if row.name in plain), None)
