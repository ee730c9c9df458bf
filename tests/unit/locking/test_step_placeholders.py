"""The requirements of empty wheels that take the place of releases."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex

from envdoctor.locking.step_placeholders import placeholder_requirements
from envdoctor.locking.step_question import step_question, with_unknown_branches
from envdoctor.resolution.index_facts import IndexedRelease
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
        ("torch", "2.2.0+cu121", "nvidia-nccl-cu12==2.19.3", True),
        ("torch", "2.2.0+cu118", "nvidia-nccl-cu12==2.19.3", False),  # of another CUDA
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


@each_case(("indexed", "expected"), [("audiotools", ("audiotools==0.7.2+commit",)), ("other", ())])
def test_a_main_branch_of_unknown_requirements_is_one_of_the_newest_release(
    indexed: str, expected: tuple[str, ...]
) -> None:
    requirement = parse_install_requirement("audiotools @ git+https://github.com/example/audiotools@main#egg=a", 1)
    assert requirement
    problem = StepProblem((requirement,), (), (), {}, ResolverTarget("x86_64", "3.11"))
    index = FixedIndex(IndexedRelease(indexed, "0.7.2", "2026-01-01"))
    assert step_question(with_unknown_branches(problem), index).requirements == expected
