"""All distributions on the search path of an environment, and the copy of each that Python imports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from envdoctor.core.record import Record
from envdoctor.core.records import Distribution
from envdoctor.environment.conda import read_packages
from envdoctor.environment.layout import Layout
from envdoctor.environment.markers import Markers
from envdoctor.environment.metadata import (
    SHOWN_LENGTH,
    FoundDistribution,
    list_metadata,
    name_from_metadata_path,
    read_folder,
)
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.versions import is_version, version_key


class InstalledDistributions(Record, frozen=True):
    """The imported copy of each distribution by name, the shadowed copies, and what could not be read."""

    active: dict[str, Distribution]
    metadata: dict[str, Path]
    shadowed: tuple[Distribution, ...]
    shadowing: tuple[str, ...]  # names whose copy in the user site or on PYTHONPATH shadows the environment's copy
    conda_files: dict[str, tuple[str, ...]]
    notes: list[str]
    unread: list[str]  # without it there is no verdict; `notes` are about the rest


def read_distributions(layout: Layout) -> InstalledDistributions:
    """Read distributions in the order of sys.path. Within one directory, the newest metadata takes precedence."""
    markers = Markers(layout.version.value or "")
    active: dict[str, FoundDistribution] = {}
    roles: dict[str, str] = {}
    shadowed: list[Distribution] = []
    shadowing: dict[str, None] = {}
    notes: list[str] = []
    unread: list[str] = []
    for folder in layout.folders:
        metadata = read_folder(folder.path, markers)
        notes += metadata.notes
        unread += metadata.unread
        for found in sorted(metadata.found, key=lambda found: _modified_at(found.metadata), reverse=True):
            name = found.distribution.name
            if name in active:
                shadowed.append(found.distribution)
                if roles[name] in ("user", "PYTHONPATH") and folder.role != roles[name]:
                    shadowing[name] = None
            else:
                active[name], roles[name] = found, folder.role
    by_name = {name: found.distribution for name, found in sorted(active.items())}
    conda_files = _add_conda(layout, by_name, shadowed, unread)
    for problem, is_decisive in _invalid_values(active):
        (unread if is_decisive else notes).append(problem)
    paths = {name: found.metadata for name, found in active.items()}
    return InstalledDistributions(by_name, paths, tuple(shadowed), tuple(shadowing), conda_files, notes, unread)


def find_metadata(layout: Layout) -> tuple[dict[str, Path], dict[str, tuple[str, ...]]]:
    """The metadata path of each distribution that Python imports, and conda's files, without reading metadata."""
    active: dict[str, Path] = {}
    for folder in layout.folders:
        for path in sorted(list_metadata(folder.path), key=_modified_at, reverse=True):
            active.setdefault(name_from_metadata_path(path), path)
    conda = read_packages(layout.prefix)[1] if layout.kind.value == "conda" else {}
    return active, conda


def _invalid_values(active: Mapping[str, FoundDistribution]) -> Iterator[tuple[str, bool]]:
    """Versions and requirements that do not parse, and whether a verdict needs them.

    Debian's `distro-info 1.1build1` decides nothing: no distribution requires it, and no table contains it.
    """
    for name, found in active.items():
        version = found.distribution.version
        if version and version_key(version) is None and not is_version(version):
            is_decisive = bool(published_releases(name)) or _is_required(name, active)
            yield f"{found.metadata}: the version {version[:SHOWN_LENGTH]!a} is invalid", is_decisive
        for line in found.invalid_requirements:
            required = re.match(r"[\w.-]*", line)
            names = (name, normalize_name(required[0] if required else ""))
            is_decisive = not names[1] or any(map(published_releases, names))
            yield f"{found.metadata}: the requirement {line[:SHOWN_LENGTH]!a} is invalid", is_decisive


def _is_required(name: str, active: Mapping[str, FoundDistribution]) -> bool:
    lines = (line for found in active.values() for line in found.distribution.requires)
    return any(required.name == name for line in lines if (required := parse_requirement(line)))


def _add_conda(
    layout: Layout, by_name: dict[str, Distribution], shadowed: list[Distribution], unread: list[str]
) -> dict[str, tuple[str, ...]]:
    """Add conda packages that have no Python metadata, and set the source of the others.

    A package that both conda and pip installed has one copy on disk. If the versions differ, pip overwrote conda's.
    """
    if layout.kind.value != "conda":
        return {}
    packages, files, conda_unread = read_packages(layout.prefix)
    unread += conda_unread
    for name, package in packages.items():
        present = by_name.get(name)
        if present is None:
            by_name[name] = package
        elif present.source in ("", "conda"):
            by_name[name] = msgspec.structs.replace(present, source=package.source)
        elif present.version != package.version:
            shadowed.append(package)
    return files


def _modified_at(metadata: Path) -> int:
    try:
        return metadata.stat().st_mtime_ns
    except OSError:
        return 0
