"""A table states the version of a package only where its heading is one of versions."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.manifests import audit_guide

STEPS = sh("pip install torch==2.8.0 transformers==4.57.1 vllm==0.11.0", title="")

TABLES = {
    "versions": ("| Package | Version |\n|---|---|\n| PyTorch | 2.5.1 |\n", True),
    "requirements": ("| Component | Tested |\n|:---|:--:|\n| transformers | 4.40.0 |\n", True),
    "no heading": ("| | |\n|---|---|\n| PyTorch | 2.5.1 |\n", True),
    "seconds of a framework": ("| Framework | Time (s) |\n|---|---|\n| PyTorch | 0.56 |\n", False),
    "memory of an engine": ("| Engine | Memory (GB) |\n|:--:|:--:|\n| vLLM | 20.6 |\n| torch | 74.8 |\n", False),
    "a score": ("| Model | pass@1 |\n|--|--|\n| Transformers | 61.2 |\n", False),
    "variants": ("| Release | Version |\n|--|--|\n| v1.0 | `torch==2.8.0` |\n| v1.1 | torch 2.5.1 |\n", False),
    "variants without that of the steps": (
        "| Release | Version |\n|--|--|\n| v1.0 | `torch==2.4.0` |\n| v1.1 | `torch==2.5.1` |\n", True,
    ),
    "the release of another package": (
        "| Package | Version |\n|--|--|\n| transformers | 4.57.1 |\n| torch | 2.5.1 |\n", True,
    ),
    "a lower bound": ("| Component | Minimum | Version |\n|---|---|---|\n| PyTorch | 2.0+ | 2.2+ |\n", False),
    "a lower bound in code": ("| Package | Version |\n|---|---|\n| torch | `2.0`+ |\n", False),
}  # fmt: skip


@each_case("name", list(TABLES))
def test_a_table_of_versions_is_compared_with_the_steps(name: str) -> None:
    table, is_reported = TABLES[name]
    findings = audit_guide(f"# Setup\n\n{table}\n{STEPS}", name="guide.md", today=date(2026, 11, 26)).findings
    assert [each.status for each in findings if each.id == "RUN007"] == (["warning"] if is_reported else [])
