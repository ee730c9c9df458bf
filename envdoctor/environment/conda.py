"""Packages of a conda environment, from conda-meta/*.json, including packages that are not Python distributions."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.core.records import Distribution
from envdoctor.knowledge.releases import normalize_name

# conda's names of packages that have another name on PyPI. Python metadata takes precedence over these records.
PIP_NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}


class CondaRecord(msgspec.Struct):
    """The fields of a conda-meta file that are used."""

    name: str
    version: str
    channel: str = ""
    files: tuple[str, ...] = ()


def read_packages(prefix: Path) -> tuple[dict[str, Distribution], dict[str, tuple[str, ...]], list[str]]:
    """Packages by name, the compiled files of each (relative to the prefix), and notes on unreadable files."""
    packages: dict[str, Distribution] = {}
    files: dict[str, tuple[str, ...]] = {}
    notes = []
    for path in sorted((prefix / "conda-meta").glob("*.json")):
        try:
            record = msgspec.json.decode(read_file(path, LISTING_BYTES), type=CondaRecord)
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            notes.append(f"{path}: {getattr(error, 'strerror', None) or error}")
            continue
        name = normalize_name(record.name)
        name = PIP_NAMES.get(name, name)
        packages[name] = Distribution(
            name=name, version=record.version, location=str(prefix), source=f"conda {record.channel}".strip()
        )
        files[name] = tuple(file for file in record.files if file.endswith(".so") or ".so." in file)
    return packages, files, notes
