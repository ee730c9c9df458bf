"""GPUs for which a build of torch has no code, where the guide names no GPU."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.machine.recorded import read_recorded
from envdoctor.resolution.step import NoSolver

_FROM_TORCH_STABLE = "-f https://download.pytorch.org/whl/torch_stable.html"
NOTED = {  # the commands, and a part of the message
    "a build of the index": (
        f"pip install torch==1.9.0+cu111 {_FROM_TORCH_STABLE}",
        "up to compute capability 8.x, and none for H100",
    ),
    "a release before H100": ("pip install torch==1.13.1", "torch 1.13.1 for CUDA 11.7"),
    "a build of conda": ("conda install pytorch==1.12.1 cudatoolkit=11.3 -c pytorch", "1.12.1 for CUDA 11.3"),
    "a later build of conda": ("conda install pytorch=1.13.1 pytorch-cuda=11.7 -c pytorch -c nvidia", "CUDA 11.7"),
    "the first build for CUDA 11": (f"pip install torch==1.7.1+cu110 {_FROM_TORCH_STABLE}", "1.7.1 for CUDA 11.0"),
}
WARNED = {  # builds for CUDA 10 and older have code for no GPU since A100
    "the build of PyPI": ("pip install torch==1.8.1", "torch 1.8.1 for CUDA 10.2"),
    "a release before the table": ("pip install torch==1.4.0", "torch 1.4.0 for CUDA 10.1"),
    "a wheel for CUDA 9": (f"pip install torch==1.6.0+cu92 {_FROM_TORCH_STABLE}", "torch 1.6.0 for CUDA 9.2"),
    "a step of conda": ("conda install pytorch==1.6.0 cudatoolkit=10.2 -c pytorch", "torch 1.6.0 for CUDA 10.2"),
    "a step without a CUDA version": ("conda install pytorch=1.5.1 -c pytorch", "torch 1.5.1 for CUDA 10.2"),
    "an image": ("docker run -it pytorch/pytorch:1.6.0-cuda10.1-cudnn7-devel bash", "torch 1.6.0 for CUDA 10.1"),
}
SILENT = {
    "a newer release": "pip install torch==2.1.2",
    "an open release": "pip install torch",
    "a build for the CPU": "pip install torch==1.13.1 --index-url https://download.pytorch.org/whl/cpu",
    "a build of conda-forge": "conda install pytorch==1.10.1 cudatoolkit=10.2 -c conda-forge",
    "a build of Anaconda": "conda install pytorch==1.4.0 cudatoolkit=10.1",
    "a build of conda for the CPU": "conda install pytorch==1.6.0 cpuonly -c pytorch",
    "a build of conda with code for H100": "conda install pytorch==2.0.1 pytorch-cuda=11.8 -c pytorch -c nvidia",
    "a wheel for the CPU": f"pip install torch==1.5.0+cpu {_FROM_TORCH_STABLE}",
    "a wheel whose release is a variable": (
        "pip install https://download.pytorch.org/whl/cu102/torch-${V}+cu102-cp38-cp38-linux_x86_64.whl"
    ),
    "a release that is a placeholder": f"pip install torch==<version>+cu102 {_FROM_TORCH_STABLE}",
    "a release of a later CUDA": "pip install torch==2.0.1 --index-url https://download.pytorch.org/whl/cu118",
}


def _notes(command: str, title: str = "# Setup") -> list[tuple[str, int, str]]:
    found = audit_text(sh(command, title=title), "README.md", None, None).result.findings
    return [(each.status, each.line, each.message) for each in found if each.id == "RUN240"]


@each_case("name", [*NOTED])
def test_the_newest_gpus_of_a_build_are_noted(name: str) -> None:
    command, message = NOTED[name]
    notes = _notes(command)
    assert [(status, line) for status, line, _ in notes] == [("info", 3)]
    assert message in notes[0][2]
    assert not _notes(command, title="# Setup on a V100")


@each_case("name", [*WARNED])
def test_builds_without_code_for_a_gpu_since_a100_give_a_warning(name: str) -> None:
    command, message = WARNED[name]
    notes = _notes(command)
    assert [(status, line) for status, line, _ in notes] == [("warning", 3)]
    assert message in notes[0][2]
    assert "up to compute capability 7.x, and none for A100, RTX 30, RTX 40, H100 and newer" in notes[0][2]
    assert not _notes(command, title="# Setup on a V100")


@each_case("name", [*SILENT])
def test_builds_with_code_for_h100_and_other_builds(name: str) -> None:
    assert not _notes(SILENT[name])


def test_a_given_machine_has_findings_of_its_own() -> None:
    machine = read_recorded("gh200-480gb")
    found = audit_text(sh("pip install torch==1.13.1", title=""), "README.md", machine, None).result.findings
    assert "RUN240" not in {each.id for each in found}


EXTENSION = "import torch\nfrom setuptools import setup\nsetup(name='a', install_requires=['torch{}'])\n"


@each_case(("bound", "module", "count"), [(">=1.1", "torch", 0), ("==1.10.2", "torch", 1), (">=1.1", "os", 1)])
def test_a_torch_that_setup_py_imports_is_there_before(bound: str, module: str, count: int, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    (tmp_path / "setup.py").write_text(EXTENSION.format(bound).replace("import torch", f"import {module}"))
    text = sh("conda create -n a python=3.6", "conda activate a", "python setup.py develop", title="# Setup")
    found = audit_text(text, str(tmp_path / "INSTALL.md"), None, NoSolver()).result.findings
    assert len([each for each in found if each.id == "RUN240"]) == count
