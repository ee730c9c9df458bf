"""Guides whose steps real uv solves, with an index of generated wheels and of the built-in tables on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import INDEX, sh
from support.local_packages import index_without_wheels, write_wheel
from support.release_index import ReleaseIndex
from support.source_packages import write_sdist

from envdoctor.commands.audit_file import AuditResult, audit_file
from envdoctor.core.records import Finding
from envdoctor.download.sources import Sources
from envdoctor.locking.step_conflicts import describe_conflict
from envdoctor.locking.step_question import StepQuestion
from envdoctor.locking.step_solver import UvStepSolver, _Attempt
from envdoctor.manifests.inputs.records import NothingToAudit
from envdoctor.resolution.step import NoSolver, StepSolution


@pytest.fixture
def solver(index: ReleaseIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> UvStepSolver:
    """A solver for the index, with the wheels of a folder that the tables do not have."""
    variables = index.variables("pypi")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "holds-transformers", "1.0", requires=["transformers<5"])
    write_wheel(wheels, "caps-torch", "1.0")
    write_wheel(wheels, "caps-torch", "2.0", requires=["torch<2.4"])
    write_wheel(wheels, "needs-old", "2.0", requires=["nvidia-cuda-runtime-cu12<12.5"])
    return UvStepSolver(Sources(index=variables["UV_DEFAULT_INDEX"], find_links=(str(wheels),)))


def audit(folder: Path, text: str, solver: UvStepSolver | NoSolver) -> AuditResult:
    path = folder / "SETUP.md"
    path.write_text(text)
    return audit_file(str(path), None, solver).result


def found(result: AuditResult, *identifiers: str) -> list[Finding]:
    return [each for each in result.findings if each.id in identifiers]


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


def test_a_package_outside_the_tables_limits_an_open_version(solver: UvStepSolver, tmp_path: Path) -> None:
    limited = audit(tmp_path, sh("pip install vllm==0.10.2 transformers holds-transformers"), solver)
    assert found(limited, "RUN003") == []
    assert limited.resolution.endswith("packages with torch 2.8.0+cu128")
    (finding,) = found(audit(tmp_path, sh("pip install vllm==0.10.2 transformers"), solver), "RUN003")
    assert finding.status == "error"
    assert "vLLM 0.10.2 does not work with transformers 5" in finding.message


@pytest.mark.parametrize(
    ("requirements", "selected"),
    [
        ("limits-files files-user", {"limits-files": "2.0", "files": "1.0"}),
        ("files limits-files", {"limits-files": "1.0", "files": "2.0"}),  # pip selects the first one first
    ],
)
def test_named_packages_are_selected_before_their_dependencies_as_by_pip(
    requirements: str, selected: dict[str, str], solver: UvStepSolver, tmp_path: Path
) -> None:
    """uv returns after many conflicts to a dependency, and then selects an old release of what limits it."""
    for name, version, requires in (
        ("files", "1.0", []), ("files", "2.0", []), ("files-user", "1.0", ["files"]),
        ("limits-files", "1.0", ["files"]), ("limits-files", "2.0", ["files<2"]),
    ):  # fmt: skip
        write_wheel(tmp_path / "wheels", name, version, requires=requires)
    audit(tmp_path, sh(f"pip install {requirements}"), solver)
    (question,) = solver.solved
    old = StepSolution({"limits-files": "1.0", "files": "2.0", "files-user": "1.0"})
    found_by_pip = solver._named_first(question, old).versions
    assert {name: found_by_pip[name] for name in selected} == selected


def test_pins_that_contradict_are_not_proposed(solver: UvStepSolver, tmp_path: Path) -> None:
    first = "pip install torch==2.6.0 torchvision==0.21.0"
    result = audit(tmp_path, sh(first, "pip install --upgrade torch transformers==4.50.0"), solver)
    assert found(result, "RUN003")
    assert not result.requirements  # torch 2.15.0 with torchvision 0.21.0


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


def test_a_conflict_is_reported_once_with_the_bounds_that_contradict(solver: UvStepSolver, tmp_path: Path) -> None:
    """torchvision and its torch contradict vLLM at once; flash-attn is judged by what is installed without that."""
    (tmp_path / "Dockerfile").write_text(
        "FROM nvcr.io/nvidia/pytorch:24.02-py3\nRUN pip install flash-attn --no-build-isolation -U\n"
        "RUN pip install torchvision==0.18.0 accelerate vllm==0.6.5 peft\n"
    )
    result = audit_file(str(tmp_path / "Dockerfile"), None, solver).result
    (conflict,) = found(result, "RUN002")
    assert conflict.line == 3
    assert conflict.message.endswith("torchvision==0.18.0 and vllm 0.6.5 requires torchvision==0.20.1")
    assert [each.message[:29] for each in found(result, "RUN124")] == ["without torchvision==0.18.0: "]
    (replaced,) = found(result, "RUN010")
    assert "Use an image that contains vllm==0.6.5, or keep" in replaced.fix


def test_a_dependency_of_a_replaced_release_is_not_judged(solver: UvStepSolver, tmp_path: Path) -> None:
    """outlines 0.1.11 stays where vLLM 0.11 replaces the release that requires it, with another outlines-core."""
    steps = ("pip install vllm==0.9.0 'transformers<5'", "pip install vllm==0.11.0 'transformers<5'")
    assert [each for each in found(audit(tmp_path, sh(*steps), solver), "RUN003") if "outlines" in each.message] == []
    both = sh(steps[0], "pip install outlines-core==0.2.11")
    assert [each for each in found(audit(tmp_path, both, solver), "RUN003") if "outlines" in each.message]


def test_conda_selects_the_companions_of_its_torch(solver: UvStepSolver, tmp_path: Path) -> None:
    conda = "conda install pytorch=2.5.1 torchvision=0.20.1 -c pytorch"
    write_wheel(tmp_path / "wheels", "models", "1.0", requires=["torch>=1.8", "torchvision"])
    text = sh("conda create -n x python=3.10", "conda activate x", conda, "pip install models")
    assert found(audit(tmp_path, text, solver), "RUN010") == []


def test_the_earlier_torch_is_kept_where_a_release_accepts_it(solver: UvStepSolver, tmp_path: Path) -> None:
    """An open package has an older release for torch 2.4. A pinned one has none; torchvision follows its torch."""
    for version, requires in (("1.0", "torch>=2"), ("2.0", "torch>=2.8")):
        write_wheel(tmp_path / "wheels", "uses-torch", version, requires=[requires])
    write_wheel(tmp_path / "wheels", "needs-older", "1.0", requires=["uses-torch"])
    first = "pip install torch==2.4.0 torchvision==0.19.0"
    commands = {}
    for step in ("pip install -U needs-older", "pip install uses-torch==2.0"):
        (replaced,) = found(audit(tmp_path, sh(first, step), solver), "RUN010")
        ((commands[step],),) = [remedy.commands for remedy in replaced.remedies]
    assert list(commands.values()) == [
        "uv pip install needs-older torch==2.4.0",
        "uv pip install uses-torch==2.0 torch==2.15.0 torchvision --torch-backend=cu132",
    ]


def test_an_old_setuptools_of_conda_replaces_no_torch(solver: UvStepSolver, tmp_path: Path) -> None:
    """The index has torch for setuptools 77 and newer. pip replaces the setuptools and keeps the torch of conda."""
    mirror = index_without_wheels(tmp_path / "mirror", ("numpy", "1.26.4"))
    sources = replace(solver.sources, extra_indexes=(mirror,), index_strategy="unsafe-best-match")
    conda = "conda install pytorch-gpu 'setuptools>=70,<72' -c conda-forge"
    write_wheel(tmp_path / "wheels", "light", "1.6", requires=["torch>=1.8", "setuptools"])
    text = sh("conda create -n x python=3.12", "conda activate x", conda, "pip install light")
    assert found(audit(tmp_path, text, UvStepSolver(sources)), "RUN010") == []


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


def test_only_the_end_of_a_long_explanation_is_there(
    solver: UvStepSolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv explains each old release; the releases without a wheel are built all the same."""
    compiled, cut = solver._compile, " and old==0.1 has no usable wheels, we can conclude that all are old. "

    def compile_without_head(question: StepQuestion, *options: str) -> _Attempt:
        attempt = compiled(question, *options)
        rest = attempt.output.partition("No solution found")[2]
        return attempt._replace(output=cut + rest) if rest else attempt

    monkeypatch.setattr(solver, "_compile", compile_without_head)
    write_sdist(tmp_path / "wheels", "parser-runtime", "4.9.3")
    write_wheel(tmp_path / "wheels", "settings", "1.3", requires=["parser-runtime==4.9.*"])
    audit(tmp_path, sh("pip install settings==1.3 peft==0.18.0"), solver)
    (solution,) = solver.solved.values()
    assert solution
    assert solution.built == {"parser-runtime"}


