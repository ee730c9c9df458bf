"""Known breaks of real packages, with PyPI. The campaign has all of them, and the table of the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "campaigns"))

from bisect_breaks import CASES, is_right, row, run

LIGHT = ("packaging: LegacyVersion", "setuptools: pkg_resources", "urllib3 and packaging together")


@pytest.mark.network
@pytest.mark.parametrize("case", [case for case in CASES if case.name in LIGHT], ids=lambda case: case.name)
def test_a_known_break_is_named_within_the_limit(case) -> None:
    result = run(case)
    assert is_right(case, result), row(case, result)
