"""Many small cases in one test: every case runs, and the error names those that failed."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from support.cases import each_case


def test_every_case_runs_and_failures_are_named(tmp_path: Path) -> None:
    seen = []

    @each_case("base", [2, 3])
    @each_case(("power", "result"), [(1, 2), (2, 4)], ids=["first", "second"])
    def check(base: int, power: int, result: int, folder: Path) -> None:
        seen.append((base, power, folder))
        if power == 2 and base == 3:
            pytest.fail("by pytest.fail")
        assert base**power == result

    assert list(inspect.signature(check).parameters) == ["folder"]
    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed: 3") as caught:
        check(folder=tmp_path)
    (inner,) = caught.value.exceptions
    assert isinstance(inner, BaseExceptionGroup)
    assert inner.message == "2 of 2 cases failed: first; second"
    assert [each.__notes__ for each in inner.exceptions] == [["case: 'first'"], ["case: 'second'"]]
    assert seen == [(base, power, tmp_path) for base in (2, 3) for power in (1, 2)]


@each_case("number", [1, 2], ids=str)
def test_fixtures_are_shared(number: int, tmp_path: Path) -> None:
    (tmp_path / str(number)).touch()
    assert len(list(tmp_path.iterdir())) == number
