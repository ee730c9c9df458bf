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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a program that loads two modules of its own."""
    files = {
        "train.py": "import torch\nfrom project import data\n",
        "project/__init__.py": "",
        "project/data.py": "from . import figures\n",
        "project/figures.py": "import os\nimport plots.lines as lines\n",
        "lonely.py": "import tables\n",
    }
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path
