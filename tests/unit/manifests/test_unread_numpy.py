"""NumPy 2 next to packages for NumPy 1, where a part of the set that is not read can limit numpy."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.resolution.index_facts import IndexedRelease

RELEASES = (IndexedRelease("rowset", "1.0", "2026-10-01"),)
IMAGE = "docker run -it pytorch/pytorch:{}-cuda11.8-cudnn8-devel"
CONDA = "conda install pytorch=={} -c pytorch -c nvidia"
# Steps, what rowset requires, and the status with the part that is named; None: no finding.
CASES: dict[str, tuple[tuple[str, ...], str, tuple[str, str] | None]] = {
    "a repository": (
        ("pip install torch==2.1.0 rowset git+https://github.com/a/other.git",), "numpy",
        ("unknown", "limit numpy: git+https://github.com/a/other.git (line 3)"),
    ),
    "conda": (
        (CONDA.format("2.1.0"), "pip install rowset"), "numpy",
        ("unknown", "the numpy of conda for `pytorch==2.1.0` (line 3)"),
    ),
    "a wheel": (
        ("pip install torch==2.1.0 rowset https://a.b/c/other-1.0-py3-none-any.whl",), "numpy",
        ("unknown", "other-1.0-py3-none-any.whl (line 3)"),
    ),
    "an image with a numpy that may be too old": (
        (IMAGE.format("2.1.0"), "pip install rowset"), "numpy>=1.26.0",
        ("unknown", "the image pytorch/pytorch:2.1.0-cuda11.8-cudnn8-devel (line 3)"),
    ),
    "a package requires NumPy 2": (
        (IMAGE.format("2.1.0"), "pip install rowset"), "numpy>=2", ("error", "numpy 2.1.0"),
    ),
    "a step requires NumPy 2": (
        (CONDA.format("2.1.0"), "pip install 'numpy>=2' rowset"), "numpy", ("error", "numpy 2.1.0"),
    ),
    "a step permits NumPy 1": (
        (CONDA.format("2.1.0"), "pip install 'numpy>=1.26' rowset"), "numpy",
        ("unknown", "the numpy of conda for `pytorch==2.1.0` (line 3)"),
    ),
    "the image keeps its numpy": ((IMAGE.format("2.1.0"), "pip install rowset"), "numpy>=1.20", None),
    "the image has a torch for NumPy 2": ((IMAGE.format("2.4.0"), "pip install rowset"), "numpy>=2", None),
    "libraries and programs of conda": (
        ("conda install python=3.10 ffmpeg openjdk", "pip install torch==2.1.0 rowset"), "numpy",
        ("error", "numpy 2.1.0"),
    ),
    "recipes of conda-forge": (
        ("conda install pytorch==2.1.0 -c conda-forge", "pip install rowset"), "numpy", None,
    ),
    "a torch for NumPy 2": (
        ("pip install torch==2.8.0 rowset git+https://github.com/a/other.git",), "numpy", None,
    ),
    "a repository without its requirements": (
        ("pip install torch==2.1.0 rowset", "pip install --no-deps git+https://github.com/a/other.git"), "numpy",
        ("error", "numpy 2.1.0"),
    ),
}  # fmt: skip


@each_case("name", [*CASES])
def test_a_part_that_is_not_read_can_limit_numpy(name: str) -> None:
    steps, requirement, expected = CASES[name]
    index = FixedIndex(*RELEASES)
    index.requirements = {"rowset 1.0": (requirement,)}
    torch = "2.8.0" if "2.8.0" in steps[0] else "2.1.0"
    solver = FixedSolver(index, {"torch": torch, "rowset": "1.0", "numpy": "2.1.0"})
    solver.required = ["numpy"]
    text = sh(*steps).replace("rowset", "rowset webui")  # webui requires numpy
    found = findings(text, solver, "RUN205", "RUN003")
    assert [(each.id, each.status) for each in found] == ([("RUN205", expected[0])] if expected else [])
    assert not expected or expected[1] in found[0].message
