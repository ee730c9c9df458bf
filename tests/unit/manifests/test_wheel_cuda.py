"""Wheels that load the libraries of another CUDA than torch brings, in guides and in corrected sets."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.set_repairs import broken_rules, limits_without
from envdoctor.resolution.step import NoSolver

PINS = "onnxruntime-gpu==1.18.0\ntorch==2.2.2\n"
FEED = "https://pkgs.example.visualstudio.com/a/_packaging/onnxruntime-cuda-12/pypi/simple/"
IMAGE = (
    "FROM nvidia/cuda:{}-cudnn8-runtime-ubuntu22.04\nRUN pip install onnxruntime-gpu==1.18.0 torch==2.2.2 'numpy<2'\n"
)


@each_case(
    ("name", "text", "line"),
    [
        ("requirements.txt", PINS, 2),
        ("requirements.txt", f"--extra-index-url {FEED}\n{PINS}", 0),
        ("Dockerfile", IMAGE.format("11.8.0"), 0),
        ("Dockerfile", IMAGE.format("12.1.1"), 2),
        (
            "S.md",
            sh("conda install -c nvidia cudatoolkit=11.8", "pip install onnxruntime-gpu==1.18.0 torch==2.2.2"),
            0,
        ),
        ("S.md", sh("pip install onnxruntime-gpu==1.18.0 torch==2.2.2"), 3),
    ],
)
def test_a_wheel_for_another_cuda_in_a_guide(name: str, text: str, line: int) -> None:
    found = audit_text(text, name, None, NoSolver()).result.findings
    assert [(each.id, each.line) for each in found if each.cause == "cudart-missing"] == [("RUN004", line)] * bool(
        line
    )


@each_case(
    ("versions", "fixed", "limits"),
    [
        ({"torch": "2.8.0", "onnxruntime-gpu": "1.31.1"}, {"torch"}, ["onnxruntime-gpu>=1.19,<1.27"]),
        ({"torch": "2.8.0", "ctranslate2": "4.4.0"}, set(), ["ctranslate2>=4.6.3,<=4.8.5"]),
        ({"torch": "2.8.0", "onnxruntime-gpu": "1.22.0"}, set(), []),
        ({"torch": "2.2.2", "onnxruntime-gpu": "1.18.0"}, set(), []),  # no release fits: the set is not rejected
    ],
)
def test_a_set_gets_the_wheel_for_the_cuda_of_torch(
    versions: dict[str, str], fixed: set[str], limits: list[str]
) -> None:
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", python="3.12", requirements=(), own=(), wanted=())
    found = [each for each in broken_rules(versions, corrected) if each.problem.cause or each.rule.id == "PKG030"]
    assert limits_without(found, versions, corrected, fixed) == limits


PAGE = "-f https://download.pytorch.org/whl/torch_stable.html"


@each_case(
    ("version", "options", "gpu", "is_reported"),
    [
        ("2.0.1+cu118", PAGE, "H100", False),
        ("2.0.1+cu117", PAGE, "H100", True),
        ("1.9.1+cu111", PAGE, "A100", False),
        ("1.9.1", PAGE, "A100", False),  # the page has builds for several CUDA versions
        ("1.9.1", "", "A100", True),  # PyPI's is for CUDA 10.2
        ("1.9.1", "", "V100", False),
        ("1.13.1", "", "A100", False),
    ],
)
def test_the_build_of_torch_that_a_step_names_counts(version: str, options: str, gpu: str, is_reported: bool) -> None:
    solver = FixedSolver(FixedIndex(), {"torch": version.partition("+")[0]})
    text = sh(f"pip install torch=={version} {options}", title=f"# {gpu}")
    assert bool(findings(text, solver, "RUN057")) == is_reported
