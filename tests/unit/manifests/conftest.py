"""Audits of these tests query no package index, and read no file of this repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.commands import audit
from envdoctor.resolution.step import NoSolver


@pytest.fixture(autouse=True)
def _no_package_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "UvStepSolver", lambda *_: NoSolver())


@pytest.fixture(scope="session")
def _empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def _no_own_checkout(monkeypatch: pytest.MonkeyPatch, _empty_folder: Path) -> None:
    """Relative names such as `guide.md` are those of an empty folder, not of the clone in which pytest runs."""
    monkeypatch.chdir(_empty_folder)
