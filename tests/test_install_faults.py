"""The fastest faults of the campaign (tests/campaigns/install_faults.py has all of them, and prints a table)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "campaigns"))

from fault_ground import Field, Row
from install_faults import faults, table

FAST = (
    "SIGKILL after the end of sync, over an environment",
    "SIGKILL after the start of swap, first install",
    "SIGKILL in the swap, after the exchange",
    "ten first installs at once",
    "the journal is a folder",
    "the server truncates every file",
)


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "XDG_"))]:
            patch.delenv(name)
        field = Field(tmp_path_factory.mktemp("faults"))
        field.prepare()
        yield field


@pytest.fixture(scope="module")
def tried(field: Field) -> dict[str, Callable[[Field], Row]]:
    return dict(faults(field))


@pytest.mark.parametrize("name", FAST)
def test_nothing_is_lost(name: str, field: Field, tried: dict[str, Callable[[Field], Row]]) -> None:
    row = tried[name](field)
    assert row.good, table([(row, "")])


def test_the_table_shows_what_is_lost_and_what_was_not_tried() -> None:
    rows = [(Row("one"), ""), (Row("two", next="it fails"), ""), (Row("three"), "not tried: no mount")]
    shown = table(rows)
    assert "two: next: it fails" in shown
    assert shown.endswith("1 of 2 faults lost nothing; 1 not tried")
