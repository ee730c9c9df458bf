"""Where the data and programs that travel with envdoctor lie: in the wheel, or in the checkout beside it."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def bundled(name: str) -> Path:
    """The folder `name` ("profiles", "train"): inside an installed package first, else the checkout's."""
    inside = PACKAGE / "bundled" / name
    return inside if inside.is_dir() else PACKAGE.parent / name
