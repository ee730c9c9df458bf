"""Builds of source archives that fail with the tools of today, judged from facts of the package index."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.manifests import audit_paths
from envdoctor.manifests.guide import parse_guide
from envdoctor.resolution.index_facts import (
    BuildFailure,
    BuildFiles,
    IndexedRelease,
    RustBuild,
)

MMCV = IndexedRelease("mmcv", "1.7.0", "2022-11-03", has_wheel=False)
BUILDS = {
    "pip": ("pip install mmcv==1.7.0", True),
    "uv": ("uv pip install mmcv==1.7.0", True),
    "not isolated": ("pip install mmcv==1.7.0 --no-build-isolation", False),
    "another package": ("pip install mmengine", False),
    "a page of wheels": (
        "pip install mmcv==1.7.0 -f https://example.org/mmcv/index.html",
        False,
    ),
}


@each_case("name", [*BUILDS])
def test_an_isolated_build_lacks_a_module(name: str) -> None:
    command, is_reported = BUILDS[name]
    solver = FixedSolver(FixedIndex(MMCV), {"mmcv": "1.7.0"}, ["mmcv"] if "mmcv" in command else [])
    found = [each for each in findings(sh(command), solver, "RUN048") if each.status != "unknown"]
    assert [each.line for each in found] == ([3] if is_reported else [])
    for each in found:
        assert "setup.py imports pkg_resources" in each.message
        assert each.status == "warning"  # no Python is named
        assert each.remedies[0].commands == (
            "uv pip install 'setuptools<82' wheel", "uv pip install mmcv==1.7.0 --no-build-isolation",
        )  # fmt: skip


def test_an_older_pip_builds_without_isolation() -> None:
    for python, pip, is_reported in (("3.8", "", False), ("3.10", "pip<25", False), ("3.10", "", True)):
        solver = FixedSolver(FixedIndex(MMCV), {"mmcv": "1.7.0", **({"pip": "24.3.1"} if pip else {})}, ["mmcv"])
        commands = (f"conda create -n x python={python}", "conda activate x", f"pip install '{pip or 'numpy'}'")
        found = findings(sh(*commands, "pip install mmcv==1.7.0"), solver, "RUN048")
        assert bool(found) == is_reported, (python, pip)


TOKENS = IndexedRelease("tokens", "0.13.3", "2023-04-05", has_wheel=False)
RUST_STEPS = {
    "a Python": (("uv venv --python 3.12", "uv pip install tokens==0.13.3"), "error"),
    "Rust before": (("uv venv --python 3.12", "apt-get install -y rustc cargo", "uv pip install tokens==0.13.3"), ""),
    "wheels only": (("uv venv --python 3.12", "uv pip install tokens==0.13.3 --only-binary :all:"), ""),
    "a Python with a wheel": (("uv venv --python 3.11", "uv pip install tokens==0.13.3"), ""),
    "an image": (("docker run -it python:3.12 bash", "pip install tokens==0.13.3"), "warning"),
}


@each_case("name", [*RUST_STEPS])
def test_a_build_needs_rust(name: str) -> None:
    steps, status = RUST_STEPS[name]
    found = findings(sh(*steps), FixedSolver(FixedIndex(TOKENS), {"tokens": "0.13.3"}, ["tokens"]), "RUN079")
    assert [each.status for each in found] == ([status] if status else [])
    assert all("no wheel for Python 3.12, and its build needs Rust" in each.message for each in found)
    assert all("Use Python 3.11" in each.fix for each in found)


@each_case("pythons, status", [(("3.11", "3.10"), "unknown"), (("3.9", "3.8"), "warning")])
def test_a_build_with_rust_where_no_python_is_named(pythons: tuple[str, ...], status: str) -> None:
    class OldIndex(FixedIndex):
        def rust_build(self, name: str, version: str, platform: str) -> RustBuild | None:  # noqa: ARG002
            return RustBuild("tokens-0.13.3.tar.gz", pythons)

    solver = FixedSolver(OldIndex(TOKENS), {"tokens": "0.13.3"}, ["tokens"])
    assert [each.status for each in findings(sh("pip install tokens==0.13.3"), solver, "RUN079")] == [status]


VOCODER = [IndexedRelease("vocoder", "0.2.10", "2020-06-16"), IndexedRelease("vocoder", "0.3.5", "2025-01-20")]
IN_PYTHON = ("conda create -n x python=3.11", "conda activate x")
# Steps, what cures the build, the status, and the part of the fix.
FAILING: dict[str, tuple[tuple[str, ...], tuple[str, ...], str, str]] = {
    "a newer release": ((*IN_PYTHON, "pip install vocoder==0.2.10"), (), "error", "Use vocoder==0.3.5"),
    "no Python": (("pip install vocoder==0.2.10",), (), "warning", "Use vocoder==0.3.5"),
    "no newer release": ((*IN_PYTHON, "pip install vocoder==0.3.5"), ("cython",), "error", "Install cython, set"),
    "an older Python": (
        (*IN_PYTHON, "pip install vocoder==0.3.5"), ("python<3.11",), "error",
        "Create the environment with a Python below 3.11",
    ),
    "an older release is no cure": (
        (*IN_PYTHON, "pip install vocoder==0.4.0"), ("python<3.11",), "error",
        "Create the environment with a Python below 3.11",
    ),
    "nothing cures it": ((*IN_PYTHON, "pip install vocoder==0.3.5"), (), "error", "Use another release"),
    "without isolation": (
        (*IN_PYTHON, "pip install cython==3.1.0", "pip install --no-build-isolation vocoder==0.2.10"),
        ("cython",), "", "",
    ),
    "without isolation, and without Cython": (
        (*IN_PYTHON, "pip install --no-build-isolation vocoder==0.2.10"), ("cython",), "error", "0.3.5",
    ),
}  # fmt: skip


@each_case("name", [*FAILING])
def test_a_build_fails_with_the_tools_of_today(name: str) -> None:
    steps, cures, status, fix = FAILING[name]
    version = steps[-1].rpartition("==")[2]
    index = FixedIndex(*VOCODER)
    index.failing = [
        BuildFailure(each, "vocoder.tar.gz", "needs Cython", 7, cures) for each in VOCODER if each.version <= version
    ]
    if version == "0.4.0":  # an older release than the failing one is complete
        index.failing = [BuildFailure(IndexedRelease("vocoder", version, ""), "v.tar.gz", "needs Cython", 7, cures)]
    found = findings(sh(*steps), FixedSolver(index, {"vocoder": version, "cython": "3.1.0"}, ["vocoder"]), "RUN223")
    assert [each.status for each in found] == ([status] if status else [])
    assert all(fix in each.fix for each in found)
    assert findings(sh(*steps), FixedSolver(index, {"vocoder": version}), "RUN223") == []  # it has a wheel


def test_a_set_has_what_the_builds_need() -> None:
    index = FixedIndex(MMCV)
    files = BuildFiles("mmcv-1.7.0.tar.gz", "", ["setuptools>=40", "Cython<3", 'six; python_version < "3.9"'])
    index.files["mmcv 1.7.0"] = files
    solver = FixedSolver(index, {"mmcv": "1.7.0"}, ["mmcv"])
    guide = parse_guide(sh(*IN_PYTHON, "pip install mmcv==1.7.0"), "guide.md")
    main = audit_paths(guide, [guide], solver=solver).main
    assert main.build_needs == {"mmcv": ("cython<3",)}


@each_case(
    ("steps", "tools"),
    [
        (("pip install mmcv==1.7.0", "pip install torch"), "torch==2.0.1 'cython<3' 'setuptools<82' wheel"),
        (("pip install mmcv==1.7.0", "pip install torch --index-url https://download.pytorch.org/whl/cu118"),
         "torch==2.0.1+cu118 'cython<3' 'setuptools<82' wheel --torch-backend=cu118"),
        (("pip install mmcv==1.7.0", "pip install torch==2.0.1 --index-url https://download.pytorch.org/whl/cu118",
          "pip install -e ."), "torch==2.0.1+cu118 'cython<3' 'setuptools<82' wheel --torch-backend=cu118"),
        (("pip install mmcv==1.7.0",), "torch 'cython<3' 'setuptools<82' wheel"),
        (("pip install torch==2.0.1 mmcv==1.7.0",), "torch==2.0.1 'cython<3' 'setuptools<82' wheel"),
        (("pip install torch==2.0.1", "pip install mmcv==1.7.0"), "'cython<3' 'setuptools<82' wheel"),
        (("conda install pytorch=1.13.1 -c pytorch", "pip install torchvision mmcv==1.7.0"),
         "torch==2.0.1 'cython<3' 'setuptools<82' wheel"),
        (("pip install torch==2.0.1", "pip install cython==0.29.37 mmcv==1.7.0"),
         "cython==0.29.37 'setuptools<82' wheel"),
    ],
)  # fmt: skip
def test_a_build_without_isolation_has_the_torch_and_the_tools_of_the_guide(
    steps: tuple[str, ...], tools: str
) -> None:
    index = FixedIndex(MMCV)
    index.files["mmcv 1.7.0"] = BuildFiles("mmcv-1.7.0.tar.gz", "try:\n    import torch\n", ["Cython<3"])
    solver = FixedSolver(index, {"torch": "2.0.1", "mmcv": "1.7.0", "cython": "0.29.37"}, ["mmcv"])
    solver.required, solver.requiring = ["torch"], ("torchvision",)
    (found,) = findings(sh(*IN_PYTHON, *steps), solver, "RUN048")
    assert found.remedies[0].commands[0] == f"uv pip install {tools}"


@each_case(
    ("pin", "nearest"), [("3.28.0", "3.28.1"), ("3.28.9", "3.28.3"), ("3.30.0", ""), ("3.29.0", ""), ("3.28.0+a", "")]
)
def test_the_next_release_of_the_series_of_an_absent_pin(pin: str, nearest: str) -> None:
    releases = [IndexedRelease("cmake", each, "2024-01-01") for each in ("3.28.1", "3.28.3")]
    newer = IndexedRelease("cmake", "3.29.1", "2024-04-01", requires_python=">=3.12")
    solver = FixedSolver(FixedIndex(*releases, newer), {})
    solver.conflicts = {"cmake": f"there is no version of cmake=={pin}; the step requires cmake=={pin}"}
    (found,) = findings(sh(*IN_PYTHON, f"pip install cmake=={pin}"), solver, "RUN015")
    end = f": cmake=={nearest} is the nearest one." if nearest else "."
    assert found.fix == f"Name a release of cmake that the index has{end}"
