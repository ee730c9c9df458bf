"""The PyTorch index as far as it is known, for a lock that is made where it cannot be reached.

Its wheels of a table with published hashes stand in for it: empty wheels that require what the real ones do. uv
resolves with them, so the lock holds exactly what the real ones bring along, and names the real ones by their hashes.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from envdoctor.download.sources import Sources
from envdoctor.knowledge.torch_builds import TorchWheel, published_requires, published_wheels
from envdoctor.locking.resolve import TORCH_FAMILY, Lock, Package, Target, resolve
from envdoctor.profiles import Profile, Source

MANYLINUX = "manylinux_2_28"  # of every wheel of the table


def resolve_published(profile: Profile, target: Target, sources: Sources) -> Lock | None:
    """A whole lock with the published wheels; None where one that it needs is not among them."""
    for source in profile.sources:
        wheels = published_wheels(source.backend, target.pythons[0], target.architecture) if source.backend else []
        if wheels and (lock := _resolve_with(wheels, profile, target, sources)):
            return msgspec.structs.replace(lock, backend=source.backend)
    return None


def published_sizes(backend: str, python: str, architecture: str) -> dict[str, int]:
    """The bytes of the published wheels by their hashes, as far as they are known."""
    return {wheel.sha256: wheel.size for wheel in published_wheels(backend, python, architecture) if wheel.size}


def _resolve_with(wheels: Sequence[TorchWheel], profile: Profile, target: Target, sources: Sources) -> Lock | None:
    own = tuple(source for source in profile.sources if source.kind == "configured") or (Source("configured"),)
    with tempfile.TemporaryDirectory(prefix="envdoctor-torch-index-") as folder:
        for wheel in wheels:
            write_stand_in(Path(folder), wheel)
        known = msgspec.structs.replace(
            sources,
            find_links=(*sources.find_links, folder),
            origins={"find-links": "published hashes"} | sources.origins,
        )
        lock = resolve(msgspec.structs.replace(profile, sources=own), target, known).lock
    if lock is None:
        return None
    packages = tuple(_published(package, wheels) for package in lock.packages)
    return msgspec.structs.replace(lock, packages=packages) if _is_of_index(packages, wheels) else None


def _published(package: Package, wheels: Sequence[TorchWheel]) -> Package:
    """The real wheel in the place of what stood in for it, and of the file of the same name that PyPI may have."""
    real = next((wheel for wheel in wheels if (wheel.name, wheel.version) == (package.name, package.version)), None)
    if real is None:
        return package
    return msgspec.structs.replace(
        package, sha256=real.sha256, size=real.size, source=f"the PyTorch index ({real.backend})"
    )


def _is_of_index(packages: Sequence[Package], wheels: Sequence[TorchWheel]) -> bool:
    """Whether the whole family is of one index: builds of two do not load each other's libraries."""
    hashes = {wheel.sha256 for wheel in wheels}
    return all(package.sha256 in hashes for package in packages if package.name in TORCH_FAMILY)


def write_stand_in(folder: Path, wheel: TorchWheel) -> Path:
    """An empty wheel of the same name and version, for the same target, that requires the same."""
    tag = f"cp{wheel.python.replace('.', '')}"
    tags = f"{tag}-{tag}-{MANYLINUX}_{wheel.architecture}"
    info = f"{wheel.name}-{wheel.version}.dist-info"
    requires = "".join(f"Requires-Dist: {each}\n" for each in published_requires(wheel.name, wheel.version))
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {wheel.name}\nVersion: {wheel.version}\n{requires}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: envdoctor\nRoot-Is-Purelib: false\nTag: {tags}\n",
        f"{info}/RECORD": "",
    }
    path = folder / f"{wheel.name}-{wheel.version}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path
