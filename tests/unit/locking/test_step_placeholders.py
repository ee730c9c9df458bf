"""The requirements of empty wheels that take the place of releases."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.locking.step_placeholders import placeholder_requirements


@each_case(
    ("package", "version", "requirement", "is_required"),
    [
        ("torch", "2.9.1+cu128", "jinja2", True),
        ("torch", "2.9.1+cpu", "networkx", True),
        ("torch", "2.9.1+cpu", "triton==3.5.1", True),  # of the tables
        ("torch", "1.13.1+cu117", "jinja2", False),
        ("torch", "2.9.1+installed", "jinja2", False),  # an installed release has its requirements
        ("torchvision", "0.24.1+cu128", "pillow", True),
        ("torchvision", "0.24.1+cu128", "requests", False),
        ("torchvision", "0.15.2+cu118", "requests", True),
    ],
)
def test_a_release_of_the_pytorch_index_has_its_requirements(
    package: str, version: str, requirement: str, is_required: bool
) -> None:
    assert (requirement in placeholder_requirements(package, version)) == is_required
