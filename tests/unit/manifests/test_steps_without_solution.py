"""Steps without a solution: real uv names what contradicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.local_packages import write_wheel
from support.remedies import commands_of
from support.resolved_guides import audit, found
from support.source_packages import write_sdist

from envdoctor.commands.audit_file import audit_file, audit_text
from envdoctor.locking.step_question import StepQuestion
from envdoctor.locking.step_solver import UvStepSolver, _Attempt
from envdoctor.manifests.dropped_packages import OF_INDEX
from envdoctor.resolution.step import NoSolver


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


@each_case(("page", "expected"), [("", ["error"]), (" -f https://storage.example/jax_releases.html", [])])
def test_a_build_can_be_on_a_page_of_wheels_that_is_not_read(
    solver: UvStepSolver, tmp_path: Path, page: str, expected: list[str]
) -> None:
    write_wheel(tmp_path / "wheels", "accelerated-lib", "0.4.38")
    write_wheel(tmp_path / "wheels", "accelerated", "0.4.20", requires=["accelerated-lib"])
    on_page = ["accelerated-lib==0.4.20+cuda11", "gpu-runtime==0.1.dev20231102"]
    write_wheel(tmp_path / "wheels", "accelerated-gpu", "0.4.20", requires=on_page)
    write_wheel(tmp_path / "wheels", "gpu-runtime", "1.0")
    steps = sh("uv venv --python 3.12", "pip install torch==2.8.0 accelerated==0.4.20",
               f"pip install --upgrade accelerated-gpu==0.4.20{page}")  # fmt: skip
    result = audit(tmp_path, steps, solver)
    assert [each.status for each in found(result, "RUN015")] == expected
    solution = list(solver.solved.values())[-1]
    assert solution
    assert not page or solution.versions["accelerated-lib"] == "0.4.20+cuda11"


@each_case(
    ("verl", "transformers", "statuses"),
    [
        ("git+https://github.com/volcengine/verl", "5.12.0", []),  # verl 0.9.1 requires transformers>=5.5.3,<5.11
        ("git+https://github.com/volcengine/verl", "4.40.0", ["error"]),
        ("verl==0.9.1", "5.12.0", ["error"]),
    ],
)
def test_a_main_branch_need_not_have_the_upper_limit_of_a_release(
    solver: UvStepSolver, tmp_path: Path, verl: str, transformers: str, statuses: list[str]
) -> None:
    result = audit(tmp_path, sh("uv venv --python 3.12", f"pip install {verl} transformers=={transformers}"), solver)
    assert [each.status for each in found(result, "RUN002", "RUN015")] == statuses


def test_a_package_of_another_page_leaves_the_other_steps_resolved(solver: UvStepSolver, tmp_path: Path) -> None:
    """pyg-lib is only on a page of wheels: what the index has is solved, next to the package of the page."""
    write_wheel(tmp_path / "wheels", "of-index", "1.0", requires=["settings"])
    write_wheel(tmp_path / "wheels", "settings", "1.3")
    page = "-f https://data.pyg.org/whl/torch-2.8.0+cu128.html"
    for requirements in ("of-index pyg-lib", "of-index==1.0 pyg-lib==0.5.0+pt28cu128"):
        steps = sh("uv venv --python 3.12", "pip install torch==2.8.0", f"pip install {requirements} {page}")
        result = audit(tmp_path, steps, solver)
        assert result.resolution.startswith("resolved with uv for "), requirements
        (solution,) = (each for each in solver.solved.values() if each and "of-index" in each.versions)
        assert "settings" in solution.versions
        solver.solved.clear()


@each_case(
    ("packages", "commands"),
    [
        # torchvision alone is not enough.
        (
            "torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 vllm==0.6.3",
            {"uv pip install torch==2.4.0 torchvision==0.19.0 torchaudio==2.4.0 transformers==4.46.2"},
        ),
        ("torch==2.4.0 torchvision==0.20.1 vllm==0.6.3", {"uv pip install torchvision==0.19"}),
        ("torch==2.4.0 vllm==0.6.5", {"uv pip install torch==2.5.1"}),
        ("torch==2.5.1 torchaudio==2.4.0", {"uv pip install torch==2.4.0 torchaudio==2.4.0"}),
    ],
)
def test_the_command_for_a_conflict_gives_its_step_a_solution(
    packages: str, commands: set[str], solver: UvStepSolver, tmp_path: Path
) -> None:
    """After it, no further problem follows from releases that no solution has."""
    (tmp_path / "requirements.txt").write_text("\n".join([*packages.split(), "accelerate", ""]))
    steps = ("RUN pip install -r requirements.txt", "RUN pip install flash-attn --no-build-isolation")
    (tmp_path / "Dockerfile").write_text("\n".join(["FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", *steps]))
    result = audit_file(str(tmp_path / "Dockerfile"), None, solver).result
    conflicts = [each for each in result.findings if each.id in ("RUN002", "RUN015")]
    assert conflicts
    assert {command for each in conflicts for command in commands_of(each)} == commands
    assert not [each for each in result.findings if each.id == "RUN046"]


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


def test_another_index_is_named_where_uv_does_not_find_all(solver: UvStepSolver, tmp_path: Path) -> None:
    text = sh("pip install vllm==0.10.2 not-on-this-index==1.0 --extra-index-url https://other.example/whl")
    unread = ("the index https://other.example/whl (line 3): its releases were not read",)
    result = audit(tmp_path, text, solver)
    assert (result.coverage.unread, result.is_undecided) == (unread, False)
    assert result.resolution.startswith("resolved with uv")
    write_wheel(tmp_path / "wheels", "wants-runtime", "1.0", requires=["parser-runtime==4.7.2"])
    write_wheel(tmp_path / "wheels", "parser-runtime", "4.11.1")
    result = audit(tmp_path, text.replace("not-on-this-index==1.0", "wants-runtime"), solver)
    assert "another index" in result.resolution
    assert (result.coverage.unread, result.is_undecided) == (unread, True)
    pinned = audit(tmp_path, sh("pip install vllm==0.10.2 --extra-index-url https://other.example/whl"), solver)
    assert (pinned.coverage.unread, pinned.is_undecided) == ((), False)
    assert not audit(tmp_path, text, NoSolver()).is_undecided


def test_a_package_without_a_wheel_for_this_python_next_to_another_index(
    solver: UvStepSolver, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "nightly-tool", "1.0", tag="cp27-cp27m-manylinux1_x86_64")
    index = "https://other.example/simple"
    result = audit_text(
        sh("pip install vllm==0.10.2", f"pip install -i {index} nightly-tool"), "README.md", None, solver
    )
    assert result.result.resolution.startswith("resolved with uv")
    assert result.audit
    main = result.audit.main
    assert not [each for each in main.requirements if "nightly-tool" in each]
    assert [(each.name, each.reason) for each in main.dropped] == [
        ("nightly-tool", OF_INDEX.format(f"uv pip install nightly-tool --extra-index-url {index}"))
    ]


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


def test_uv_sync_solves_the_extras_that_it_does_not_name(solver: UvStepSolver, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0.1"\ndependencies = ["caps-torch"]\n'
        '[project.optional-dependencies]\nall = ["caps-torch>3"]\n'
    )
    result = audit(tmp_path, sh("pip install caps-torch", "uv sync"), solver)
    assert [(each.id, each.line) for each in result.findings if each.status == "error"] == [("RUN015", 4)]


def test_a_release_that_neither_the_tables_nor_the_index_have(solver: UvStepSolver, tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "transformers", "9.0")
    result = audit(tmp_path, sh("pip install torch==2.99.0 transformers==9.0"), solver)
    by_status = {each.status: each.message for each in result.findings if each.id == "RUN001"}
    assert "index has no such release" in by_status["error"]
    assert by_status["unknown"].startswith("transformers==9.0 is newer than the built-in tables")
    torch = next(each for each in result.requirements if each.startswith("torch=="))
    assert torch != "torch==2.99.0"


@each_case(("python", "fix"), [("3.8", "Create the environment with Python 3.10, "), ("3.10", "")])
def test_the_python_with_which_a_step_has_a_solution(
    python: str, fix: str, solver: UvStepSolver, tmp_path: Path
) -> None:
    write_wheel(tmp_path / "wheels", "newer-python", "1.0", requires_python=">=3.10")
    text = sh(f"conda create -n x python={python}", "conda activate x", "pip install newer-python")
    fixes = [each.fix for each in found(audit(tmp_path, text, solver), "RUN015")]
    assert [each.startswith(fix) for each in fixes] == ([True] if fix else [])


def test_no_command_for_a_release_that_the_python_does_not_support(tmp_path: Path) -> None:
    """datasets 2.21 requires pyarrow 15 or newer, which has no release for Python 3.7."""
    text = sh("conda create -n x python=3.7", "conda activate x", "pip install datasets==2.21.0 pyarrow==8.0.0")
    (tmp_path / "SETUP.md").write_text(text)
    (problem,) = found(audit_file(str(tmp_path / "SETUP.md"), None, NoSolver()).result, "RUN002")
    assert problem.remedies == ()
    assert problem.fix.endswith("It needs a newer Python: no release of `pyarrow>=15.0.0` supports 3.7.")
