"""Wheels that load the libraries of another CUDA than torch brings, in guides and in corrected sets."""

from __future__ import annotations

from support.cases import each_case
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
