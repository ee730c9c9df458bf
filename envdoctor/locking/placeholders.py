"""Empty wheels that take the place of packages that no reachable index has."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, requires: Iterable[str], tags: str = "py3-none-any") -> Path:
    """Write an empty wheel with a name, a version, requirements and tags."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    is_pure = "true" if tags.endswith("-any") else "false"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: envdoctor\nRoot-Is-Purelib: {is_pure}\nTag: {tags}\n",
        f"{info}/RECORD": "",
    }
    path = folder / f"{stem}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path
