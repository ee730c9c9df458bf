"""Guides whose steps real uv solves, with an index of generated wheels and of the built-in tables on loopback."""

from __future__ import annotations

import time
from itertools import cycle
from pathlib import Path

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import INDEX, sh
from support.local_packages import write_wheel
from support.resolved_guides import audit, found
from support.source_packages import write_sdist

from envdoctor.commands.audit_file import audit_file
from envdoctor.download.sources import Sources
from envdoctor.locking.step_conflicts import describe_conflict
from envdoctor.locking.step_selection import companion_first, keep_installed
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.resolution.index_facts import IndexedRelease
from envdoctor.resolution.step import NoSolver, StepSolution


def test_no_interpreter_on_path_is_started(
    solver: UvStepSolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv would start each python3.12 on PATH; those of pyenv take seconds, and pyenv fails if 3.12 is not chosen."""
    started, shim = tmp_path / "started", tmp_path / "shims" / "python3.12"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\ntouch {started}\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shim.parent), prepend=":")
    result = audit(tmp_path, sh("pip install vllm==0.10.2 transformers"), solver)
    assert result.resolution.startswith("resolved with uv for x86_64, Python 3.12: ")
    assert not started.exists()


@pytest.mark.parametrize(
    ("requirement", "selected"), [("holds-transformers==1.0", "packages"), ("caps-torch==1.0", "1 package")]
)
def test_a_package_that_uv_resolves_is_judged_without_a_row_of_the_tables(
    requirement: str, selected: str, solver: UvStepSolver, tmp_path: Path
) -> None:
    text = sh(f"pip install {requirement}")
    result = audit(tmp_path, text, solver)
    assert (result.findings, result.coverage.judged) == ((), 0)
    assert result.resolution.endswith(selected)
    with pytest.raises(NothingToAudit):
        audit(tmp_path, text, NoSolver())


def test_a_step_of_setup_py_is_resolved_like_one_of_pip(solver: UvStepSolver, tmp_path: Path) -> None:
    text = sh("pip install torch==2.8.0", "cd kernels && python setup.py install")
    assert audit(tmp_path, text, solver).resolution.startswith("resolved with uv")


def test_a_package_outside_the_tables_limits_an_open_version(solver: UvStepSolver, tmp_path: Path) -> None:
    limited = audit(tmp_path, sh("pip install vllm==0.10.2 transformers holds-transformers"), solver)
    assert found(limited, "RUN003") == []
    assert limited.resolution.endswith("packages with torch 2.8.0+cu128")
    (finding,) = found(audit(tmp_path, sh("pip install vllm==0.10.2 transformers"), solver), "RUN003")
    assert finding.status == "error"
    assert "vLLM 0.10.2 does not work with transformers 5" in finding.message


@pytest.mark.parametrize(
    ("requirements", "before", "selected"),
    [
        ("limits-files files-user", "", {"limits-files": "2.0", "files": "1.0"}),
        ("files limits-files", "", {"limits-files": "1.0", "files": "2.0"}),  # pip selects the first one first
        ("limits-files files-user", "limits-files==1.0", {"limits-files": "1.0", "files": "2.0"}),
        ("limits-files files-user", "limits-files==2.0", {"limits-files": "2.0", "files": "1.0"}),  # uv replaces it
        ("limits-files files-user pinned held", "", {"held": "1.0"}),  # no pre-release
    ],
)
def test_named_packages_are_selected_before_their_dependencies_as_by_pip(
    requirements: str, before: str, selected: dict[str, str], solver: UvStepSolver, tmp_path: Path
) -> None:
    """uv returns after many conflicts to a dependency, and then selects an old release of what limits it."""
    for name, version, requires in (
        ("files", "1.0", []), ("files", "2.0", []), ("files-user", "1.0", ["files"]),
        ("limits-files", "1.0", ["files"]), ("limits-files", "2.0", ["files<2"]), ("pinned", "1.0", ["held<2"]),
        ("held", "1.0", []), ("held", "1.1rc1", []), ("held", "2.0", []),
    ):  # fmt: skip
        write_wheel(tmp_path / "wheels", name, version, requires=requires)
    audit(tmp_path, sh(f"pip install {requirements}"), solver)
    (question,) = solver.solved
    old = StepSolution({"limits-files": "1.0", "files": "2.0", "files-user": "1.0", "held": "1.0"})
    question = question._replace(preferences=tuple(filter(None, [before])))
    found_by_pip = solver._named_first(question, old).versions
    assert {name: found_by_pip[name] for name in selected} == selected


def test_the_torchvision_of_a_dependency_replaces_torch_by_pip(solver: UvStepSolver, tmp_path: Path) -> None:
    """pip takes the newest torchvision; uv can take the one for the installed torch."""
    for name, version, requires in (
        ("torch", "2.7.1", []), ("torch", "2.15.0", []), ("vision-user", "1.0", ["torch", "torchvision"]),
        ("torchvision", "0.22.1", ["torch==2.7.1"]), ("torchvision", "0.29.2", ["torch==2.15.0"]),
    ):  # fmt: skip
        write_wheel(tmp_path / "wheels", name, version, requires=requires)
    audit(tmp_path, sh("pip install torch==2.7.1", "pip install vision-user"), solver)
    question = next(each for each in solver.solved if "vision-user" in each.requirements)
    kept = StepSolution({"vision-user": "1.0", "torch": "2.7.1", "torchvision": "0.22.1"})
    assert companion_first(solver.solve, question, kept).versions["torch"] == "2.15.0"
    replaced = StepSolution({"vision-user": "1.0", "torch": "2.15.0", "torchvision": "0.29.2"})
    assert keep_installed(solver.solve, None, question, replaced).versions["torch"] == "2.15.0"
    of_uv = keep_installed(solver.solve, None, question._replace(is_of_uv=True), replaced)
    assert (of_uv.versions["torch"], of_uv.versions["torchvision"]) == ("2.7.1", "0.22.1")


def test_pins_that_contradict_are_not_proposed(solver: UvStepSolver, tmp_path: Path) -> None:
    first = "pip install torch==2.6.0 torchvision==0.21.0"
    result = audit(tmp_path, sh(first, "pip install --upgrade torch transformers==4.50.0"), solver)
    assert found(result, "RUN003")
    assert not result.requirements  # torch 2.15.0 with torchvision 0.21.0


@pytest.mark.parametrize(("bound", "is_proposed"), [("accelerate<1.3", False), ("accelerate<2", True)])
def test_pins_that_a_package_outside_of_the_tables_excludes_are_not_proposed(
    bound: str, is_proposed: bool, solver: UvStepSolver, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "limits-accelerate", "1.0", requires=[bound])
    packages = "transformers==4.56.2 accelerate==1.2.1 limits-accelerate==1.0"
    result = audit(
        tmp_path, sh("conda create -n x python=3.10", "conda activate x", f"pip install {packages}"), solver
    )
    (problem,) = found(result, "RUN004")
    assert ("accelerate==1.10.1" in result.requirements) == is_proposed
    assert bool(problem.remedies) == is_proposed


def test_an_index_of_a_company_can_have_a_package_that_pypi_lacks(solver: UvStepSolver, tmp_path: Path) -> None:
    step = "pip install torch==2.6.0 no-such-package-of-pypi"
    assert found(audit(tmp_path, sh(step), solver), "RUN015")
    index = "--index-url=https://artifacts.example.com/artifactory/api/pypi/team-pypi/simple"
    assert not found(audit(tmp_path, sh(f"{step} {index}"), solver), "RUN015")


WORKSPACE = """[project]
name = "train"
dependencies = ["transformers==4.50.0", "trl", "peft==99.0"]
[tool.uv.sources]
trl = { path = "../trl", editable = true }
peft = { workspace = true }
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "transformers==4.50.0\n-e ./trl\n"),
        ("requirements.txt", "transformers==4.50.0\n-e ./trl\ntrl\n"),
        ("pyproject.toml", WORKSPACE),
    ],
)
def test_a_project_in_a_folder_is_not_the_package_of_pypi(
    name: str, text: str, solver: UvStepSolver, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    result = audit_file(str(tmp_path / name), None, solver).result
    assert [(each.id, each.message) for each in result.findings] == []


def test_the_requirements_of_the_project_itself_are_resolved(solver: UvStepSolver, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\ndependencies = ["torch==2.6.0"]\n')
    result = audit(tmp_path, sh("pip install -e ."), solver)
    assert result.resolution.endswith("packages with torch 2.6.0+cu124")


def test_the_package_of_pypi_is_judged(solver: UvStepSolver, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.50.0\ntrl>=1.16\n")
    result = audit_file(str(tmp_path / "requirements.txt"), None, solver).result
    assert found(result, "RUN002", "RUN015")


@pytest.mark.parametrize("older", ["0.11", "1.2.9"])
def test_a_release_that_requires_a_source_archive_is_not_passed_over(
    older: str, solver: UvStepSolver, tmp_path: Path
) -> None:
    """An installer builds parser-runtime, and takes settings 1.3."""
    write_wheel(tmp_path / "wheels", "settings", older)
    write_wheel(tmp_path / "wheels", "settings", "1.3", requires=["parser-runtime==4.9.*"])
    write_sdist(tmp_path / "wheels", "parser-runtime", "4.9.3")
    audit(tmp_path, sh("pip install torch==2.8.0 settings"), solver)
    (solution,) = solver.solved.values()
    assert solution
    assert (solution.versions["settings"], solution.built) == ("1.3", {"parser-runtime"})


def test_the_newest_release_of_a_package_is_taken_where_it_is_built(solver: UvStepSolver, tmp_path: Path) -> None:
    """layers 0.2 has only a source archive. speech 1.4 requires one; an older speech without a wheel does not."""
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "layers", "0.1", requires=["torch<2.4"])
    write_sdist(wheels, "layers", "0.2")
    write_wheel(wheels, "speech", "1.4", requires=["storage"])
    write_sdist(wheels, "speech", "1.3")
    write_sdist(wheels, "storage", "2.19")
    audit(tmp_path, sh("pip install torch layers speech"), solver)
    (solution,) = solver.solved.values()
    assert solution
    assert {name: solution.versions[name] for name in ("layers", "speech")} == {"layers": "0.2", "speech": "1.4"}
    assert solution.built == {"layers", "storage"}


def test_time_between_the_steps_does_not_count(
    solver: UvStepSolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.monotonic() + 1000
    monkeypatch.setattr("envdoctor.locking.step_solver.time.monotonic", lambda: later)
    assert audit(tmp_path, sh("pip install torch==2.8.0"), solver).resolution.startswith("resolved with uv")


def test_a_release_between_that_is_built_is_taken(solver: UvStepSolver, tmp_path: Path) -> None:
    """clips 2.0 does not fit the torch of the step, and 1.0.3 has only a source archive."""
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "clips", "0.2.3")
    write_sdist(wheels, "clips", "1.0.3")
    write_wheel(wheels, "clips", "2.0", requires=["torch>=2.9"])
    versions = {"0.2.3": True, "1.0.2": False, "1.0.3": False, "2.0": True}
    releases = [IndexedRelease("clips", each, "2026-01-01", has_wheel=wheel) for each, wheel in versions.items()]
    solver.index = FixedIndex(*releases)
    audit(tmp_path, sh("pip install torch==2.8.0 clips"), solver)
    solution = next(iter(solver.solved.values()))
    assert solution
    assert (solution.versions["clips"], solution.built) == ("1.0.3", {"clips"})


def test_what_is_built_can_require_another_build(solver: UvStepSolver, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "swift-kit", "1.0")
    write_wheel(wheels, "swift-kit", "4.6", requires=["first-build", "second-build"])
    for name in ("first-build", "second-build"):
        write_sdist(wheels, name, "1.0")
    audit(tmp_path, sh("pip install peft==0.18.0 swift-kit"), solver)
    (solution,) = solver.solved.values()
    assert solution
    assert (solution.versions["swift-kit"], solution.built) == ("4.6", {"first-build", "second-build"})


def test_wheels_for_other_systems_only_are_a_note_where_the_section_names_one(
    solver: UvStepSolver, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "npu-runtime", "1.0", tag="cp312-cp312-win_amd64")
    step = sh("pip install npu-runtime", title="## NPU")
    for text, status in ((step, "error"), (step.replace("```bash", "For an NPU of Windows:\n```bash"), "info")):
        result = audit(tmp_path, f"{sh('pip install torch==2.8.0')}\n{text}", solver)
        assert [each.status for each in found(result, "RUN015")] == [status]


def test_a_python_without_a_patch_release_is_the_newest_one(solver: UvStepSolver, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "needs-a-patch", "1.0", requires_python=">=3.12.1")
    steps = ("conda create -n x python=3.12", "conda activate x", "pip install torch==2.8.0 needs-a-patch")
    assert found(audit(tmp_path, sh(*steps), solver), "RUN015") == []
    output = (
        "error: No solution found when resolving dependencies\n  cause: Because the requested Python version "
        "(>=3.12.99) does not satisfy Python>=3.13 and tool==1.0 depends on Python>=3.13, we can conclude that ..."
    )
    assert describe_conflict(output).startswith("the requested Python version (>=3.12) does not satisfy Python>=3.13")


def test_without_an_index_an_open_version_is_only_noted(tmp_path: Path) -> None:
    result = audit(tmp_path, sh("pip install vllm==0.10.2 transformers holds-transformers"), NoSolver())
    assert [each.status for each in found(result, "RUN003")] == ["info"]
    assert result.resolution.startswith("not resolved (")


def test_the_release_for_a_solved_nightly_exists(solver: UvStepSolver, tmp_path: Path) -> None:
    nightly = sh(f"pip install --pre numpy torch --index-url {INDEX}nightly/cu118", title="# H100, driver 570.172.08")
    (finding,) = found(audit(tmp_path, nightly, solver), "RUN012")
    assert [remedy.commands for remedy in finding.remedies] == [
        ("uv pip install torch==2.7.1 --torch-backend=cu118",)
    ]


def test_a_set_of_many_source_archives_is_resolved(
    solver: UvStepSolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = cycle([frozenset({(f"built-{number}", "1.0")}) for number in range(9)])  # again for another Python
    monkeypatch.setattr("envdoctor.locking.step_solver.releases_to_build", lambda *_: next(attempts))
    requirements = " ".join(f"built-{number}==1.0" for number in range(9))
    result = audit(tmp_path, sh(f"pip install vllm==0.10.2 transformers {requirements}"), solver)
    assert result.resolution.startswith("resolved with uv for x86_64, Python 3.12: ")


def test_an_index_that_pytorch_does_not_have_limits_nothing(solver: UvStepSolver, tmp_path: Path) -> None:
    """Installers print a warning for cu122 and take torch and torchvision from PyPI."""
    step = f"uv pip install torch==2.5.1 torchvision==0.20.1 --extra-index-url {INDEX}cu122"
    text = sh("uv venv --python 3.10", step)
    result = audit(tmp_path, text, solver)
    assert found(result, "RUN015") == []
    assert "packages with torch 2.5.1" in result.resolution


def test_an_unreachable_index_is_named(tmp_path: Path) -> None:
    solver = UvStepSolver(Sources(index="http://127.0.0.1:9/simple"))
    result = audit(tmp_path, sh("pip install holds-transformers transformers vllm==0.10.2"), solver)
    assert result.resolution.startswith("not resolved (http://127.0.0.1:9/simple/")
    assert {each.status for each in found(result, "RUN003")} == {"info"}


@each_case("valid", [True, False])
def test_pip_skips_releases_with_invalid_metadata(valid: bool, solver: UvStepSolver, tmp_path: Path) -> None:
    """caps-torch 2.0 is refused; caps-torch 1.0 remains, or is refused as well."""
    solver.index = FixedIndex()
    solver.index.older = {"caps-torch": {"2.0": "torch (>=1.9.*)"} | ({} if valid else {"1.0": "torch (>=1.9.*)"})}
    result = audit(tmp_path, sh("pip install caps-torch" if valid else "pip install 'caps-torch>=1'"), solver)
    assert [each.status for each in found(result, "RUN121")] == ([] if valid else ["error"])
