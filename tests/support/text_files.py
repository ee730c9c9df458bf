"""Text files of a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their path in a folder, and make their directories."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def uv_lock(packages: Mapping[str, str], python: str = ">=3.12", *, source: str = "editable") -> str:
    """A uv.lock of a project that requires releases of pypi.org."""
    required = ", ".join(f'{{ name = "{name}" }}' for name in packages)
    rows = "".join(
        f'\n[[package]]\nname = "{name}"\nversion = "{version}"\n'
        'source = { registry = "https://pypi.org/simple" }\n'
        for name, version in packages.items()
    )
    return (
        f'version = 1\nrequires-python = "{python}"\n\n[[package]]\nname = "project"\nversion = "0.1"\n'
        f'source = {{ {source} = "." }}\ndependencies = [{required}]\n{rows}'
    )
