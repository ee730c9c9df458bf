"""Resolve next to the preinstalled packages of a notebook service.

uv receives the versions of the image as preferences, and those that stay as constraints. A placeholder wheel stands
for a build that only the PyTorch index has, such as torch 2.11.0+cu128. The lock contains what is installed on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from envdoctor.download.sources import Sources
from envdoctor.knowledge.notebook_services import is_kept
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.locking.lock import Package
from envdoctor.locking.placeholders import write_wheel
from envdoctor.profiles import NotebookImage


def image_versions(image: NotebookImage | None) -> dict[str, str]:
    """The preinstalled versions by name; empty without an image."""
    pins = (pin.partition("==") for pin in image.packages) if image else ()
    return {name: version for name, _, version in pins}


def kept_pins(image: NotebookImage | None) -> list[str]:
    """The constraints that keep torch and what belongs to its build."""
    return [f"{name}=={version}" for name, version in image_versions(image).items() if is_kept(name)]


def with_placeholders(sources: Sources, folder: Path, image: NotebookImage | None) -> Sources:
    """The sources with an empty wheel for each kept build that has a local version."""
    kept = {name: version for name, version in image_versions(image).items() if is_kept(name) and "+" in version}
    if not kept:
        return sources
    for name, version in kept.items():
        write_wheel(folder, name, version, _requires(name, version.partition("+")[0]))
    return msgspec.structs.replace(sources, find_links=(*sources.find_links, str(folder)))


def _requires(name: str, version: str) -> Iterable[str]:
    """The requirements of a release on other packages. Its CUDA libraries belong to the build on PyPI."""
    for line in requirements_of_release(name, version):
        requirement = parse_requirement(line)
        if requirement and not is_kept(requirement.name):
            yield line


def split_preinstalled(
    packages: Sequence[Package], image: NotebookImage | None
) -> tuple[tuple[Package, ...], tuple[str, ...]]:
    """The packages to install on top, and the preinstalled ones that stay, as pins."""
    versions = image_versions(image)
    added = tuple(package for package in packages if versions.get(package.name) != package.version)
    replaced = {package.name for package in added}
    return added, tuple(f"{name}=={version}" for name, version in versions.items() if name not in replaced)
