"""A requirement with the name of a module: the package that the index has is named, and written in its place."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.manifests.line_corrections import correct_lines
from envdoctor.resolution.index_facts import IndexedRelease

RELEASES = [
    ("scikit-learn", "1.2.2"), ("scikit-learn", "1.7.0"), ("opencv-python", "4.8.1.78"),
    ("opencv-python", "4.8.10.1"), ("pillow", "10.1.0"), ("hydra-core", "1.3.2"), ("protobuf", "4.21.0"),
]  # fmt: skip
MISSING, UNKNOWN = (
    "there is no version of {0}; the step requires {0}",
    "{1} was not found in the package registry; the step requires {0}",
)


def unsolved(requirement: str, conflict: str) -> Finding:
    index = FixedIndex(*(IndexedRelease(name, version, "2026-10-01") for name, version in RELEASES))
    solver = FixedSolver(index, {})
    name = requirement.partition("=")[0].partition(">")[0].lower()
    solver.conflicts = {name: conflict.format(requirement.lower(), name)}
    (found,) = findings(sh(f"pip install '{requirement}'"), solver, "RUN015")
    return found


NAMED = [
    ("sklearn==1.2.2", MISSING, "scikit-learn==1.2.2"),
    ("sklearn>=1.3", MISSING, "scikit-learn>=1.3"),
    ("cv2==4.8.1", UNKNOWN, "opencv-python==4.8.1.78"),
    ("cv2", UNKNOWN, "opencv-python"),
    ("PIL", UNKNOWN, "pillow"),
    ("hydra==1.3.2", MISSING, "hydra-core==1.3.2"),
]


@each_case(("requirement", "conflict", "package"), NAMED)
def test_the_package_of_a_module_is_named(requirement: str, conflict: str, package: str) -> None:
    found = unsolved(requirement, conflict)
    assert found.fix == f"Use {package}: the index has it under this name."
    assert found.message.startswith("this step cannot be installed: ")
    text = f"numpy\n{requirement}\n"
    corrected = correct_lines(text, "requirements.txt", [replace(found, line=2)])
    assert corrected.text == f"numpy\n{package}\n"


ELSEWHERE = "name the index or the repository that has it."
NOT_NAMED = [
    ("sklearn==9.9", MISSING, "Name a release of sklearn that the index has."),
    ("google==4.21.0", MISSING, "Name a release of google that the index has."),
    ("editdistance==99.1", MISSING, "Name a release of editdistance that the index has."),
    ("acme-models", UNKNOWN, f"The configured index has no package acme-models: {ELSEWHERE}"),
    ("json", UNKNOWN, "Remove json: it is a module of Python itself."),
    ("apex==0.1", UNKNOWN, f"The configured index has no package apex: {ELSEWHERE}"),
]  # fmt: skip


@each_case(("requirement", "conflict", "fix"), NOT_NAMED)
def test_no_package_is_named(requirement: str, conflict: str, fix: str) -> None:
    found = unsolved(requirement, conflict)
    assert found.fix == fix
    assert not correct_lines(f"{requirement}\n", "requirements.txt", [found]).findings


CHAIN = (
    "jupyterlab>=4.1.1,<=4.1.8 depends on httpx>=0.25.0; notebook==7.1.0 depends on jupyterlab>=4.1.1,<4.2; "
    "the step requires httpx==0.24.0 and notebook==7.1.0"
)


def test_the_requirement_that_the_conflict_is_about_is_to_change() -> None:
    """The step names jupyterlab as well: without its version the conflict stays, without that of httpx it is gone."""
    solver = FixedSolver(FixedIndex(), {})
    solver.conflicts = {"notebook": CHAIN}
    text = sh("pip install httpx==0.24.0 jupyterlab==4.1.2 notebook==7.1.0")
    (found,) = findings(text, solver, "RUN015")
    assert "requires httpx>=0.25.0: omit the version of httpx, or take one in this range." in found.fix


def test_a_marker_stays() -> None:
    found = unsolved(
        "sklearn==1.2.2; python_version>='3.8'".replace("'", '"'), MISSING.replace("{0}", "sklearn==1.2.2")
    )
    assert not correct_lines(f"{found.evidence[0].value}\n", "requirements.txt", [found]).findings


def test_the_set_has_the_package(tmp_path: Path) -> None:
    index = FixedIndex(*(IndexedRelease(name, version, "2026-10-01") for name, version in RELEASES))
    solver = FixedSolver(index, {"numpy": "2.4.6"})
    solver.conflicts = {"cv2": UNKNOWN.format("cv2==4.8.1", "cv2")}
    for text, requirements, names in (
        ("numpy\ncv2==4.8.1\n", {"opencv-python==4.8.1.78"}, {"numpy", "opencv-python"}),
        ("numpy\ncv2==4.8.1\nopencv-python\n", {"cv2==4.8.1", "opencv-python"}, {"numpy", "cv2", "opencv-python"}),
    ):
        audited = audit_text(text, str(tmp_path / "requirements.txt"), None, solver, python="3.11").audit
        assert audited
        (corrected,) = audited.sets
        assert {each for each in corrected.requirements if "cv" in each} == requirements
        assert {each.name for each in corrected.places} == names
