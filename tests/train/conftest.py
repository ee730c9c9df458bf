"""The trainer is a program, not a package: its folder goes on the path as Python puts it there for a script."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hub_runs import make_models
from stacks import NAMED, TRAIN

sys.path.insert(0, str(TRAIN))


@pytest.fixture(scope="module", params=NAMED)
def python(request: pytest.FixtureRequest) -> Path:
    """A training stack's interpreter; a test that asks for it is run in each."""
    return Path(request.param) if request.param else request.getfixturevalue("stack_python")


@pytest.fixture(scope="module")
def made(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of tiny models, as this stack writes them."""
    folder = tmp_path_factory.mktemp("models")
    make_models(python, folder)
    return folder
