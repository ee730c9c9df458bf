"""The series of a release: a newer one that a solver passed over is tried again."""

from __future__ import annotations

import pytest

from envdoctor.locking.step_series import series


@pytest.mark.parametrize(
    ("version", "expected"), [("2.3.1", (2, 0)), ("0.17.2", (0, 17)), ("1!0.3.0", (0, 3)), ("7", (7, 0))]
)
def test_the_series_of_a_release(version: str, expected: tuple[int, int]) -> None:
    assert series(version) == expected
