"""The sizes, tolerances and time limits of the probes."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import pytest
from support.recorded_results import assert_as_recorded

from envdoctor.verify.probe_scripts import PROBES_FOLDER


def has_numbers(value: Any) -> bool:
    """Whether a value is a number, or consists of values that are."""
    if isinstance(value, tuple | dict):
        return all(map(has_numbers, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_numbers_of_the_probes_are_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger tolerance or a smaller size would still pass with correct packages."""
    monkeypatch.syspath_prepend(str(PROBES_FOLDER))
    before = set(sys.modules)
    found: dict[str, Any] = {}
    for path in sorted([*PROBES_FOLDER.glob("*.py"), *PROBES_FOLDER.glob("fleet/*.py")]):
        if path.stem in ("_triton_kernels", "ray_tasks"):  # import triton and Ray
            continue
        values = runpy.run_path(str(path), run_name=path.stem)
        found[path.stem] = {
            name: [value] for name, value in values.items() if name.isupper() and value and has_numbers(value)
        }
    for name in set(sys.modules) - before:
        if (PROBES_FOLDER / f"{name}.py").exists():
            del sys.modules[name]
    assert len(found) > 30
    assert_as_recorded("probe-numbers", found)
