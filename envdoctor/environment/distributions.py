"""All distributions on the search path of an environment, and which copy of each Python takes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from envdoctor.core.records import Distribution
from envdoctor.environment.conda import read_packages
from envdoctor.environment.layout import Layout
from envdoctor.environment.markers import Markers
from envdoctor.environment.metadata import Found, metadata_below, name_of, read_folder


class Installed(NamedTuple):
    """What is installed: the copy that Python takes by name, the other copies, and notes on what was not read."""

    taken: dict[str, Distribution]
    metadata: dict[str, Path]
    shadowed: tuple[Distribution, ...]
    shadowing: tuple[str, ...]  # names whose copy in the user's folder or on PYTHONPATH hides one of the environment
    conda_files: dict[str, tuple[str, ...]]
    notes: list[str]


def read_distributions(layout: Layout) -> Installed:
    """Distributions in the order of sys.path; in one folder the copy whose metadata was written last."""
    markers = Markers(layout.version.value or "")
    taken: dict[str, Found] = {}
    roles: dict[str, str] = {}
    shadowed: list[Distribution] = []
    shadowing: dict[str, None] = {}
    notes: list[str] = []
    for folder in layout.folders:
        reading = read_folder(folder.path, markers)
        notes += reading.notes
        for found in sorted(reading.found, key=_written, reverse=True):
            name = found.distribution.name
            if name in taken:
                shadowed.append(found.distribution)
                if roles[name] in ("user", "PYTHONPATH") and folder.role != roles[name]:
                    shadowing[name] = None
            else:
                taken[name], roles[name] = found, folder.role
    by_name = {name: found.distribution for name, found in sorted(taken.items())}
    conda_files = _add_conda(layout, by_name, shadowed, notes)
    metadata = {name: found.metadata for name, found in taken.items()}
    return Installed(by_name, metadata, tuple(shadowed), tuple(shadowing), conda_files, notes)


def find_metadata(layout: Layout) -> tuple[dict[str, Path], dict[str, tuple[str, ...]]]:
    """Where the metadata of each distribution lies that Python takes, and conda's files, with nothing of it read."""
    taken: dict[str, Path] = {}
    for folder in layout.folders:
        for path in sorted(metadata_below(folder.path), key=_written_at, reverse=True):
            taken.setdefault(name_of(path), path)
    conda = read_packages(layout.prefix)[1] if layout.kind.value == "conda" else {}
    return taken, conda


def describe_notes(notes: Iterable[str]) -> str:
    """A few notes in one line, and how many more there are."""
    shown = list(notes)
    return "; ".join(shown[:5]) + (f"; and {len(shown) - 5} more" if len(shown) > 5 else "")


def _add_conda(
    layout: Layout, by_name: dict[str, Distribution], shadowed: list[Distribution], notes: list[str]
) -> dict[str, tuple[str, ...]]:
    """Add conda's packages that have no metadata of pip's kind, and tell where the others came from.

    What both conda and pip installed lies there once: of two versions, conda's is the copy that was written over.
    """
    if layout.kind.value != "conda":
        return {}
    packages, files, problems = read_packages(layout.prefix)
    notes += problems
    for name, package in packages.items():
        present = by_name.get(name)
        if present is None:
            by_name[name] = package
        elif present.source in ("", "conda"):
            by_name[name] = msgspec.structs.replace(present, source=package.source)
        elif present.version != package.version:
            shadowed.append(package)
    return files


def _written(found: Found) -> int:
    return _written_at(found.metadata)


def _written_at(metadata: Path) -> int:
    try:
        return metadata.stat().st_mtime_ns
    except OSError:
        return 0
