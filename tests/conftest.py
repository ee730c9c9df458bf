"""Fixtures at real boundaries: a fake NVML library built from C, real interpreters, real stacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakenvml.fixture import fake_nvml  # noqa: F401  a fixture is found by its name


@pytest.fixture(scope="session")
def stack_python() -> Path:
    """An interpreter with torch, transformers, trl, peft and datasets (ENVDOCTOR_STACK_PYTHON)."""
    given = os.environ.get("ENVDOCTOR_STACK_PYTHON")
    if not given:
        pytest.fail("set ENVDOCTOR_STACK_PYTHON to a Python that holds the training stack")
    return Path(given)
