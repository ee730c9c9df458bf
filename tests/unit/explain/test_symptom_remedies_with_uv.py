"""The remedies of symptoms are applied with real uv: packages change, and no error or violated requirement is new.

The rules do not report most of these causes, so that the text itself cannot be checked again. The results are
recorded, as those of rules are in tests/unit/rules/test_remedies_with_uv.py. After a change, write them again:
`ENVDOCTOR_WRITE_RECORDED_RESULTS=1 python -m pytest -m long tests/unit/explain/test_symptom_remedies_with_uv.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.paths import DATA
from support.recorded_results import assert_text_as_recorded
from support.release_index import ReleaseIndex
from support.symptom_proof import commands_of, names_with_packages, occurrences, results_of_symptom

RECORD = "applied-symptom-remedies.jsonl"
SAMPLE = "numpy-1-aliases"  # the default suite applies its remedies


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "recorded_results" / RECORD).read_text().splitlines()]


def test_the_remedies_of_a_symptom_change_packages(tmp_path: Path, changing_index: ReleaseIndex) -> None:
    found = next(each for each in occurrences() if each.of == SAMPLE)
    assert [failure for _, failure in results_of_symptom(found, tmp_path, changing_index)] == [""]


def test_every_symptom_with_packages_is_recorded() -> None:
    names = [each.of for each in occurrences()]
    assert set(names) == names_with_packages()
    assert [row["of"] for row in recorded()] == names


def test_the_record_has_the_present_remedies() -> None:
    """Otherwise write the record again, as described at the top of this file."""
    rows = {row["of"]: [commands for commands, _ in row["results"]] for row in recorded()}
    assert rows == {found.of: commands_of(found) for found in occurrences()}


def test_every_remedy_is_proven() -> None:
    assert [row for row in recorded() if any(failure for _, failure in row["results"])] == []


@pytest.mark.long
def test_all_remedies_of_symptoms_as_recorded(tmp_path: Path, changing_index: ReleaseIndex) -> None:
    lines = []
    for found in occurrences():
        results = [
            [list(each.commands), each.failure] for each in results_of_symptom(found, tmp_path, changing_index)
        ]
        lines.append(json.dumps({"of": found.of, "packages": found.packages, "results": results}, ensure_ascii=False))
    assert_text_as_recorded(RECORD, "".join(f"{line}\n" for line in lines))
