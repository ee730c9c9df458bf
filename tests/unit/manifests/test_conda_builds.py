"""The builds of PyTorch that conda selects."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

CHANNELS = "-c pytorch -c nvidia"
STEPS: dict[str, tuple[str, bool]] = {
    "an open release": (f"conda install pytorch pytorch-cuda=11.7 {CHANNELS}", True),
    "a lower bound": (f"conda install 'pytorch>=1.13' torchvision pytorch-cuda=11.7 {CHANNELS}", True),
    "a release": (f"conda install pytorch==2.0.1 pytorch-cuda=11.7 {CHANNELS}", False),
    "a series": (f"conda install pytorch=1.13 torchvision pytorch-cuda=11.7 {CHANNELS}", False),
    "an upper bound": (f"conda install 'pytorch>=1.13,<2.1' pytorch-cuda=11.7 {CHANNELS}", False),
    "a CUDA of the newest release": (f"conda install pytorch pytorch-cuda=12.1 {CHANNELS}", False),
    "an old CUDA of the newest release": (f"conda install pytorch pytorch-cuda=11.8 {CHANNELS}", False),
    "a build": (f"conda install 'pytorch=*=*cuda11.7*' torchvision=0.15.2 pytorch-cuda=11.7 {CHANNELS} numpy", False),
    "any CUDA from one on": (f"conda install pytorch 'pytorch-cuda>=11.7' {CHANNELS}", False),
    "conda-forge": ("conda install pytorch pytorch-cuda=11.7 -c conda-forge -c pytorch -c nvidia", False),
    "without the selector": (f"conda install pytorch {CHANNELS}", False),
}


@each_case("name", [*STEPS])
def test_conda_selects_a_cpu_build(name: str) -> None:
    step, is_reported = STEPS[name]
    text = sh("conda create -n x python=3.10 -y", "conda activate x", step)
    result = audit_text(text, "SETUP.md", None, NoSolver()).result
    assert [each.line for each in result.findings if each.id == "RUN189"] == ([5] if is_reported else [])


OF_FORGE = "-c pytorch -c nvidia -c conda-forge"
MKL: dict[str, tuple[str, bool]] = {
    "conda-forge": (f"conda install pytorch=2.0.1 pytorch-cuda=11.8 {OF_FORGE}", True),
    "the channel alone": (f"conda install pytorch==1.13.1 torchvision pytorch-cuda=11.7 {CHANNELS}", True),
    "a bound": (f"conda install pytorch=2.0.1 pytorch-cuda=11.8 'mkl<2024.1' {OF_FORGE}", False),
    "a newer release": (f"conda install pytorch=2.5.1 pytorch-cuda=12.1 {OF_FORGE}", False),
    "an open release": (f"conda install pytorch pytorch-cuda=12.1 {OF_FORGE}", False),
    "the build of conda-forge": ("conda install pytorch=2.0.1 -c conda-forge -c pytorch", False),
    "a torch of pip after it": (f"conda install pytorch=2.0.1 {OF_FORGE} && pip install torch==2.1.0", False),
}


@each_case("name", [*MKL])
def test_conda_selects_the_newest_mkl(name: str) -> None:
    step, is_reported = MKL[name]
    text = sh("conda create -n x python=3.10 -y", "conda activate x", step)
    found = [each for each in audit_text(text, "SETUP.md", None, NoSolver()).result.findings if each.id == "RUN292"]
    assert [(each.status, each.line) for each in found] == ([("unknown", 5)] if is_reported else [])
    old = [each.id for each in audit_text(text.replace("3.10", "3.8"), "SETUP.md", None, NoSolver()).result.findings]
    assert ("RUN292" in old) == (is_reported and "conda-forge" in step)


@each_case(("python", "version"), [("3.8", "1.24.4"), ("3.9.7", "2.0.2"), ("3.11", "2.4.6")])
def test_conda_selects_a_release_for_its_python(python: str, version: str) -> None:
    text = sh(f"conda create -n x python={python}", "conda activate x", "conda install 'numpy>=1.20' torchvision")
    result = audit_text(text, "SETUP.md", None, NoSolver()).audit
    assert result
    (state,) = result.traces[0][1].final_states
    assert state.packages["numpy"].version == version


@each_case(
    ("torch", "pins", "names"),
    [
        ("conda install pytorch=2.4.1 pytorch-cuda=12.1 -c pytorch -c nvidia", "trl triton==2.3.1", {"trl"}),
        ("pip install torch==2.4.1", "trl triton==2.3.1", {"trl", "triton"}),
        ("conda install pytorch=2.4.1 -c pytorch", "torch==2.3.1 triton==2.3.1", {"torch", "triton"}),
        ("conda install pytorch=2.4.1 -c pytorch", "trl 'triton>=2'", {"trl", "triton"}),
    ],
)
def test_a_pinned_triton_does_not_replace_the_torch_of_conda(torch: str, pins: str, names: set[str]) -> None:
    solver = FixedSolver(FixedIndex(), {"trl": "0.9.6", "torch": "2.4.1", "triton": "2.3.1"})
    findings(sh("conda create -n x python=3.8", "conda activate x", torch, f"pip install {pins}"), solver)
    assert {each.name for each in solver.problems[-1].requirements} == names


PYTORCH3D = "pip install git+https://github.com/facebookresearch/pytorch3d.git"
FILE = "dependencies:\n  - python=3.10\n  - pip={}\n  - pytorch=2.0.1\n"


@each_case(
    ("create", "expected"),
    [
        ("conda create -n x python=3.10 pip=23.3.1", []),
        ("conda create -n x python=3.10 pip=23.3.1=py310_0", []),
        ("conda create -n x python=3.8", []),
        ("conda create -n x python=3.10 pip=25.3", ["RUN040"]),
        ("conda create -n x python=3.10 pip", ["RUN040"]),
        ("conda create -n x python=3.10", ["RUN040"]),
    ],
)
def test_an_old_pip_of_conda_builds_without_isolation(create: str, expected: list[str]) -> None:
    steps = (create, "conda activate x", "conda install pytorch=2.0.1 -c pytorch", PYTORCH3D)
    result = audit_text(sh(*steps), "SETUP.md", None, NoSolver()).result
    assert [each.id for each in result.findings if each.id == "RUN040"] == expected


@each_case(("name", "pip", "expected"), [
    ("environment.yml", "23.1=py310_0", []), ("env-gpu.yaml", "24.3.1", []), ("environment.yml", "26.3", ["RUN040"]),
])  # fmt: skip
def test_the_pip_of_an_environment_file(tmp_path: Path, name: str, pip: str, expected: list[str]) -> None:
    (tmp_path / name).write_text(FILE.format(pip), encoding="utf-8")
    guide = sh(f"conda env create -f {name}", "conda activate x", PYTORCH3D)
    for path, text in (("README.md", guide), ("install.sh", f"pip install trl==0.23.1\n{PYTORCH3D}")):
        result = audit_text(text, str(tmp_path / path), None, NoSolver()).result
        assert [each.id for each in result.findings if each.id == "RUN040"] == expected, path


def test_conda_keeps_an_installed_release() -> None:
    installed = f"conda install pytorch==2.4.1 torchvision==0.19.1 pytorch-cuda=12.1 {CHANNELS}"
    for step, replaced in (
        (f"conda install pytorch torchvision torchaudio pytorch-cuda=12.1 {CHANNELS}", False),
        (f"conda install pytorch pytorch-cuda=11.8 {CHANNELS}", False),  # another build of the release
        (f"conda install pytorch==2.5.1 pytorch-cuda=12.1 {CHANNELS}", True),
    ):
        text = sh("conda create -n x python=3.10 -y", "conda activate x", installed, step)
        result = audit_text(text, "SETUP.md", None, NoSolver()).result
        found = [each.id for each in result.findings if each.status == "error"]
        assert bool(found) == replaced, (step, found)


def test_the_wheels_in_place_of_cudatoolkit_have_the_companions_of_the_step() -> None:
    for companions in ("", "torchvision", "torchvision torchaudio"):
        text = sh(f"conda install pytorch {companions} cudatoolkit=10.1 -c pytorch")
        result = audit_text(text, "SETUP.md", None, NoSolver()).result
        commands = [each.remedies[0].commands for each in result.findings if each.id == "RUN056"]
        packages = " ".join(["torch==2.5.1", *companions.split()])
        assert commands == [(f"uv pip install {packages} --torch-backend=cu124",)]
