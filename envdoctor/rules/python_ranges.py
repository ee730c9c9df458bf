"""The Python versions that the packages of a pasted report support, by the tables; installed ones have metadata."""

from __future__ import annotations

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Distribution, Stack
from envdoctor.knowledge.python_limits import can_install
from envdoctor.knowledge.pythons import supported_pythons
from envdoctor.knowledge.torch_builds import torch_releases
from envdoctor.knowledge.versions import major_minor, minor_of
from envdoctor.rules.facts import is_from_conda, is_from_report

# Where a person names a torch, which is then often only to be installed. A program that prints it has imported it,
# and prints whether CUDA is available. `PyTorch version: 2.0.1` is a line of collect_env as well.
BY_A_PERSON = ("handwritten list", "sentences", "issue form", "package list", "collect_env (PyTorch)")
MOST_NAMED = 12  # packages; a longer list is the output of pip in an environment where all of them are installed
RELEASE_OF_INDEX = lazy_pattern(r"\d[\d.]*(?:\+(?:cu\d{2,3}|cpu))?")
CUT_PYTHON = lazy_pattern(r"3\.[0-5]")  # the number 3.10 without its last zero
LIMITED_PYTHONS = ("3.10", "3.9", "3.8")  # of python_limits.toml


def distributions_in_use(stack: Stack) -> list[Distribution]:
    """The installed distributions, and those that a report shows in use without a version."""
    installed = stack.distributions.value or {}
    used = [name for name in stack.uses.value or () if name not in installed] if is_from_report(stack) else []
    return [*installed.values(), *(Distribution(name=name, version="") for name in used)]


def known_pythons(stack: Stack, distribution: Distribution) -> str:
    """The Pythons of a release in a report, from the tables; an installed environment has metadata.

    Without a release the range has no lower bound.
    """
    if not is_from_report(stack) or is_from_conda(distribution):  # conda builds for other Pythons as well
        return ""
    if CUT_PYTHON.fullmatch(stack.python_version.value or ""):
        return ""
    if distribution.name == "torch" and distribution.version:
        return _pythons_of_torch(stack)
    pythons = supported_pythons(distribution.name, distribution.version)
    if not distribution.version:
        return ",".join(part for part in pythons.split(",") if part.startswith("<"))
    return pythons or _oldest_python(distribution)


def _pythons_of_torch(stack: Stack) -> str:
    """The Pythons for which a release of torch has wheels, if a person names it; there is no source archive."""
    build = stack.torch.value
    version = build.version if build else None
    if not version or not version.source.endswith(BY_A_PERSON) or not RELEASE_OF_INDEX.fullmatch(version.value or ""):
        return ""
    if stack.cuda_available.state == "known" or len(stack.distributions.value or {}) > MOST_NAMED:
        return ""
    row = torch_releases().get(minor_of(version.value or ""))
    if not row or not row.python:
        return ""
    major, minor = major_minor(row.python[1])
    return f">={row.python[0]},<{major}.{minor + 1}"


def _oldest_python(distribution: Distribution) -> str:
    """The oldest Python of a release, if the packages of python_limits.toml contain it: `>=3.9`."""
    limited = (each for each in LIMITED_PYTHONS if not can_install(distribution.name, distribution.version, each))
    newest = next(limited, "")
    major, minor = major_minor(newest) if newest else (0, 0)
    return f">={major}.{minor + 1}" if newest else ""
