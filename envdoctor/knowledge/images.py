"""Container images that an exported stack starts from: the table images.toml."""

from __future__ import annotations

from functools import cache

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table


class CudaImage(Record, frozen=True, kw_only=True):
    """A release of nvidia/cuda for one CUDA build and operating system."""

    build: str
    version: str
    system: str
    source: str
    date: str


class PythonImage(Record, frozen=True, kw_only=True):
    """A variant of the official image of Python."""

    tag: str
    system: str
    source: str
    date: str


class UvImage(Record, frozen=True, kw_only=True):
    """uv: an image with nothing else in it, and one with an operating system."""

    program: str
    system: str
    source: str
    date: str


class NeedsNvcc(Record, frozen=True, kw_only=True):
    """A package that compiles CUDA code when it runs."""

    name: str
    source: str
    date: str


class Images(Record, frozen=True, kw_only=True):
    """The whole table."""

    cuda: tuple[CudaImage, ...]
    python: tuple[PythonImage, ...]
    uv: tuple[UvImage, ...]
    nvcc: tuple[NeedsNvcc, ...]


@cache
def images() -> Images:
    """The table."""
    return msgspec.convert(read_table("images.toml"), Images)
