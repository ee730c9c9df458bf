"""Audits of these tests query no package index."""

from __future__ import annotations

import pytest

from envdoctor.commands import audit
from envdoctor.resolution.step import NoSolver


@pytest.fixture(autouse=True)
def _no_package_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "UvStepSolver", lambda *_: NoSolver())
