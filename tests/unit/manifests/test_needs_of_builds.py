"""Releases without a wheel whose build needs libraries of the system, or modules of the environment."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.source_needs import needs_of_build
from envdoctor.package_index.build_needs import missing_build_modules, needs_compiler
from envdoctor.package_index.source_archive import SourceArchive
from envdoctor.resolution.index_facts import IndexedRelease

INDEX = FixedIndex(IndexedRelease("av", "17.0.1", "2026-08-01", "", True))
VERSIONS = {"av": "11.0.0", "mpi4py": "3.1.6", "einops": "0.8.1"}
INSTALL = "pip install av==11.0.0 einops==0.8.1"


@each_case(
    ("commands", "expected"),
    [
        ((INSTALL,), [(3, "warning")]),
        (("sudo apt-get install -y libavformat-dev libavdevice-dev pkg-config", INSTALL), []),
        (("sudo apt-get install -y ffmpeg", INSTALL), [(4, "warning")]),  # the programs without the headers
        (("conda install -c conda-forge ffmpeg", INSTALL), []),
        (("module load openmpi/4.1", "pip install mpi4py==3.1.6"), []),
        (("pip install mpi4py==3.1.6",), [(3, "warning")]),
        (("pip install einops==0.8.1",), []),
        (("pip install --only-binary :all: av==11.0.0",), []),
    ],
)
def test_the_build_of_a_release_needs_a_library(commands: tuple[str, ...], expected: list[tuple[int, str]]) -> None:
    solver = FixedSolver(INDEX, VERSIONS, built=["av", "mpi4py"])
    found = findings(sh("uv venv --python 3.11", *commands), solver, "RUN109")
    assert [(each.line - 1, each.status) for each in found if each.line] == expected


def test_the_newest_release_with_a_wheel_is_proposed() -> None:
    (found,) = findings(sh(INSTALL), FixedSolver(INDEX, VERSIONS, built=["av"]), "RUN109")
    assert "such as av 17.0.1" in found.fix
    assert "libavformat-dev" in found.remedies[0].commands[0]
    newer = FixedIndex(IndexedRelease("av", "19.0.2", "2026-11-01", ">=3.14", True))
    (found,) = findings(sh(INSTALL), FixedSolver(newer, VERSIONS, built=["av"]), "RUN109")
    assert "such as" not in found.fix  # Python 3.12 cannot have it


def test_a_release_that_does_not_permit_the_python_is_not_built() -> None:
    """On Python 3.11 an installer takes the release before av 19.0.2, which has a wheel."""
    index = FixedIndex(IndexedRelease("av", "19.0.2", "2026-10-21", ">=3.12", True))
    solver = FixedSolver(index, {"av": "19.0.2"}, built=["av"])
    for python, count in (("3.11", 0), ("3.12", 1)):
        assert len(findings(sh(f"uv venv --python {python}", "pip install av"), solver, "RUN109")) == count


def test_an_image_of_an_operating_system_alone_lacks_the_library() -> None:
    solver = FixedSolver(INDEX, VERSIONS, built=["av"])
    for image, status in (("ubuntu:22.04", "error"), ("pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel", "warning")):
        text = f"FROM {image}\nRUN {INSTALL} torch==2.8.0\n"
        found = audit_text(text, "Dockerfile", None, solver, python="3.11").result.findings
        assert [each.status for each in found if each.id == "RUN109"] == [status], image


def test_a_solved_set_names_what_a_build_needs() -> None:
    assert "libopenmpi-dev" in needs_of_build("mpi4py")
    assert needs_of_build("einops") == ""


@each_case(
    ("code", "missing"),
    [
        ("try:\n    from pip._internal.req import x\nexcept ImportError:\n    from pip.req import x\n", ["pip"]),
        ("try:\n    import pip\nexcept ImportError:\n    pip = None\n", []),
        ("try:\n    import numpy\nexcept ImportError:\n    import os\n", []),
        ("try:\n    import torch\nfinally:\n    pass\n", []),
        ("try:\n    import a.b\nexcept KeyError:\n    import c\nexcept ImportError:\n    import a\n", []),
    ],
)
def test_an_import_that_each_branch_of_try_needs(code: str, missing: list[str]) -> None:
    archive = SourceArchive(
        "a-1.tar.gz", ("setup.py",), {"setup.py": f"from setuptools import setup\n{code}setup()\n"}
    )
    assert [module for module, _ in missing_build_modules(archive, "3.12")] == missing


def test_openmim_installs_with_pip() -> None:
    solver = FixedSolver(INDEX, VERSIONS | {"mmcv": "2.1.0"}, built=["av", "mmcv"])
    text = sh("uv venv --python 3.11", "mim install av==11.0.0", "mim install 'mmcv>=2.0.1'")
    assert [each.line for each in findings(text, solver, "RUN109")] == [4]


INSTALL_OLD = "RUN pip install insightface==0.7.3 torch==2.8.0"


@each_case(
    ("image", "steps", "expected"),
    [
        ("python:3.11-slim", (), [2]),
        ("python:3.11-slim", ("RUN apt-get update && apt-get install -y g++",), []),
        ("python:3.11", (), []),
        (
            "nvidia/cuda:12.8.1-runtime-ubuntu22.04",
            ("RUN apt-get install -y --no-install-recommends python3-pip",),
            [3],
        ),
        ("nvidia/cuda:12.8.1-runtime-ubuntu22.04", ("RUN apt-get install -y python3-pip",), []),  # build-essential
        ("nvidia/cuda:12.8.1-devel-ubuntu22.04", (), []),
        ("pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", (), []),  # contents unknown
    ],
)
def test_an_image_without_a_compiler(image: str, steps: tuple[str, ...], expected: list[int]) -> None:
    index = FixedIndex(IndexedRelease("insightface", "0.7.3", "2023-04-01", "", False))
    index.compiled = frozenset({"insightface"})
    solver = FixedSolver(index, {"insightface": "0.7.3", "torch": "2.8.0"}, built=["insightface"])
    text = "\n".join([f"FROM {image}", *steps, INSTALL_OLD, ""])
    found = audit_text(text, "Dockerfile", None, solver, python="3.11").result.findings
    assert [each.line for each in found if each.id == "RUN112"] == expected


def test_a_build_can_make_a_module_from_c_code() -> None:
    for has_c_code in (True, False):
        archive = SourceArchive("hnsw-1.tar.gz", ("setup.py", "bindings.cpp"), {}, has_c_code)
        assert archive.has_module("hnsw") is has_c_code


@each_case(
    ("script", "has_c_code", "expected"),
    [
        ("setup(ext_modules=[Extension('a', ['a.c'])])", True, True),
        ("setup(ext_modules=cythonize('a.pyx'))", True, True),
        ("setup(ext_modules=[Extension('a', ['a.c'], optional=True)])", True, False),
        ("setup(ext_modules=[])", False, False),
        ("setup(name='a')", True, False),
    ],
)
def test_a_build_that_compiles_c_code(script: str, has_c_code: bool, expected: bool) -> None:
    archive = SourceArchive("a-1.tar.gz", ("setup.py",), {"setup.py": script}, has_c_code)
    assert needs_compiler(archive) is expected
