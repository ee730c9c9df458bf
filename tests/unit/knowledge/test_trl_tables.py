"""The trainer, audit and the table of TRL's names state the same facts about each release of TRL."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from envdoctor.knowledge.guides import guide_tables, inherited_arguments
from envdoctor.knowledge.names import find_member
from envdoctor.knowledge.versions import satisfies

TRAIN = Path(__file__).parents[3] / "train"
FIELDS = tomllib.loads((TRAIN / "trl_fields.toml").read_text())


@pytest.mark.parametrize(("table", "owner"), [("grpo", "GRPOConfig"), ("sft", "SFTConfig"), ("dpo", "DPOConfig")])
def test_the_trainer_and_audit_know_the_same_fields(table: str, owner: str) -> None:
    releases = FIELDS["trl_releases"].split()
    contradictions = []
    for name, row in FIELDS[table].items():
        spans = find_member("arguments", owner, name)
        first, _, last = row["releases"].partition("..")
        for release in releases:
            in_trainer = satisfies(release, f">={first or 0}") and satisfies(release, f"<={last or 99}")
            in_audit = any(span.can_be_in(release) for span in spans) if spans else True  # no span: in all of them
            contradictions += [f"{owner}.{name} in TRL {release}"] if in_trainer != in_audit else []
    assert not contradictions


def test_the_trainer_and_audit_know_the_same_loss_types() -> None:
    module = ast.parse((TRAIN / "trl_config/loss.py").read_text())
    values = {node.targets[0].id: node.value for node in module.body if isinstance(node, ast.Assign)}
    for kind, since in ast.literal_eval(values["LOSSES"]).items():
        (span,) = find_member("values", "GRPOConfig", f"loss_type={kind}")
        assert (span.first, span.last) == (f"{since}.0", ""), kind


@pytest.mark.parametrize("row", guide_tables().argument, ids=lambda row: row.name)
def test_what_replaces_an_argument_is_accepted_by_the_newest_release(row: object) -> None:
    assert row.replacement or row.instead
    if row.replacement and row.replacement not in inherited_arguments("trl"):
        spans = find_member("arguments", row.owner, row.replacement)
        assert all(not span.last for span in spans[-1:]), row
