"""Wheels that no index has: which of them fits a stack, and why the others do not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from packaging.version import Version

from envdoctor.core.records import Record
from envdoctor.profiles.records import Wheel


class StackFacts(Record, frozen=True):
    """What a compiled wheel must fit: the environment's Python and architecture, and its torch."""

    python: str  # "3.12"
    architecture: str
    torch: str  # "2.8.0+cu128"
    cuda: str  # "12.8", or "cpu"
    glibc: str  # "2.35"; empty: not known yet
    cxx11_abi: bool | None  # None: could not be read


def by_distribution(wheels: Iterable[Wheel]) -> Iterator[tuple[str, tuple[Wheel, ...]]]:
    """The candidates for each distribution, in the profile's order."""
    name = attrgetter("name")
    for distribution, candidates in groupby(sorted(wheels, key=name), key=name):
        yield distribution, tuple(candidates)


def rejection(wheel: Wheel, stack: StackFacts) -> str:
    """Why a wheel does not fit, with what it was built for and what is here; empty where it fits."""
    abi = {True: "TRUE", False: "FALSE", None: "unknown"}[stack.cxx11_abi]
    release = ".".join(stack.torch.partition("+")[0].split(".")[:2])
    for what, built_for, here in (
        ("Python", wheel.python, stack.python),
        ("architecture", wheel.architecture, stack.architecture),
        ("torch", wheel.torch, release),
        ("C++ ABI", wheel.abi, abi),
    ):
        if built_for and built_for != here:
            return f"built for {what} {built_for}, here is {here or 'none'}"
    # Extensions link against the runtime's major version: libcudart.so.12 is that of 12.8 and of 12.9.
    if wheel.cuda and wheel.cuda.partition(".")[0] != stack.cuda.partition(".")[0]:
        return f"built for CUDA {wheel.cuda}, torch here is for {stack.cuda or 'none'}"
    if wheel.glibc and stack.glibc and Version(stack.glibc) < Version(wheel.glibc):
        return f"asks for glibc {wheel.glibc}, here is {stack.glibc}"
    return ""
