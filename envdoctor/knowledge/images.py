"""Base images of exported environments: images.toml."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table


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


class ImageTables(Record, frozen=True, kw_only=True):
    """The tables of images.toml."""

    cuda: tuple[CudaImage, ...]
    python: tuple[PythonImage, ...]
    uv: tuple[UvImage, ...]
    nvcc: tuple[NvccUser, ...]


def image_tables() -> ImageTables:
    """The content of images.toml."""
    return load_table("images.toml", ImageTables)
