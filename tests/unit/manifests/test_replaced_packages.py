"""Steps that replace installed packages, or keep them, as real uv solves the steps."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import INDEX, sh
from support.local_packages import index_without_wheels, write_wheel
from support.resolved_guides import audit, found
from support.source_packages import write_sdist

from envdoctor.commands.audit_file import audit_file
from envdoctor.locking.step_placeholders import newest_source_releases
from envdoctor.locking.step_solver import UvStepSolver
from envdoctor.resolution.requirement import parse_install_requirement
from envdoctor.resolution.resolver import ResolverTarget
from envdoctor.resolution.step import StepProblem


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


@each_case("companion", ["torchvision", "torchvision==0.19.0"])
def test_a_companion_of_a_replaced_torch_has_no_finding_of_its_own(
    companion: str, solver: UvStepSolver, tmp_path: Path
) -> None:
    """uv keeps torchvision, which fits the torch of its step; to keep that torch corrects both."""
    for version, requires in (("1.0", "torch>=2"), ("2.0", "torch>=2.8")):
        write_wheel(tmp_path / "wheels", "uses-torch", version, requires=[requires])
    steps = f"uv pip install torch==2.4.0 {companion}", "uv pip install uses-torch"
    result = audit(tmp_path, sh("uv venv --python 3.12", *steps), solver)
    assert [(each.id, each.line) for each in result.findings if each.status == "error"] == [("RUN010", 5)]


def test_the_earlier_torch_is_kept_where_a_release_accepts_it(solver: UvStepSolver, tmp_path: Path) -> None:
    """An open package has an older release for torch 2.4. A pinned one has none; torchvision follows its torch."""
    for version, requires in (("1.0", "torch>=2"), ("2.0", "torch>=2.8")):
        write_wheel(tmp_path / "wheels", "uses-torch", version, requires=[requires])
    write_wheel(tmp_path / "wheels", "needs-older", "1.0", requires=["uses-torch"])
    first = "pip install torch==2.4.0 torchvision==0.19.0"
    commands = {}
    steps = "pip install -U needs-older", "pip install --no-build-isolation uses-torch", "pip install uses-torch==2.0"
    for step in steps:
        (replaced,) = found(audit(tmp_path, sh(first, step), solver), "RUN010")
        ((commands[step],),) = [remedy.commands for remedy in replaced.remedies]
    assert list(commands.values()) == [
        "uv pip install needs-older torch==2.4.0",
        "uv pip install uses-torch torch==2.4.0 --no-build-isolation",
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


def test_a_bound_on_torch_replaces_its_libraries(solver: UvStepSolver, tmp_path: Path) -> None:
    """torch 2.4 and older accept the libraries of the newest torch: to keep these, uv would take such a torch."""
    mirror = index_without_wheels(tmp_path / "mirror", ("numpy", "1.26.4"))
    sources = replace(solver.sources, extra_indexes=(mirror,), index_strategy="unsafe-best-match")
    steps = sh("uv venv --python 3.12", "uv pip install torch torchvision", "uv pip install 'torch<2.9' torchvision")
    alone = audit(tmp_path, sh("uv venv --python 3.12", "uv pip install 'torch<2.9' torchvision"), solver)
    result = audit(tmp_path, steps, UvStepSolver(sources))
    assert result.resolution.rpartition(" ")[2] == alone.resolution.rpartition(" ")[2]


def test_a_pin_with_a_local_version_selects_another_build(solver: UvStepSolver, tmp_path: Path) -> None:
    """torchvision brings the torch of PyPI, which is for CUDA 12.1."""
    pin = "pip install torch==2.4.0+cu118 --extra-index-url https://download.pytorch.org/whl/cu118"
    text = sh("uv venv --python 3.12", "uv pip install torchvision==0.19.0", pin)
    assert audit(tmp_path, text, solver).resolution.endswith("torch 2.4.0+cu118")


def test_pins_of_many_installed_packages_replace_no_torch(solver: UvStepSolver, tmp_path: Path) -> None:
    """An index that is read first lists the installed torch without a wheel: uv discards it as a preference."""
    mirror = index_without_wheels(tmp_path / "mirror", ("torch", "2.15.0"))
    sources = replace(solver.sources, extra_indexes=(mirror,), index_strategy="unsafe-best-match")
    tools = [f"tool-{letter}" for letter in "abcdef"]
    for tool in tools:
        write_wheel(tmp_path / "wheels", tool, "1.0")
        write_wheel(tmp_path / "wheels", tool, "2.0")
    pins = " ".join(f"{tool}==1.0" for tool in tools)
    text = sh(f"pip install torch {' '.join(tools)}", f"pip install 'torch>=2' {pins}")
    assert found(audit(tmp_path, text, UvStepSolver(sources)), "RUN010") == []


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
        ("GIT_LFS_SKIP_SMUDGE=1 uv pip install 'torch>=2.5.1' 'scan-kernels>=2.0'", []),
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


def test_the_newest_source_archive_brings_what_it_requires(solver: UvStepSolver, tmp_path: Path) -> None:
    """flash-attn has no wheel, and its archive requires einops: programs can import it."""
    solver.index = FixedIndex()
    newest = next(version for name, version in newest_source_releases("9") if name == "flash-attn")
    solver.index.requirements[f"flash-attn {newest}"] = ["torch", "einops"]
    write_wheel(tmp_path / "wheels", "einops", "0.8.2")
    requirement = parse_install_requirement("flash-attn", 1)
    assert requirement
    solution = solver(StepProblem((requirement,), (), (), {}, ResolverTarget("x86_64", "3.11")))
    assert solution
    assert solution.versions.keys() >= {"flash-attn", "einops", "torch"}


def test_an_installed_release_stays_where_a_later_step_accepts_it(solver: UvStepSolver, tmp_path: Path) -> None:
    kept = sh("pip install transformers==4.57.1 vllm==0.10.2", "pip install transformers")
    assert found(audit(tmp_path, kept, solver), "RUN003") == []
    upgraded = sh("pip install transformers==4.57.1 vllm==0.10.2", "pip install -U transformers")
    assert [each.status for each in found(audit(tmp_path, upgraded, solver), "RUN010")] == ["info"]
    assert [each.line for each in found(audit(tmp_path, upgraded, solver), "RUN003")] == [4]


def test_a_build_of_the_pytorch_index_stays(solver: UvStepSolver, tmp_path: Path) -> None:
    steps = (
        f"pip install torch==2.4.0 --index-url {INDEX}cu121",
        "pip install transformers==4.44.2 numpy accelerate",
    )
    result = audit(tmp_path, sh(*steps), solver)
    assert found(result, "RUN010") == []
    replaced = audit(tmp_path, sh(steps[0], "pip install vllm==0.10.2"), solver)
    assert [each.line for each in found(replaced, "RUN010")] == [4]


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


def test_a_torch_that_a_range_permits_and_another_package_excludes_is_not_kept(
    solver: UvStepSolver, tmp_path: Path
) -> None:
    """A file with `torch>=2` and a pin of triton has one release of torch only."""
    write_wheel(tmp_path / "wheels", "needs-old", "1.0", requires=["torch==2.4.0"])
    (tmp_path / "requirements.txt").write_text("torch>=2\nneeds-old==1.0\n")
    text = sh("pip install torch==2.8.0", "pip install -r requirements.txt")
    (replaced,) = found(audit(tmp_path, text, solver), "RUN010")
    ((command,),) = [remedy.commands for remedy in replaced.remedies]
    assert "torch==2.4.0" in command
    assert "Install both in one command" not in replaced.fix
