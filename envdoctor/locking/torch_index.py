"""Resolve without access to the PyTorch index, from a built-in table of its wheels and their published hashes.

uv resolves with placeholder wheels: empty wheels with the requirements of the real ones. The lock therefore contains
the same dependencies, and names the real wheels by their hashes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from envdoctor.download.sources import Sources
from envdoctor.knowledge.torch_builds import TorchWheel, published_requires, published_wheels
from envdoctor.locking.lock import Lock, Package, Target
from envdoctor.locking.placeholders import write_wheel
from envdoctor.locking.resolve import TORCH_FAMILY, resolve
from envdoctor.profiles import Profile, Source

MANYLINUX = "manylinux_2_28"  # the platform tag of all wheels in the table


def resolve_published(profile: Profile, target: Target, sources: Sources) -> Lock | None:
    """A complete lock with the published wheels; None if the table does not have all of them."""
    for source in profile.sources:
        wheels = published_wheels(source.backend, target.pythons[0], target.architecture) if source.backend else []
        if wheels and (lock := _resolve_with(wheels, profile, target, sources)):
            return msgspec.structs.replace(lock, backend=source.backend)
    return None


def published_sizes(backend: str, python: str, architecture: str) -> dict[str, int]:
    """The known sizes of the published wheels in bytes, by SHA-256."""
    return {wheel.sha256: wheel.size for wheel in published_wheels(backend, python, architecture) if wheel.size}


def _resolve_with(wheels: Sequence[TorchWheel], profile: Profile, target: Target, sources: Sources) -> Lock | None:
    configured = tuple(source for source in profile.sources if source.kind == "configured") or (Source("configured"),)
    with tempfile.TemporaryDirectory(prefix="envdoctor-torch-index-") as folder:
        for wheel in wheels:
            write_placeholder(Path(folder), wheel)
        with_placeholders = msgspec.structs.replace(
            sources,
            find_links=(*sources.find_links, folder),
            origins={"find-links": "published hashes"} | sources.origins,
        )
        lock = resolve(msgspec.structs.replace(profile, sources=configured), target, with_placeholders).lock
    if lock is None:
        return None
    packages = tuple(_published_package(package, wheels) for package in lock.packages)
    # torch and its family must all come from this index: builds of two indexes are not binary compatible.
    hashes = {wheel.sha256 for wheel in wheels}
    is_complete = all(package.sha256 in hashes for package in packages if package.name in TORCH_FAMILY)
    return msgspec.structs.replace(lock, packages=packages) if is_complete else None


def _published_package(package: Package, wheels: Sequence[TorchWheel]) -> Package:
    """The published wheel instead of its placeholder, or instead of a file of the same version on PyPI."""
    for wheel in wheels:
        if (wheel.name, wheel.version) == (package.name, package.version):
            source = f"the PyTorch index ({wheel.backend})"
            return msgspec.structs.replace(package, sha256=wheel.sha256, size=wheel.size, source=source)
    return package


def write_placeholder(folder: Path, wheel: TorchWheel) -> Path:
    """Write an empty wheel with the name, version, tags and requirements of a published wheel."""
    tag = f"cp{wheel.python.replace('.', '')}"
    tags = f"{tag}-{tag}-{MANYLINUX}_{wheel.architecture}"
    return write_wheel(folder, wheel.name, wheel.version, published_requires(wheel.name, wheel.version), tags)