def test_what_is_wrong_without_a_requirement_that_cannot_be_installed(solver: UvStepSolver, tmp_path: Path) -> None:
    step = "pip install vllm==0.8.3 transformers wants-runtime parser-runtime==4.11.1"
    write_wheel(tmp_path / "wheels", "wants-runtime", "1.0", requires=["parser-runtime==4.7.2"])
    for version in ("4.7.2", "4.11.1"):
        write_wheel(tmp_path / "wheels", "parser-runtime", version)
    result = audit(tmp_path, sh("uv venv --python 3.10", step), solver)
    assert len(found(result, "RUN015")) == 1
    (more,) = (each for each in found(result, "RUN003") if "needs transformers below 5" in each.message)
    assert (more.status, more.line) == ("error", 4)
    assert more.message.startswith("without parser-runtime==4.11.1: ")
    write_wheel(tmp_path / "wheels", "torch-npu", "2.1.0", requires=["torch==2.1.0+other"])
    other = audit(tmp_path, sh("uv venv --python 3.10", f"{step} torch-npu==2.1.0"), solver)
    assert found(other, "RUN015")
    assert not [each for each in other.findings if each.message.startswith("without ")]


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


def test_a_newer_series_that_requires_a_source_archive_replaces_torch(solver: UvStepSolver, tmp_path: Path) -> None:
    """Without a placeholder for the archive, uv takes the series that the installed torch fits."""
    write_wheel(tmp_path / "wheels", "serving", "0.3.6")
    write_wheel(tmp_path / "wheels", "serving", "0.4.1", requires=["torch==2.7.1", "parser-runtime==4.9.*"])
    write_sdist(tmp_path / "wheels", "parser-runtime", "4.9.3")
    steps = ("pip install torch==2.4.0", "pip install 'serving[all]'")
    result = audit(tmp_path, sh("uv venv --python 3.10", *steps), solver)
    assert [each.line for each in found(result, "RUN010")] == [5]
    assert [each.line for each in found(result, "RUN132")] == [5]


