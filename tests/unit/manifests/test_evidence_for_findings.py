"""A finding needs evidence: each case has a guide that proves the fault, and one that does not."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import pytest
from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import INDEX, py, sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.machine.select import select_machine
from envdoctor.manifests import audit_guide
from envdoctor.resolution.step import NoSolver

TODAY = date(2026, 11, 21)
VENV = "python3.12 -m venv v && . v/bin/activate"
FLASH = "pip install flash-attn==2.8.3 --no-build-isolation"


class Case(NamedTuple):
    """A rule, a guide with its fault, and one without proof of it."""

    name: str
    rule: str
    faulty: str
    open: str


CASES = [
    Case("a build between the known ones of a release whose list is incomplete", "RUN054",
         sh(f"pip install torch==2.9.1 --index-url {INDEX}cu121"),
         sh(f"pip install torch==2.9.1 --index-url {INDEX}cu129")),
    Case("a build between the known ones of a release whose list is complete", "RUN054",
         sh(f"pip install torch==2.6.0 --index-url {INDEX}cu121"),
         sh(f"pip install torch==2.6.0 --index-url {INDEX}cu124")),
    Case("setuptools contains copies of packaging and wheel", "RUN041",
         sh(VENV, "pip install torch==2.5.1 psutil ninja setuptools==69.5.1", FLASH),
         sh(VENV, "pip install torch==2.5.1 psutil ninja setuptools==75.1.0", FLASH)),
    Case("torch brings a setuptools that contains them", "RUN041",
         sh(VENV, "pip install torch==2.4.1 psutil ninja", FLASH),
         sh(VENV, "pip install torch==2.5.1 psutil ninja", FLASH)),
    Case("the setuptools of Ubuntu has no copies", "RUN041",
         "```dockerfile\nFROM ubuntu:22.04\nRUN apt-get install -y python3-pip\n"
         f"RUN pip install torch==2.4.1 psutil ninja\nRUN {FLASH}\n```\n",
         "```dockerfile\nFROM ubuntu:22.04\nRUN apt-get install -y python3-pip\n"
         f"RUN pip install torch==2.4.1 psutil ninja setuptools\nRUN {FLASH}\n```\n"),
    Case("psutil counts the memory for the number of jobs", "RUN041",
         sh(VENV, "pip install torch==2.11.0 ninja", FLASH),
         sh(VENV, "pip install torch==2.11.0 ninja", f"MAX_JOBS=4 {FLASH}")),
    Case("without ninja the build is only slow", "RUN041",
         sh(VENV, "pip install torch==2.11.0 ninja", FLASH),
         sh(VENV, "pip install torch==2.11.0 psutil", FLASH)),
    Case("a container of NVIDIA has libraries for an older driver of a data-centre GPU", "RUN051",
         sh("docker run --gpus all nvcr.io/nvidia/pytorch:26.01-py3 bash", title="# RTX 5090, driver 570.172.08"),
         sh("docker run --gpus all nvcr.io/nvidia/pytorch:26.01-py3 bash", title="# H100, driver 570.172.08")),
    Case("a container without those libraries", "RUN051",
         "```dockerfile\nFROM ubuntu:22.04\nRUN pip install torch==2.11.0\n```\n# H100, driver 570.172.08\n",
         "```dockerfile\nFROM nvidia/cuda:13.0.1-devel-ubuntu22.04\nRUN pip install torch==2.11.0\n```\n"
         "# H100, driver 570.172.08\n"),
    Case("the code uses a package of an environment that was there before", "RUN051",
         sh("pip install bitsandbytes", title="# H100, driver 470.57") + py("import torch", "import os"),
         sh("pip install bitsandbytes", title="# H100, driver 470.57") + py("import torch", "import open_clip")),
    Case("a file that is not shown can limit huggingface-hub", "RUN061",
         sh("huggingface-cli download org/model"),
         sh("pip install -r requirements.txt", "huggingface-cli download org/model")),
    Case("pytorch-cuda selects the newest torch that has its build", "RUN010",
         sh("conda install pytorch=1.13 pytorch-cuda=11.7 -c pytorch -c nvidia", "pip install torch==2.0.1"),
         sh("conda install 'pytorch>=1.13' pytorch-cuda=11.7 -c pytorch -c nvidia", "pip install torch==2.0.1")),
    Case("an index that cannot be read can have another release", "RUN011",
         sh("uv pip install vllm==0.10.2 --extra-index-url https://wheels.example/cu130", title="# GH200 (aarch64)"),
         sh("uv pip install 'vllm<0.11' --extra-index-url https://wheels.example/cu130", title="# GH200 (aarch64)")),
    Case("cudatoolkit selected the build of an old torch", "RUN056",
         sh("conda install pytorch=1.13.1 cudatoolkit=11.7 -c pytorch"),
         sh("conda install pytorch=1.12.1 cudatoolkit=11.6 -c pytorch")),
    Case("flash-attn limits its jobs", "RUN044",
         sh("export CUDA_HOME=/usr/local/cuda-13.0", "pip install torch==2.11.0", FLASH.replace("2.8.3", "2.5.3")),
         sh("export CUDA_HOME=/usr/local/cuda-13.0", "pip install torch==2.11.0", FLASH)),
    Case("pip takes no nightly build without --pre", "RUN012",
         sh(f"pip install --pre torch --extra-index-url {INDEX}nightly/cu126", "pip install trl"),
         sh(f"pip install torch --extra-index-url {INDEX}nightly/cu126")),
    Case("a lower bound with dev selects a release of PyPI", "RUN012",
         sh(f"pip install --pre 'torch>=2.1.0dev' --index-url {INDEX}nightly/cu126", "pip install trl"),
         sh("pip install 'torch>=2.1.0dev'", "pip install trl")),
    Case("the index of another project under whl/cu126", "RUN055",
         sh(f"pip install flashinfer-python -i {INDEX}cu126"),
         sh("pip install flashinfer-python -i https://flashinfer.ai/whl/cu126/torch2.6/")),
    Case("a nightly build for other GPUs, and a release candidate", "RUN012",
         sh(f"pip install --pre torch --index-url {INDEX}nightly/cu128", "pip install trl"),
         sh(f"pip install torch --index-url {INDEX}test/cu128", f"pip install torch --index-url {INDEX}nightly/xpu",
            "pip install trl")),
    Case("a guide that has the release as an alternative", "RUN012",
         sh(f"pip install --pre torch -i {INDEX}nightly/cu126", "pip install trl", title="### PyTorch nightly"),
         sh(f"pip install --pre torch -i {INDEX}nightly/cu126", "pip install trl", title="### Nightly builds")
         + sh("pip install torch==2.8.0", title="### Stable releases")),
    Case("a project of PyTorch on its nightly index", "RUN055",
         sh(f"pip install transformers --index-url {INDEX}cu126"),
         sh(f"pip install --pre torchtitan --index-url {INDEX}nightly/cu126")),
    Case("torchaudio of an index for other GPUs", "RUN009",
         sh("pip install torch==2.15.0", "pip install torchaudio==2.11.0"),
         sh("pip install torch==2.15.0", f"pip install torchaudio==2.11.0 --index-url {INDEX}rocm6.4")),
    Case("a package of conda can bring torch", "RUN041",
         sh(VENV, "conda install -c nvidia cuda-nvcc", FLASH),
         sh(VENV, "conda install -c conda-forge transformer-engine-torch=2.3.0", FLASH)),
    Case("an image on a base with cuda-compat", "RUN051",
         "```dockerfile\nFROM example/sglang:v0.5.9-cu130\nRUN pip install torch==2.11.0\n```\n"
         "# H100, driver 570.172.08\n",
         "```dockerfile\nFROM lmsysorg/sglang:v0.5.9-cu130\nRUN pip install torch==2.11.0\n```\n"
         "# H100, driver 570.172.08\n"),
    Case("the images of SGLang have nvcc", "RUN043",
         "```dockerfile\nFROM lmsysorg/sglang:v0.5.9-cu130-runtime\nRUN pip install torch==2.11.0\n"
         f"RUN {FLASH}\n```\n",
         f"```dockerfile\nFROM lmsysorg/sglang:v0.5.9-cu130\nRUN pip install torch==2.11.0\nRUN {FLASH}\n```\n"),
    Case("the title of pins that are switched off", "RUN007",
         sh("pip install torch==2.0.0", title="# PyTorch 2.1.1"),
         "# PyTorch 2.1.1\n# torch==2.1.1\n" + sh("pip install torch==2.0.0", title="")),
    Case("a command that is commented out continues", "RUN104",
         sh("pip install torch==2.8.0", "# docker run -it --gpus all"),
         sh("pip install torch==2.8.0", "# docker run -it --gpus all \\", "#   -v $HOME/in:/in \\", "#   org/a:1")),
    Case("the content of an index in a variable is not known", "RUN007",
         sh("pip install torch", title="# torch 2.9.0"),
         sh("pip install --index-url https://download.pytorch.org/whl/${CUDA}/ torch", title="# torch 2.9.0")),
    Case("torchaudio of an index that was not read", "RUN009",
         sh("pip install torch==2.15.0 torchaudio==2.11.0"),
         sh("pip install torch==2.15.0 torchaudio==2.11.0 --extra-index-url https://wheels.example/a")),
    Case("the selector of PyTorch installs nothing that is made for a release", "RUN012",
         sh(f"pip3 install --pre torch torchvision --index-url {INDEX}nightly/cu132", "pip install peft"),
         sh(f"pip3 install --pre torch torchvision --index-url {INDEX}nightly/cu132")),
    Case("the page of PyTorch's long-term support", "RUN001",
         sh("pip install torch==1.8.2 torchvision==0.9.2"),
         sh(f"pip install torch==1.8.2 torchvision==0.9.2 --extra-index-url {INDEX}lts/1.8/cu111")),
    Case("conda's companions of a torch for CPUs", "RUN004",
         sh("pip install torch==2.4.0+cpu torchvision==0.19.0"),
         sh("conda install pytorch==2.4.0 torchvision==0.19.0 cpuonly -c pytorch")),
    Case("what conda selects for a torch for CPUs", "RUN003",
         sh("pip install transformers==4.49.0", "pip install datasets"),
         sh("conda install pytorch torchvision torchaudio cpuonly -c pytorch")),
    Case("conda keeps to the requirements of its packages", "RUN003",
         sh("pip install torch==2.5.1", "pip install -U xformers --no-deps"),
         sh("conda install pytorch-cuda=12.1 pytorch cudatoolkit xformers -c pytorch -c nvidia -c xformers")),
    Case("an index that lacks the build of an open torch", "RUN003",
         sh("uv pip install vllm==0.33.0 --extra-index-url https://download.pytorch.org/whl/cu126"),
         sh("pip install vllm==0.33.0 --extra-index-url https://download.pytorch.org/whl/cu129")),
    Case("the README of an extension presupposes torch", "RUN041",
         sh(VENV, "pip install --no-build-isolation transformer_engine[pytorch]"),
         sh("pip install --no-build-isolation transformer_engine[pytorch]")),
    Case("torch is installed after the build", "RUN041",
         sh("uv pip install wheel flash-attn --no-build-isolation", "uv pip install torch"),
         sh("uv pip install flash-attn --no-build-isolation")),
    Case("the main branch of one package is what the command is for", "RUN063",
         sh("pip install git+https://github.com/huggingface/trl.git", "pip install peft"),
         sh("pip install git+https://github.com/huggingface/trl.git")),
    Case("pip keeps the torch of a container that pins it", "RUN010",
         sh("docker run --gpus all -it nvcr.io/nvidia/pytorch:25.02-py3", "pip install xformers==0.0.35"),
         sh("docker run --gpus all -it nvcr.io/nvidia/pytorch:25.03-py3", "pip install xformers==0.0.35")),
]  # fmt: skip


NGC = "```dockerfile\nFROM nvcr.io/nvidia/pytorch:{}-py3\n{}RUN pip install vllm==0.10.2\n```\n"


@pytest.mark.parametrize(
    ("tag", "lines", "effect"),
    [
        ("25.02", "", "would replace torch"),
        ("25.03", "", "needs torch 2.8.0 (CUDA 12.8), which pip refuses"),
        ("25.03", "ENV PIP_CONSTRAINT=\n", "would replace torch"),
    ],
)
def test_the_constraints_of_a_container_keep_its_torch(tag: str, lines: str, effect: str) -> None:
    found = audit_guide(NGC.format(tag, lines), name="guide.md", today=TODAY).findings
    assert any(each.id == "RUN010" and effect in each.message for each in found)


RUNNER = "on: push\njobs:\n  a:\n    runs-on: {}\n    steps:\n    - run: pip install torch==2.6.0\n"


@pytest.mark.parametrize(("label", "statuses"), [("gpu-8-core", ["error"]), ("ubuntu-24.04", [])])
def test_a_standard_runner_has_no_gpu(label: str, statuses: list[str]) -> None:
    result = audit_text(RUNNER.format(label), "w.yml", select_machine("gpu:rtx-5090", ()), NoSolver()).result
    assert [each.status for each in result.findings if each.id == "RUN057"] == statuses


@each_case("case", CASES, ids=lambda case: case.name)
def test_a_finding_needs_evidence(case: Case) -> None:
    def problems(text: str) -> list[str]:
        found = audit_guide(text, name="guide.md", today=TODAY).findings
        return [each.message for each in found if each.id == case.rule and each.status in ("error", "warning")]

    assert problems(case.faulty)
    assert problems(case.open) == []


@each_case(("packages", "are_compared"), [({}, False), ({"outlines": "0.1.11"}, True)])
def test_sglang_without_its_engine_requires_no_torch(packages: dict[str, str], are_compared: bool) -> None:
    versions = {"sglang": "0.5.2", "torch": "2.15.0", **packages}
    text = sh(VENV, f"pip install {' '.join(versions)}")
    result = audit_text(text, "SETUP.md", None, FixedSolver(FixedIndex(), versions)).result
    assert bool([each for each in result.findings if "requires torch" in each.message]) == are_compared
