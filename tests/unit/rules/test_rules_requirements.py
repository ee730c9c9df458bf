"""Ranges of versions in the rules on packages, and environments that these rules do not report."""

from __future__ import annotations

from support.cases import each_case
from support.report_stack import make_machine, make_stack
from test_rules_packages import H100, findings_by_id, stack_of

from envdoctor.core.records import Distribution
from envdoctor.rules.requirements import agreed_range, bounded


@each_case(
    ("torch", "xformers"),
    [("2.7.1+cu128", "0.0.30+4cf69f09.d20250707"), ("2.9.0.dev20250901+cu128", "0.0.32.post1")],
)
def test_builds_for_the_installed_torch_are_not_reported(torch: str, xformers: str) -> None:
    """A build from source keeps the requirement of its release."""
    stack = stack_of(f"torch {torch}, xformers {xformers}")
    assert "PKG006" not in findings_by_id(make_machine([H100]), stack)


def test_llamafactory_replaces_the_method_that_trl_and_transformers_share() -> None:
    listed = "trl 0.9.6, transformers 4.49.0"
    assert "HF016" in findings_by_id(make_machine([H100]), stack_of(listed))
    assert "HF016" not in findings_by_id(make_machine([H100]), stack_of(f"{listed}, llamafactory 0.9.2"))


def test_specifiers_are_short_and_have_both_bounds() -> None:
    """A trailing comma is valid in METADATA, but not in a command."""
    names = (("a", "numpy (>=1.20,)"), ("b", "numpy>=1.26,<3,!=2.0.1"), ("c", "numpy<2.3,"))
    users = tuple(Distribution(name=name, version="1", requires=(line,)) for name, line in names)
    stack = make_stack(packages={"numpy": "2.4.0"}, distributions=users)
    assert agreed_range(stack, "numpy") == (">=1.26,!=2.0.1,<2.3", True)
    assert bounded(">=0.34.0") == ">=0.34.0,<0.35"
    assert bounded("accelerate>=1.4.0") == "accelerate>=1.4.0,<2"
    assert bounded("einops") == "einops"
    assert bounded("==1.4.0") == "==1.4.0"


def test_builds_of_torch_as_evidence() -> None:
    finding = findings_by_id(make_machine([H100]), stack_of("torch 2.11.0+cu126, vllm 0.21.0"))["VLLM003"]
    assert [each.value for each in finding.evidence if each.fact == "torch"] == ["version 2.11.0+cu126, cuda 12.6"]
