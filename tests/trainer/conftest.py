"""Put train/ on the path, as Python does for a script: the trainer is a program, not a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.hub_runs import make_models
from support.paths import TRAIN
from support.stacks import NAMED

sys.path.insert(0, str(TRAIN))


@pytest.fixture(scope="module", params=NAMED)
def python(request: pytest.FixtureRequest) -> Path:
    """A training stack's interpreter; its tests run in each of them."""
    return Path(request.param) if request.param else request.getfixturevalue("stack_python")


@pytest.fixture(scope="module")
def made(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of tiny models, as this stack writes them."""
    folder = tmp_path_factory.mktemp("models")
    make_models(python, folder)
    return folder
