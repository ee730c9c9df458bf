"""Compatibility of direct wheels (wheels that are installed from a URL) with an environment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from packaging.version import Version

from envdoctor.core.record import Record
from envdoctor.profiles.records import Wheel


class StackFacts(Record, frozen=True):
    """The properties of an environment that a compiled wheel must match."""

    python: str  # "3.12"
    architecture: str
    torch: str  # "2.8.0+cu128"
    cuda: str  # "12.8", or "cpu"
    glibc: str  # "2.35"; empty: unknown
    cxx11_abi: bool | None  # None: unknown


def group_by_distribution(wheels: Iterable[Wheel]) -> Iterator[tuple[str, tuple[Wheel, ...]]]:
    """The candidates for each distribution, in the profile's order."""
    name = attrgetter("name")
    for distribution, candidates in groupby(sorted(wheels, key=name), key=name):
        yield distribution, tuple(candidates)


def rejection_reason(wheel: Wheel, stack: StackFacts) -> str:
    """Why a wheel is not compatible; empty if it is."""
    abi = {True: "TRUE", False: "FALSE", None: "unknown"}[stack.cxx11_abi]
    release = ".".join(stack.torch.partition("+")[0].split(".")[:2])
    for name, built_for, actual in (
        ("Python", wheel.python, stack.python),
        ("architecture", wheel.architecture, stack.architecture),
        ("torch", wheel.torch, release),
        ("C++ ABI", wheel.abi, abi),
    ):
        if built_for and built_for != actual:
            return f"built for {name} {built_for}, here is {actual or 'none'}"
    # Extensions link against the major version of the runtime: libcudart.so.12 belongs to 12.8 and to 12.9.
    if wheel.cuda and wheel.cuda.partition(".")[0] != stack.cuda.partition(".")[0]:
        return f"built for CUDA {wheel.cuda}, torch here is for {stack.cuda or 'none'}"
    if wheel.glibc and stack.glibc and Version(stack.glibc) < Version(wheel.glibc):
        return f"requires glibc {wheel.glibc}, here is {stack.glibc}"
    return ""
