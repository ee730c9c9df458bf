"""Remedies of rules, applied to the environments that the rules report."""

from __future__ import annotations

import pytest
from support.cases import each_case
from support.remedies import apply
from support.report_stack import file_stack

from envdoctor.core.remedies import steps
from envdoctor.rules.facts import torch_cuda
from envdoctor.rules.requirements import versions_of


@each_case(
    ("command", "cuda", "expected"),
    [
        # uv keeps an installed version that satisfies the requirement, whatever its build.
        ("uv pip install torch==2.9.1 --torch-backend=cu128", "13.0", {}),
        ("uv pip install torch==2.9.1 --torch-backend=cu128 --reinstall-package torch", "12.8",
         {"torch": "2.9.1+cu128"}),
        ("uv pip install torch==2.8.0 --torch-backend=cu128", "12.8", {"torch": "2.8.0+cu128", "triton": "3.4.0"}),
        ("uv pip install torchvision==0.23.0 --torch-backend=cu128", "12.8",
         {"torchvision": "0.23.0+cu128", "torch": "2.8.0+cu128", "triton": "3.4.0"}),
        ("uv pip install 'numpy<2'", "13.0", {}),
        ("uv pip install 'numpy>=2,<2.3'", "13.0", {"numpy": "2.2.6"}),
        ("uv pip uninstall numpy", "13.0", {"numpy": None}),
    ],
)  # fmt: skip
def test_apply_changes_an_environment_as_uv_does(command: str, cuda: str, expected: dict[str, str | None]) -> None:
    before = file_stack(
        "2.9.1+cu130", {"torch": "2.9.1+cu130", "triton": "3.5.1", "numpy": "1.26.4", "fsspec": "2025.9.0"}
    )
    after = apply(before, *steps(command))
    versions = versions_of(after)
    assert torch_cuda(after) == cuda
    assert {name: versions.get(name) for name in {*versions_of(before), *versions}} == versions_of(before) | expected


@each_case(
    "command",
    [
        "uv pip install torch==2.9.1 --torch-backend=cu118 --reinstall-package torch",
        "uv pip install 'torch>=9'",
        "uv pip install no-such-package",
        "uv pip uninstall vllm",
    ],
)
def test_apply_rejects_what_uv_rejects(command: str) -> None:
    with pytest.raises(AssertionError):
        apply(file_stack("2.9.1+cu130", {"torch": "2.9.1+cu130"}), *steps(command))
