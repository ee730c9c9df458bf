"""A cache for each test of the comparison with an index."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """METADATA and members are kept under the address of their wheel, and a later server can have the same port."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
