"""The index of the built-in tables on loopback, and the sources that use it."""

from __future__ import annotations

import pytest
from support.release_index import ReleaseIndex

from envdoctor.download.sources import Sources


@pytest.fixture
def sources(index: ReleaseIndex, monkeypatch: pytest.MonkeyPatch) -> Sources:
    variables = index.variables("pypi")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Sources(index=variables["UV_DEFAULT_INDEX"])