@each_case(
    ("name", "requires", "replaced"),
    [
        ("reads", ["torch>=1.6", "torchvision"], []),
        ("embeds", ["torchvision>=0.15"], []),
        ("draws", ["torchvision>=0.20"], [2]),
    ],
)
def test_the_torchvision_of_nvidias_containers_stays(
    name: str, requires: list[str], replaced: list[int], solver: UvStepSolver, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", name, "1.0", requires=requires)
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM nvcr.io/nvidia/pytorch:23.11-py3\nRUN pip install {name}\n")
    assert [each.line for each in found(audit_file(str(path), None, solver).result, "RUN010")] == replaced


@each_case(
    ("step", "replaced"),
    [
        ("uv pip install 'torch>=2.5.1' 'scan-kernels>=2.0'", []),
        ("uv pip install 'torch>=2.5.1' scan-kernels==2.3", [5]),
        ("uv pip install --upgrade 'torch>=2.5.1' 'scan-kernels>=2.0'", [5]),
        ("pip install 'torch>=2.5.1' 'scan-kernels>=2.0'", [5]),  # pip selects the newest release of what is named
    ],
)
def test_uv_builds_an_older_release_that_accepts_what_is_installed(
    step: str, replaced: list[int], solver: UvStepSolver, tmp_path: Path
) -> None:
    solver.index = FixedIndex()
    requires = {"2.1": "torch>=2.4", "2.2": "torch>=2.8", "2.3": "torch>=2.8"}
    for version, text in requires.items():
        write_sdist(tmp_path / "wheels", "scan-kernels", version)
        solver.index.requirements[f"scan-kernels {version}"] = [text]
    result = audit(tmp_path, sh("uv venv --python 3.10", "uv pip install torch==2.6.0", step), solver)
    assert [each.line for each in found(result, "RUN010")] == replaced


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


def test_an_installed_release_stays_where_a_later_step_accepts_it(solver: UvStepSolver, tmp_path: Path) -> None:
    kept = sh("pip install transformers==4.57.1 vllm==0.10.2", "pip install transformers")
    assert found(audit(tmp_path, kept, solver), "RUN003") == []
    upgraded = sh("pip install transformers==4.57.1 vllm==0.10.2", "pip install -U transformers")
    assert [each.line for each in found(audit(tmp_path, upgraded, solver), "RUN003")] == [4]


def test_the_release_for_a_solved_nightly_exists(solver: UvStepSolver, tmp_path: Path) -> None:
    nightly = sh(f"pip install --pre numpy torch --index-url {INDEX}nightly/cu118", title="# H100, driver 570.172.08")
    (finding,) = found(audit(tmp_path, nightly, solver), "RUN012")
    assert [remedy.commands for remedy in finding.remedies] == [
        ("uv pip install torch==2.7.1 --torch-backend=cu118",)
    ]


CONFLICTS = {
    "a release that does not exist": (
        "nvidia-cuda-runtime-cu12==1.2.3",
        "there is no version of nvidia-cuda-runtime-cu12==1.2.3",
    ),
    "two requirements": (
        "needs-old nvidia-cuda-runtime-cu12==12.8.90",
        "all versions of needs-old depend on nvidia-cuda-runtime-cu12<12.5; the step requires needs-old",
    ),
}


@each_case("name", [*CONFLICTS])
def test_a_step_without_a_solution_is_an_error(name: str, solver: UvStepSolver, tmp_path: Path) -> None:
    requirements, explanation = CONFLICTS[name]
    result = audit(tmp_path, sh(f"pip install vllm==0.10.2 transformers {requirements}"), solver)

    (finding,) = found(result, "RUN015")
    assert (finding.status, finding.line) == ("error", 3)
    assert explanation in finding.message
    others = found(result, "RUN003")  # of an environment without the requirement that cannot be installed
    assert all(each.message.startswith("without ") for each in others)


def test_a_release_that_is_open_excludes_nothing_where_no_solver_chose_it(tmp_path: Path) -> None:
    """Without an index, the newest llmcompressor of the tables may not be the one that an installer takes."""
    for compressor, identifiers in (("'llmcompressor>=0.10'", []), ("llmcompressor==0.14.0.1", ["RUN002"])):
        text = sh(f"pip install transformers==5.14.1 {compressor} not-on-this-index")
        assert [each.id for each in found(audit(tmp_path, text, NoSolver()), "RUN002")] == identifiers


def test_each_conflict_of_a_step_is_reported(solver: UvStepSolver, tmp_path: Path) -> None:
    releases = "nvidia-cuda-runtime-cu12==1.2.3", "not-on-this-index==1.0", "holds-transformers==7.0"
    path = tmp_path / "requirements.txt"
    path.write_text("\n".join(("vllm==0.10.2", "caps-torch", *releases)))
    findings = found(audit_file(str(path), None, solver).result, "RUN015")
    assert [each.line for each in findings] == [3, 4, 5]
    path.write_text("\n".join(("vllm==0.10.2", "needs-old", "nvidia-cuda-runtime-cu12==12.8.90", releases[1])))
    findings = found(audit_file(str(path), None, solver).result, "RUN015")
    assert [(each.line, each.status) for each in findings] == [(3, "error"), (4, "warning")]


def test_two_requirements_exclude_the_same_release(solver: UvStepSolver, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "caps-more", "1.0", requires=["torch<2.3"])
    path = tmp_path / "requirements.txt"
    path.write_text("caps-torch==2.0\ntorch==2.8.0\ncaps-more==1.0\n")
    findings = found(audit_file(str(path), None, solver).result, "RUN015", "RUN002")
    messages = " ".join(each.message for each in findings)
    assert "depends on torch<2.4" in messages
    assert "depend on torch<2.3" in messages


def test_a_conflict_of_pins_next_to_another_index(solver: UvStepSolver, tmp_path: Path) -> None:
    """Another index can have other releases of an open requirement, but none of an exact one."""
    other = "pip install --extra-index-url https://pkgs.acme.io/simple acme-tool"
    for pins, lines in (("caps-torch==2.0 torch==2.8.0", [3]), ("'caps-torch>=2.0' torch==2.8.0", [])):
        findings = found(audit(tmp_path, sh(f"{other} {pins}"), solver), "RUN015")
        assert [each.line for each in findings if each.status == "error"] == lines


def test_a_conflict_after_a_step_that_fails(solver: UvStepSolver, tmp_path: Path) -> None:
    steps = ("pip install vllm==0.10.2 not-on-this-index", "pip install caps-torch==2.0 torch==2.8.0")
    findings = found(audit(tmp_path, sh(*steps), solver), "RUN015")
    assert [each.line for each in findings] == [3, 4]
    assert [each.line for each in found(audit(tmp_path, sh(*steps, steps[1]), solver), "RUN015")] == [3, 4]


def test_a_set_of_many_source_archives_is_resolved(
    solver: UvStepSolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = iter([frozenset({(f"built-{number}", "1.0")}) for number in range(9)])
    monkeypatch.setattr("envdoctor.locking.step_solver.releases_to_build", lambda *_: next(attempts))
    requirements = " ".join(f"built-{number}==1.0" for number in range(9))
    result = audit(tmp_path, sh(f"pip install vllm==0.10.2 transformers {requirements}"), solver)
    assert result.resolution.startswith("resolved with uv for x86_64, Python 3.12: ")


def test_a_build_of_the_pytorch_index_stays(solver: UvStepSolver, tmp_path: Path) -> None:
    steps = (
        f"pip install torch==2.4.0 --index-url {INDEX}cu121",
        "pip install transformers==4.44.2 numpy accelerate",
    )
    result = audit(tmp_path, sh(*steps), solver)
    assert found(result, "RUN010") == []
    replaced = audit(tmp_path, sh(steps[0], "pip install vllm==0.10.2"), solver)
    assert [each.line for each in found(replaced, "RUN010")] == [4]


def test_an_index_that_pytorch_does_not_have_limits_nothing(solver: UvStepSolver, tmp_path: Path) -> None:
    """Installers print a warning for cu122 and take torch and torchvision from PyPI."""
    step = f"uv pip install torch==2.5.1 torchvision==0.20.1 --extra-index-url {INDEX}cu122"
    text = sh("uv venv --python 3.10", step)
    result = audit(tmp_path, text, solver)
    assert found(result, "RUN015") == []
    assert "packages with torch 2.5.1" in result.resolution


def test_a_partial_mirror_replaces_no_installed_release(solver: UvStepSolver, tmp_path: Path) -> None:
    """pip's extra-index-url: its index has the installed release, but no wheel for this Python."""
    mirror = index_without_wheels(tmp_path / "mirror", ("numpy", "1.26.4"), ("triton", "3.0.0"))
    sources = replace(solver.sources, extra_indexes=(mirror,), index_strategy="unsafe-best-match")
    steps = (f"pip install torch==2.4.0 'numpy<2' --index-url {INDEX}cu121", "pip install accelerate==1.0.1")
    assert found(audit(tmp_path, sh(*steps), UvStepSolver(sources)), "RUN010") == []
    newer = audit(tmp_path, sh(*steps, "pip install vllm==0.10.2"), UvStepSolver(sources))
    assert {each.line for each in found(newer, "RUN010")} == {5}
    capped = audit(tmp_path, sh(*steps, "pip install caps-torch"), UvStepSolver(sources))  # not the older release
    assert {each.line for each in found(capped, "RUN010")} == {5}


def test_a_commit_is_not_judged_as_the_newest_release(solver: UvStepSolver, tmp_path: Path) -> None:
    trl = "git+https://github.com/huggingface/trl.git"
    for reference, replaces in (("", True), ("@main", True), ("@ece6738686a85273", False), ("@v0.17-release", False)):
        for url in (f"{trl}{reference}", f"trl@{trl}{reference}", f"'trl[peft] @ {trl}{reference}'"):
            text = sh("uv venv --python 3.11", "uv pip install transformers==4.50.3", f"uv pip install {url}")
            assert bool(found(audit(tmp_path, text, solver), "RUN010")) == replaces, url


def test_an_unreachable_index_is_named(tmp_path: Path) -> None:
    solver = UvStepSolver(Sources(index="http://127.0.0.1:9/simple"))
    result = audit(tmp_path, sh("pip install holds-transformers transformers vllm==0.10.2"), solver)
    assert result.resolution.startswith("not resolved (http://127.0.0.1:9/simple/")
    assert {each.status for each in found(result, "RUN003")} == {"info"}


def test_another_index_is_named_where_uv_finds_no_solution(solver: UvStepSolver, tmp_path: Path) -> None:
    text = sh("pip install vllm==0.10.2 not-on-this-index==1.0 --extra-index-url https://other.example/whl")
    result = audit(tmp_path, text, solver)
    assert "another index" in result.resolution
    assert result.coverage.unread == ("the index https://other.example/whl (line 3): its releases were not read",)
    assert result.is_undecided
    pinned = audit(tmp_path, sh("pip install vllm==0.10.2 --extra-index-url https://other.example/whl"), solver)
    assert (pinned.coverage.unread, pinned.is_undecided) == ((), False)
    assert not audit(tmp_path, text, NoSolver()).is_undecided


PYPROJECT = """[project]
name = "mine"
dependencies = ["torch==2.8.0"]
[project.optional-dependencies]
new = ["nvidia-cuda-runtime-cu12==12.8.90"]
old = ["needs-old"]
"""


def test_extras_that_exclude_each_other_are_environments_of_their_own(solver: UvStepSolver, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(PYPROJECT)
    (finding,) = found(audit_file(str(path), None, solver).result, "RUN015")
    assert finding.message.startswith("old: ")  # torch 2.8 requires 12.8.90 itself
    path.write_text(PYPROJECT + '[tool.uv]\noverride-dependencies = ["nvidia-cuda-runtime-cu12==12.8.90"]\n')
    assert found(audit_file(str(path), None, solver).result, "RUN015") == []


@each_case("valid", [True, False])
def test_pip_skips_releases_with_invalid_metadata(valid: bool, solver: UvStepSolver, tmp_path: Path) -> None:
    """caps-torch 2.0 is refused; caps-torch 1.0 remains, or is refused as well."""
    solver.index = FixedIndex()
    solver.index.older = {"caps-torch": {"2.0": "torch (>=1.9.*)"} | ({} if valid else {"1.0": "torch (>=1.9.*)"})}
    result = audit(tmp_path, sh("pip install caps-torch" if valid else "pip install 'caps-torch>=1'"), solver)
    assert [each.status for each in found(result, "RUN121")] == ([] if valid else ["error"])
