"""Each remedy is applied with real uv, and the finding is gone.

uv installs from an index of envdoctor's tables on loopback (support.release_index). The results of all remedies are
recorded; the test of the record takes two minutes and has the marker `long`. After a change of a remedy, write the
record again: `ENVDOCTOR_WRITE_RECORDED_RESULTS=1 python -m pytest -m long tests/unit/rules/test_remedies_with_uv.py`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import test_rules
import test_rules_boundaries
import test_rules_builds
import test_rules_machine
import test_rules_obsolete_settings
import test_rules_packages
from support.cases import each_case
from support.faulty_stacks import faulty_stacks
from support.paths import DATA
from support.recorded_results import assert_text_as_recorded
from support.release_index import ReleaseIndex
from support.remedy_proof import COMMAND, ROOT, Example, results_of
from support.report_stack import make_machine, make_stack

from envdoctor.core.records import Distribution, Machine, Stack
from envdoctor.reports import parse_report
from envdoctor.rules import RULES, evaluate

RECORD = "applied-remedies.jsonl"
H100, T4, RTX5090 = "NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA GeForce RTX 5090"

# Rules whose first example the default suite uses: a pin, a build of the PyTorch index, a package to remove.
SAMPLE = ("HF002", "VLLM001", "NVML001")


def other_examples() -> Iterator[tuple[str, Machine, Stack, tuple[str, ...]]]:
    """Rules that the other tests of this folder examine without a table."""
    h100 = make_machine([H100])
    needy = Distribution(name="trl", version="0.23.1", requires=("accelerate>=1.4.0",))
    yield (
        "PKG007",
        h100,
        make_stack("2.8.0+cu128", cuda="12.8", distributions=(needy,), source="files"),
        ("accelerate",),
    )
    nvidia = make_stack("2.1.0a0+32f93b1", cuda="12.2", uses=("vllm",), packages={"accelerate": "0.34.0"})
    yield "VLLM002", h100, nvidia, ()
    yield "VLLM004", make_machine([RTX5090]), test_rules_packages.stack_of("torch 2.7.0+cu128, vllm 0.9.1"), ()
    engine = "torch 2.8.0+cu128, sglang 0.5.10, transformers 4.56.1, openai 2.6.1"
    yield "PKG050", h100, test_rules_packages.stack_of(engine), ()
    yield "TORCH010", make_machine(["NVIDIA H20"]), test_rules_packages.stack_of("torch 2.4.0+cu121"), ()
    yield "VLLM005", make_machine([T4]), test_rules_packages.stack_of("torch 2.8.0+cu128, flash-attn 2.8.3"), ()
    yield "HF016", h100, test_rules_packages.stack_of("torch 2.4.1+cu121, trl 0.11.4, transformers 4.46.0"), ()
    forced = make_machine([H100], environment={"BNB_CUDA_VERSION": "118"})
    yield "BNB002", forced, test_rules_packages.stack_of("torch 2.6.0+cu124, bitsandbytes 0.48.1"), ()
    report = parse_report("python: 3.11\nCUDA_VISIBLE_DEVICES: 1\ntorch.cuda.is_available(): False\n")
    assert report.stack
    yield "ENV017", report.machine, report.stack, ()


def examples() -> Iterator[Example]:
    """The machines and environments of the tests in this folder, with the rule that reports them."""
    for text, rule, _ in test_rules_packages.BROKEN:
        yield Example(rule, text, make_machine([H100]), test_rules_packages.stack_of(text))
    for case in (*test_rules_boundaries.CASES, *test_rules_obsolete_settings.CASES):
        yield Example(case.rule, "", *case.sees)
    for name, (machine, stack, _) in test_rules_builds.REPORTS.items():
        for finding in evaluate(machine, stack):
            yield Example(finding.id, name, machine, stack)
    for rule, _, machine, stack in test_rules_machine.machines_with_problems():
        yield Example(rule, "", machine, stack)
    for rule, _, machine in test_rules.machines_with_problems():
        yield Example(rule, "", machine, make_stack(None))
    for rule, machine, stack, without in other_examples():
        yield Example(rule, "", machine, stack, without)
    usual: set[str] = set()
    for name, machine, stack in faulty_stacks():
        found = tuple(evaluate(machine, stack))
        usual = {finding.id for finding in found} if name.endswith("no fault") else usual
        for rule in sorted({finding.id for finding in found} - (usual if "no fault" not in name else set())):
            yield Example(rule, name, machine, stack, found=found)


@cache
def named_examples() -> dict[str, Example]:
    """The examples by rule and name, those without a name by their number."""
    named: dict[str, Example] = {}
    for example in examples():
        label = f"{example.rule} {example.name}".strip()
        number = sum(each == label or each.startswith(f"{label} #") for each in named)
        label = f"{label} #{number + 1}" if number else label
        named[label] = example._replace(name=label)
    return named


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


def reported(example: Example) -> list[list[str]]:
    """The commands of each remedy, from the example's records."""
    return [list(remedy.commands) for finding in example.findings() for remedy in finding.remedies]


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "recorded_results" / RECORD).read_text().splitlines()]


@each_case("rule", SAMPLE)
def test_a_sample_of_remedies_cures(rule: str, place: Path, changing_index: ReleaseIndex) -> None:
    example = next(each for each in named_examples().values() if each.rule == rule)
    results = results_of(example, place, changing_index)
    assert results
    assert {failure for _, failure in results} <= {"", COMMAND}


def test_every_rule_has_an_example() -> None:
    assert set(RULES) == {example.rule for example in named_examples().values()}


def test_the_record_has_the_present_remedies() -> None:
    """Otherwise write the record again, as described at the top of this file."""
    rows = {row["example"]: row["reported"] for row in recorded()}
    assert rows == {name: commands for name, example in named_examples().items() if (commands := reported(example))}


def test_every_failure_has_a_reason() -> None:
    """In tests/data/unproven_remedies.toml, which has no other reasons."""
    rows = tomllib.loads((DATA / "unproven_remedies.toml").read_text())["reason"]
    reasons = [(rule, row["result"]) for row in rows for rule in row["rules"]]
    failures = [(row["rule"], failure) for row in recorded() for _, failure in row["results"]]
    failures = [each for each in failures if each[1] not in ("", ROOT, COMMAND)]
    explains = lambda reason, failure: reason[0] == failure[0] and failure[1].startswith(reason[1])  # noqa: E731
    assert [each for each in failures if not any(explains(reason, each) for reason in reasons)] == []
    assert [each for each in reasons if not any(explains(each, failure) for failure in failures)] == []


@pytest.mark.long
def test_all_remedies_cure_as_recorded(place: Path, changing_index: ReleaseIndex) -> None:
    lines = []
    for name, example in named_examples().items():
        if commands := reported(example):
            results = [[list(each.commands), each.failure] for each in results_of(example, place, changing_index)]
            row = {"rule": example.rule, "example": name, "reported": commands, "results": results}
            lines.append(json.dumps(row, ensure_ascii=False))
    assert_text_as_recorded(RECORD, "".join(f"{line}\n" for line in lines))
