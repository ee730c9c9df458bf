"""Steps of a Dockerfile that do not change what an image needs: image_steps.toml."""

from __future__ import annotations

from envdoctor.knowledge.tables import TableRow, load_table

SAME_SUBCOMMANDS = {"apt-get": "apt", "pip3": "pip", "mamba": "conda", "micromamba": "conda"}


class HarmlessSteps(TableRow, frozen=True, kw_only=True):
    """Packages without GPU code, programs that install nothing, and subcommands of package managers that do not."""

    packages: frozenset[str]
    programs: frozenset[str]
    queries: dict[str, frozenset[str]]


def _table() -> HarmlessSteps:
    return load_table("image_steps.toml", HarmlessSteps, "table")


def plain_packages() -> frozenset[str]:
    """Packages without a requirement on one that has GPU code."""
    return _table().packages


def harmless_programs() -> frozenset[str]:
    """Programs that install no package."""
    return _table().programs


def queries_of(manager: str) -> frozenset[str]:
    """Subcommands of a package manager that install nothing; empty for other programs."""
    return _table().queries.get(SAME_SUBCOMMANDS.get(manager, manager), frozenset())
