"""Reports after a terminal, a page, a mail or a log changed their lines: no wrong fact, and few lost ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.changed_texts import CUT, CUT_WITHIN_LINES, REVERSIBLE, Change, known_facts, wrong_facts

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import Report, parse_report
from envdoctor.reports.coverage import measure_coverage

DATA = Path(__file__).parents[2] / "data"
MAX_LOSS = 0.03
SEED, SAMPLE = 24, 4
# What a change itself shows: these lines come from a container.
ADDED = {"docker compose": {"machine.system.container"}}


def all_texts() -> dict[str, str]:
    """The reports of the other tests."""
    formats = {path.stem: path.read_text() for path in sorted((DATA / "report_formats").glob("*.txt"))}
    layouts = json.loads((DATA / "report_layouts.json").read_text())
    causes = json.loads((DATA / "report_causes.json").read_text())
    return {
        **{path.stem: path.read_text() for path in sorted((DATA / "report_samples").glob("*.txt"))},
        **{f"{name} (format)": text.split("\n", 1)[1] for name, text in formats.items()},
        **{row["name"]: row["text"] for row in layouts},
        **{f"cause {number}": row["text"] for number, row in enumerate(causes)},
    }


TEXTS = all_texts()


def compare(changes: dict[str, Change], names: list[str]) -> tuple[int, int, list[str]]:
    """The number of facts, of lost facts, and the wrong facts, over all changes and texts."""
    total = lost = 0
    wrong = []
    for name in names:
        original = known_facts(parse_report(TEXTS[name]))
        for change, apply in changes.items():
            found = known_facts(parse_report(apply(TEXTS[name])))
            total += len(original)
            lost += len(original.keys() - found.keys())
            false = wrong_facts(TEXTS[name], original, found).keys() - ADDED.get(change, set())
            wrong += [f"{name}, {change}: {path} = {found[path]!r}" for path in sorted(false)]
    return total, lost, wrong


def assert_few_are_lost(changes: dict[str, Change], names: list[str]) -> None:
    total, lost, wrong = compare(changes, names)
    assert not wrong, "\n".join(wrong)
    assert lost <= MAX_LOSS * total, f"{lost} of {total} facts are lost"


def test_sampled_reports_keep_their_facts() -> None:
    names = random.Random(SEED).sample(sorted(TEXTS), SAMPLE)
    assert_few_are_lost(REVERSIBLE, ["vllm-collect-env", "nvidia-smi", "uv-pip-list", *names])


@pytest.mark.long
@pytest.mark.parametrize("change", REVERSIBLE)
def test_reports_keep_their_facts_after_a_change(change: str) -> None:
    assert_few_are_lost({change: REVERSIBLE[change]}, sorted(TEXTS))


def has_torch_and_gpu(report: Report) -> bool:
    torch = report.stack.torch.value
    return bool(torch and torch.version.value and report.machine.gpus.value)


def assert_cut_is_not_judged(name: str) -> None:
    """A cut report has no wrong facts and no other errors. It is not enough if torch or the GPU is not in it."""
    text = TEXTS[name]
    original = parse_report(text)
    causes = {finding.cause for finding in diagnose_report(original) if finding.status in ("error", "warning")}
    for change, apply in CUT.items():
        report = parse_report(apply(text))
        assert not wrong_facts(text, known_facts(original), known_facts(report)), (name, change)
        if has_torch_and_gpu(original) and not has_torch_and_gpu(report):
            assert not measure_coverage(report).enough, (name, change)
    for change, apply in (CUT | CUT_WITHIN_LINES).items():
        report = parse_report(apply(text))
        errors = {finding.cause for finding in diagnose_report(report) if finding.status == "error"}
        assert errors <= causes, (name, change)


def test_cut_samples_are_not_judged() -> None:
    for name in ["vllm-collect-env", *random.Random(SEED).sample(sorted(TEXTS), 2)]:
        assert_cut_is_not_judged(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_cut_reports_are_not_judged(name: str) -> None:
    assert_cut_is_not_judged(name)
