"""Builds of repositories: torch and other modules in isolation, the torch of the build, and images without a GPU."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.remedies import commands_of

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.git_builds import git_builds

TORCH = "uv pip install torch==2.5.1"
VENV = "uv venv --python 3.11"
NVDIFFRAST = "git+https://github.com/NVlabs/nvdiffrast"
MAMBA = "git+https://github.com/state-spaces/mamba"
FLASH = "git clone https://github.com/Dao-AILab/flash-attention"
NIGHTLY = "https://download.pytorch.org/whl/nightly/cu130"
RULES = ("RUN040", "RUN113", "RUN114", "RUN115")


def found(text: str, name: str = "SETUP.md") -> list[tuple[str, int | None]]:
    return [(each.id, each.line) for each in audit_text(text, name, None, None).result.findings if each.id in RULES]


@each_case(
    ("steps", "expected"),
    [
        ((f"uv pip install {NVDIFFRAST}.git",), ["RUN040"]),
        ((f"uv pip install {NVDIFFRAST}@v0.3.3",), []),  # its setup.py does not import torch
        ((f"uv pip install --no-build-isolation {NVDIFFRAST}",), []),
        (("uv pip install git+ssh://git@github.com/facebookresearch/pytorch3d.git@stable",), ["RUN040"]),
        (("uv pip install 'git+https://github.com/NVlabs/tiny-cuda-nn/#subdirectory=bindings/torch'",), ["RUN040"]),
        (("uv pip install git+https://github.com/NVlabs/tiny-cuda-nn",), []),  # has no project there
        (
            ("git clone https://github.com/NVIDIA/MinkowskiEngine", "cd MinkowskiEngine", "uv pip install ."),
            ["RUN040"],
        ),
        (("git clone https://github.com/huggingface/peft", "cd peft", "uv pip install ."), []),
        ((FLASH, "cd flash-attention/csrc/layer_norm", "uv pip install ."), ["RUN040"]),
        ((FLASH, "cd flash-attention/csrc/rotary", "uv pip install ."), []),  # the main branch has no such folder
        ((f"{FLASH} -b v2.5.8", "cd flash-attention/csrc/rotary", "uv pip install ."), ["RUN040"]),
        (("uv pip install submodules/simple-knn ./models/curope",), ["RUN040", "RUN040"]),
        (("uv pip install git+https://github.com/mattloper/chumpy",), ["RUN113"]),
        (("uv pip install git+https://github.com/mattloper/chumpy@580566eafc9a",), []),  # may be another setup.py
        ((f"uv pip install {MAMBA}",), ["RUN114"]),
        ((f"uv pip install {MAMBA}@v2.2.2",), ["RUN040"]),
        ((f"uv pip install {MAMBA}@v2.2.4",), ["RUN114"]),
        ((f"uv pip install --build-constraint torch.txt {MAMBA}",), []),
        ((f"uv pip install --extra-index-url https://download.pytorch.org/whl/cu121 {MAMBA}",), []),
        (("uv pip install torch==2.15.0", f"uv pip install {MAMBA}"), []),
        ((f"uv pip install torch==2.15.0.dev20261101 --index-url {NIGHTLY}", f"uv pip install {MAMBA}"), []),
        (("uv pip install causal-conv1d==1.5.4",), []),  # its build requirements name torch
        (("uv pip install causal-conv1d==1.4.0",), ["RUN040"]),
    ],
)
def test_the_build_of_a_repository(steps: tuple[str, ...], expected: list[str]) -> None:
    assert [rule for rule, _ in found(sh(VENV, TORCH, *steps))] == expected


CUDA = "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\n"
SIMPLE = "RUN pip install --no-build-isolation git+https://github.com/camenduru/simple-knn\n"


@each_case(
    ("text", "expected"),
    [
        (CUDA + SIMPLE, [2]),
        (CUDA + 'ENV TORCH_CUDA_ARCH_LIST="8.0;9.0"\n' + SIMPLE, []),
        (
            CUDA
            + "RUN FORCE_CUDA=1 pip install --no-build-isolation git+https://github.com/facebookresearch/detectron2\n",
            [],
        ),
        (CUDA + "RUN pip install --no-build-isolation git+https://github.com/facebookresearch/detectron2\n", [2]),
        (CUDA.replace("devel", "runtime") + SIMPLE, []),  # it lacks nvcc before
        ("FROM nvcr.io/nvidia/pytorch:24.10-py3\n" + SIMPLE, []),  # sets TORCH_CUDA_ARCH_LIST
        (CUDA + "RUN pip install --no-build-isolation git+https://github.com/Dao-AILab/causal-conv1d\n", []),
    ],
)
def test_a_build_in_an_image_without_a_gpu(text: str, expected: list[int]) -> None:
    assert [line for rule, line in found(text, "Dockerfile") if rule == "RUN115"] == expected


def test_the_directory_of_a_clone_ends_with_its_run_step() -> None:
    clone = "RUN git clone https://github.com/camenduru/simple-knn && cd simple-knn && make\n"
    assert found(CUDA + clone + "COPY . .\nRUN uv pip install --system .\n", "Dockerfile") == []


def test_each_row_of_a_repository_has_one_package() -> None:
    keys = [(row.repository, row.folder) for row in git_builds()]
    assert len(keys) == len(set(keys))


@each_case(
    ("text", "expected"),
    [
        (CUDA.replace("devel", "runtime") + SIMPLE, [2]),
        ("FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN pip install torch==2.5.1\n" + SIMPLE, [3]),
        (CUDA + SIMPLE, []),
        ("FROM acme/base:1\nRUN pip install torch==2.5.1\n" + SIMPLE, []),
    ],
)
def test_a_cuda_extension_in_an_image_without_nvcc(text: str, expected: list[int]) -> None:
    result = audit_text(text, "Dockerfile", None, None).result
    assert [each.line for each in result.findings if each.id == "RUN043"] == expected


@each_case(
    ("reference", "expected"),
    [("@a1d071733d7111c9c014f024669f959182114e33", [4]), ("@d05afc4", []), ("", []), ("@main", [])],
)
def test_a_row_that_is_true_of_some_commits(reference: str, expected: list[int]) -> None:
    step = f"uv pip install torch==2.6.0 clip@git+https://github.com/openai/CLIP.git{reference}"
    result = audit_text(sh("uv venv --python 3.10", step), "SETUP.md", None, None).result
    assert [each.line for each in result.findings if each.id == "RUN113"] == expected


@each_case(
    ("step", "expected"),
    [
        ("pip install 'git+git://github.com/NVIDIA/apex.git#egg=apex'", [4]),
        ("git clone git://github.com/NVIDIA/apex.git", [4]),
        ("git clone git@github.com:NVIDIA/apex.git", []),
        ("git config --global url.https://.insteadOf git:// && git clone git://github.com/NVIDIA/apex.git", []),
    ],
)
def test_an_address_with_the_old_protocol_of_git(step: str, expected: list[int]) -> None:
    result = audit_text(sh("pip install torch==2.5.1", step), "SETUP.md", None, None).result
    assert [each.line for each in result.findings if each.id == "RUN119"] == expected


@each_case(
    ("steps", "expected"),
    [
        (("pip install git+https://github.com/NVlabs/nvdiffrast",), True),
        (("pip install torch==2.6.0", "pip install git+https://github.com/NVlabs/nvdiffrast"), False),
    ],
)
def test_the_remedy_installs_torch_where_no_step_does(steps: tuple[str, ...], expected: bool) -> None:
    result = audit_text(sh(*steps), "SETUP.md", None, None).result
    finding = next(each for each in result.findings if each.id == "RUN040")
    assert commands_of(finding)[0].startswith("uv pip install torch ") is expected


@each_case(
    ("setup", "command", "printed"),
    [
        ("from torch.utils.cpp_extension import CUDAExtension\n", "pip install ./ext",
         "uv pip install 'setuptools<82' wheel && uv pip install --no-build-isolation ./ext"),
        ("import torch\n", "pip install -e ./ext",
         "uv pip install 'setuptools<82' wheel && uv pip install --no-build-isolation -e ./ext"),
        ("", "pip install ./ext", "pip install ./ext"),
        ("", "pip install -e ./ext", "pip install -e ./ext"),
    ],
)  # fmt: skip
def test_the_command_for_a_folder_after_a_set(setup: str, command: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "ext").mkdir(exist_ok=True)
    (tmp_path / "ext" / "setup.py").write_text(f"{setup}from setuptools import setup\nsetup(name='ext')\n")
    text = sh("conda create -n x python=3.11", "conda activate x", "pip install torch==2.6.0", command)
    audited = audit_text(text, str(tmp_path / "README.md"), None, None).audit
    assert audited is not None
    (corrected,) = audited.sets
    (reason,) = [each.reason for each in corrected.dropped if each.name == "ext"]
    assert reason.endswith(f"`{printed}`")
