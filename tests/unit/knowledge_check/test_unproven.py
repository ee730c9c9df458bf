"""Rows that no wheel proves: each has a source, a date, and a sentence on what would disprove it."""

from __future__ import annotations

import re
from datetime import date

from envdoctor.knowledge_check.tables import FOLDERS, fact_lists, table_names, underivable
from envdoctor.knowledge_check.unproven import DERIVABLE, UNPROVEN

TODAY = date(2026, 11, 26)
LISTS = {
    f"{table} {name}": rows
    for table in table_names()
    if table.partition("/")[0] not in (*FOLDERS, "published")
    for name, rows in fact_lists(table).items()
}


def test_each_list_of_facts_is_derivable_or_states_what_would_disprove_it() -> None:
    assert set(LISTS) == DERIVABLE | set(UNPROVEN)
    assert not DERIVABLE & set(UNPROVEN)
    sentence = re.compile(r"[A-Z`/].{20,}[^.]\.")
    assert [name for name, each in UNPROVEN.items() if not sentence.fullmatch(each.disproof)] == []


def test_each_unproven_row_has_a_source_and_a_day_in_the_past() -> None:
    for name in UNPROVEN:
        for row in LISTS[name]:
            assert len(row["source"]) > 8, (name, row)
            assert date(2021, 1, 1) <= date.fromisoformat(row["date"]) <= date.today(), (name, row)


def test_every_table_lists_its_unproven_rows() -> None:
    for table in table_names():
        groups = underivable(table, TODAY)
        rows = sum(
            len(LISTS[f"{table} {name}"]) for name in (key.split()[1] for key in UNPROVEN if key.split()[0] == table)
        )
        assert sum(group.rows for group in groups) == rows, table
        assert all(group.disproof and group.age_days is not None for group in groups)
