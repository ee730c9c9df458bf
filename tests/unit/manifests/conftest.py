"""Audits of these tests query no package index, and read no file of this repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.local_packages import write_wheel
from support.release_index import ReleaseIndex
from support.text_files import write_files

from envdoctor.commands import audit
from envdoctor.download.sources import Sources
from envdoctor.locking.step_solver import UvStepSolver
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
    write_files(tmp_path, files)
    return tmp_path


@pytest.fixture
def solver(index: ReleaseIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> UvStepSolver:
    """A solver for the index, with the wheels of a folder that the tables do not have."""
    variables = index.variables("pypi")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "holds-transformers", "1.0", requires=["transformers<5"])
    write_wheel(wheels, "caps-torch", "1.0")
    write_wheel(wheels, "caps-torch", "2.0", requires=["torch<2.4"])
    write_wheel(wheels, "needs-old", "2.0", requires=["nvidia-cuda-runtime-cu12<12.5"])
    return UvStepSolver(Sources(index=variables["UV_DEFAULT_INDEX"], find_links=(str(wheels),)))
