"""Modules that releases of torch, torchvision and torchaudio no longer have: torch_removals.toml."""

from __future__ import annotations

from collections.abc import Mapping

from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import public_part, satisfies


class TorchRemoval(TableRow, frozen=True, kw_only=True):
    """The modules that a release removed."""

    package: str
    version: str
    released: str
    modules: str


def removed_modules(versions: Mapping[str, str]) -> dict[str, TorchRemoval]:
    """The modules that the installed releases no longer have, with their removal."""
    rows = load_table("torch_removals.toml", tuple[TorchRemoval, ...], "removal")
    return {
        module: row
        for row in rows
        if satisfies(public_part(versions.get(row.package, "")) or "0", f">={row.version}")
        for module in row.modules.split()
    }


def find_module(removed: Mapping[str, TorchRemoval], module: str, name: str) -> str:
    """The removed module that an import names or is below; empty if there is none."""
    dotted = f"{module}.{name}" if name else module
    return next((each for each in removed if f"{dotted}.".startswith(f"{each}.")), "")
