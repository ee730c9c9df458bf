"""The requirements of releases that a list of packages violates."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.report_stack import make_machine, make_stack

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.knowledge.bounds import bounds_of_release, has_bounds, parse_bounds
from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.tables import FOLDER, read_table
from envdoctor.knowledge.versions import satisfies, version_key
from envdoctor.reports import parse_report
from envdoctor.rules import evaluate
from envdoctor.rules.requirements import Violation, is_below, requirements_of

TABLES = sorted(path.stem for path in (FOLDER / "bounds").glob("*.toml"))
NAMES = set((Path(__file__).parents[2] / "campaigns/bounded_packages.txt").read_text(encoding="utf-8").split())


def test_every_line_of_the_tables_is_a_requirement() -> None:
    assert len(TABLES) > 150
    wrong = [
        (name, version, line)
        for name in TABLES
        for version, lines in parse_bounds(read_table(f"bounds/{name}.toml")["releases"])
        for line in lines
        if not (found := parse_requirement(line))
        or found.name not in NAMES
        or satisfies("1", found.specifier) is None
    ]
    versions = [
        version
        for name in TABLES
        for version, _ in parse_bounds(read_table(f"bounds/{name}.toml")["releases"])
        if version_key(version) is None
    ]
    assert (wrong, versions) == ([], [])


def test_a_release_between_two_others_has_what_both_require() -> None:
    assert "thinc>=8.2.2,<8.3.0" in bounds_of_release("spacy", "3.7.4")
    assert "thinc>=8.2.2,<8.3.0" in bounds_of_release("spacy", "3.7.5.post1")
    assert not any(line.startswith("thinc") for line in bounds_of_release("spacy", "3.7.99"))


@each_case("version", ["0.0.1", "99.0", "3.7.4.dev1", "3.7.4+git1a2b3c4"])
def test_other_versions_are_not_guessed(version: str) -> None:
    assert bounds_of_release("spacy", version) == ()


@each_case("package", ["envdoctor", "../requires/vllm", "a" * 5000, "a\0b"])
def test_a_package_without_a_table_has_no_bounds(package: str) -> None:
    assert not has_bounds(package)
    assert bounds_of_release(package, "1.0") == ()


def test_another_build_of_vllm_has_no_bounds() -> None:
    stack = make_stack(None, packages={"vllm": "0.10.2+cpu", "torch": "2.6.0+cpu", "numba": "0.59.0"})
    assert [each for each in requirements_of(stack).violations if each.requirer == "vllm"] == []


def test_a_requirement_for_other_pythons_is_not_violated() -> None:
    packages = {"pandas": "2.1.4", "numpy": "1.24.0"}  # numpy>=1.26 on Python 3.12, >=1.22.4 on 3.10
    found = [requirements_of(make_stack(python=python, packages=packages)).violations for python in ("", "3.10.4")]
    assert found == [(), ()]
    assert [each.specifier for each in requirements_of(make_stack(packages=packages)).violations] == [">=1.26.0,<2"]
    (violation,) = requirements_of(make_stack(python="", packages=packages | {"numpy": "2.1.0"})).violations
    assert violation.name == "numpy"


SPACY = {"python": "3.11.9", "spacy": "3.7.2", "thinc": "8.3.2"}
PAIRS = [
    ("spacy 3.7.2, thinc 8.3.2", "warning"),
    ("faster-whisper 0.10.1, ctranslate2 4.4.0", "warning"),
    ("jax 0.4.35, jaxlib 0.4.30", "warning"),
    ("llama-index 0.12.5, llama-index-core 0.10.68", "warning"),
    ("deepspeed 0.16.4, pydantic 1.10.13", "warning"),
    ("unsloth 2025.3.19, unsloth-zoo 2025.1.2", "warning"),
    ("gradio 3.50.2, gradio-client 1.3.0", "warning"),
    ("transformer-engine 2.8.0, transformer-engine-cu12 2.7.0", "error"),
    ("jax-cuda12-plugin 0.7.2, jax-cuda12-pjrt 0.6.0", "warning"),
    ("hydra-core 1.0.7, omegaconf 2.3.0", "warning"),
    ("open-clip-torch 3.3.0, timm 1.0.16", "info"),
    ("megatron-core 0.14.0, numpy 2.3.4", "info"),
    ("datasets 3.1.0, fsspec 2024.10.0", "info"),
    ("litellm 1.83.7, openai 2.33.0", "info"),
    ("litellm 1.83.7, openai 2.25.0", "info"),
    ("tensorflow 2.16.1, keras 2.15.0", "warning"),
    ("tensorflow 2.15.0, keras 3.4.1", "info"),
    ("thinc 8.3.2, numpy 2.2.6", "info"),
    ("tensorflow 2.10.1, protobuf 4.25.3", "warning"),
    ("tensorflow 2.10.1, protobuf 3.20.3", "info"),
    ("tensorflow 2.18.0, protobuf 3.19.6", "warning"),
    ("descript-audiotools 0.7.2, protobuf 5.29.6", "info"),
    ("google-api-core 2.34.0, protobuf 6.31.1", "info"),
    ("mistral-common 1.11.6, numpy 2.5.1", "info"),
    ("pandas 1.5.3, numpy 1.22.4", "info"),
]


@each_case(("text", "status"), PAIRS)
def test_a_violated_requirement_of_a_pair(text: str, status: str) -> None:
    packages = dict(pair.split() for pair in text.split(", "))
    findings = evaluate(make_machine([]), make_stack(packages=packages))
    assert [each.status for each in findings if each.id in ("PKG001", "PKG003")] == [status]


@each_case(("channel", "number"), [("conda-forge", 0), ("pypi", 1)])
def test_packages_of_conda_are_those_that_its_solver_chose(channel: str, number: int) -> None:
    build = "pypi_0" if channel == "pypi" else "py311h3fd9d12_0"
    rows = "".join(f"{name:<25} {version:<20} {build}  {channel}\n" for name, version in SPACY.items())
    report = parse_report(f"$ conda list\n# Name                    Version                   Build  Channel\n{rows}")
    assert len(requirements_of(report.stack).violations) == number


@each_case(
    ("requirer", "name", "specifier", "installed", "expected"),
    [
        ("jax", "jaxlib", ">=0.4.34,<=0.4.35", "0.4.30", True),
        ("torchvision", "torch", "==2.8.0", "2.7.0", False),
        ("trl", "transformers", ">=4.56.2", "4.46.0", True),
        ("torchdata", "torch", "==2.1.0", "2.3.1", True),
        ("open-clip-torch", "timm", ">=1.0.17", "1.0.16", False),
        ("open-clip-torch", "timm", ">=1.0.17", "0.9.2", True),
        ("litellm", "openai", "==2.30.0", "2.33.0", False),
        ("google-api-core", "googleapis-common-protos", "<2", "2.0", False),
        ("llmcompressor", "compressed-tensors", "==0.10.2", "0.11.0", True),
    ],
)
def test_a_decisive_violation(requirer: str, name: str, specifier: str, installed: str, *, expected: bool) -> None:
    violation = Violation(requirer, "1.0", name, specifier, installed, is_below(installed, specifier))
    assert violation.is_decisive == expected


@each_case(
    ("rule", "pair", "more", "status"),
    [
        ("PKG001", "jax==0.4.35\njaxlib==0.4.30", 12, "warning"),
        ("PKG001", "jax==0.4.35\njaxlib==0.4.30", 30, "info"),
        ("PKG041", "onnxruntime==1.19.2\nonnxruntime-gpu==1.22.0", 4, "warning"),
        ("PKG041", "onnxruntime==1.19.2\nonnxruntime-gpu==1.22.0", 12, "info"),
    ],
)
def test_a_decisive_pair_of_a_long_list_is_a_note(rule: str, pair: str, more: int, status: str) -> None:
    others = "".join(f"package{number}==1.{number}\n" for number in range(more))
    findings = diagnose_report(parse_report(f"RTX 3090, driver 560.35.03\n{pair}\ntorch==2.5.1\n{others}"))
    assert [each.status for each in findings if each.id == rule] == [status]


@each_case(
    ("heading", "status"), [("pip freeze:", "info"), ("output of uv pip freeze:", "info"), ("it freezes:", "warning")]
)
def test_pip_freeze_is_no_sign_of_a_failure(heading: str, status: str) -> None:
    listed = "vllm==0.8.2\nxgrammar==0.1.10\njax==0.4.35\njaxlib==0.4.34\nflax==0.10.1\ntorch==2.6.0\n"
    findings = diagnose_report(parse_report(f"Python 3.12.9, {heading}\n\n{listed}"))
    assert [each.status for each in findings if each.id == "PKG001"] == [status]


def test_the_newest_releases_of_jax_have_bounds() -> None:
    assert "jaxlib<=0.12.0,>=0.11.2" in bounds_of_release("jax", "0.12.0")
    assert "jax>=0.11.1" in bounds_of_release("flax", "0.12.12")
    assert "protobuf>=4.25.8" in bounds_of_release("onnxruntime-gpu", "1.31.0")
