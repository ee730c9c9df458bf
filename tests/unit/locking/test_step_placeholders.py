"""The requirements of empty wheels that take the place of releases."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex

from envdoctor.locking.step_placeholders import placeholder_requirements
from envdoctor.locking.step_question import step_question
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import ResolverTarget
from envdoctor.resolution.step import StepProblem


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


@each_case(
    ("text", "expected"),
    [
        ("numpy @ file:///D:/bld/numpy_1651020413938/work", set()),  # of another machine: any release
        ("numpy @ file:///home/conda/feedstock_root/build_artifacts/numpy_1/work", set()),
        ("numpy==1.26.4", {"numpy==1.26.4"}),
        ("numpy @ git+https://github.com/numpy/numpy@v1.26.4", {"numpy==1.26.4"}),
    ],
)
def test_a_folder_of_another_machine_is_no_release(text: str, expected: set[str]) -> None:
    requirements = [parse_install_requirement(each, 1) for each in (text, "scipy==1.10.1")]
    target = ResolverTarget("x86_64", "3.11")
    problem = StepProblem(tuple(each for each in requirements if each), (), (), {}, target)
    assert {each for each in step_question(problem).requirements if each.startswith("numpy")} == expected


@each_case(("owner", "is_fork"), [("huggingface", False), ("someone", True)])
def test_a_fork_does_not_have_the_requirements_of_the_newest_release(owner: str, is_fork: bool) -> None:
    requirement = parse_install_requirement(f"trl @ git+https://github.com/{owner}/trl.git", 1)
    assert requirement
    problem = StepProblem((requirement,), (), (), {}, ResolverTarget("x86_64", "3.11"))
    (text,) = step_question(problem, FixedIndex()).requirements
    assert text.endswith("+commit") == is_fork
