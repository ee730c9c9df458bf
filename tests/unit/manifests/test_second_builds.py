"""A set has one of two builds that install the same files."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.core.records import Evidence, Finding
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.second_builds import without_second_builds


def finding(first: str, second: str, rule: str = "RUN122") -> Finding:
    evidence = tuple(Evidence(each, each, "setup.py, line 4") for each in (first, second))
    return Finding(rule, "dependency-pin-violated", "warning", "m", evidence, "", (), line=4)


@each_case(
    ("first", "second", "left"),
    [
        ("spconv", "spconv-cu111", ("spconv-cu111",)),
        ("onnxruntime-gpu", "onnxruntime", ("onnxruntime-gpu",)),
        ("faiss-cpu", "faiss-gpu", ("faiss-gpu",)),
        ("cupy", "cupy-cuda12x", ("cupy-cuda12x",)),
        ("opencv-python", "opencv-python-headless", ("opencv-python", "opencv-python-headless")),
        ("jax", "jax-cuda12-plugin", ("jax", "jax-cuda12-plugin")),
    ],
)
def test_the_build_for_the_gpu_stays(first: str, second: str, left: tuple[str, ...]) -> None:
    both = ("torch==2.1.0", first, f"{second}>=1")
    corrected = CorrectedSet(architecture="x86_64", glibc="2.35", requirements=both, wanted=both, own=both)
    found = without_second_builds(corrected, [finding(first, second)])
    names = tuple(each.partition(">")[0] for each in found.requirements[1:])
    assert names == left
    assert found.own == found.wanted == found.requirements
    assert [each.name for each in found.dropped] == [each for each in (first, second) if each not in left]
    assert without_second_builds(corrected, [finding(first, second, "RUN002")]) == corrected
    assert without_second_builds(corrected, [finding("a", "a-cu111")]) == corrected
