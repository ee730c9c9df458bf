"""Plans of `conda install`, names of GPUs that are cut off, and JetPack in a sentence.

Sources: github.com/pytorch/pytorch/issues/92273, conda/conda/issues/11001, dusty-nv/jetson-inference/issues/1932
(2026-11-28).
"""

from __future__ import annotations

import re

from support.cases import each_case
from support.report_samples import blamed_causes

from envdoctor.reports import parse_report
from envdoctor.reports.gpus import clean_name, compute_capability

COMMAND = "conda install pytorch==1.12.1 torchvision==0.13.1 cudatoolkit=10.2 -c pytorch\n"
DOWNLOADS = """
The following packages will be downloaded:

    package                    |            build
    ---------------------------|-----------------
    cudatoolkit-{cuda}        |       h74a9793_1       317.2 MB  defaults
    pytorch-{torch}             |      {build}       133.8 MB  pytorch
    pytorch-mutex-1.0          |              cpu           3 KB  pytorch
"""
INSTALLS = """
The following NEW packages will be INSTALLED:

  cudatoolkit        nvidia/win-64::cudatoolkit-{cuda}-hd77b12b_13
  pytorch            pytorch/win-64::pytorch-{torch}-{build}
  torchvision        pytorch/win-64::torchvision-0.16.0-py310
"""
MAMBA = """
  + pytorch-cuda             {cuda}  hc786d27_7    pytorch       8kB
  + pytorch                 {torch}  {build}  pytorch       1GB
  + torchvision            0.20.1  py312_cu124   pytorch       9MB
"""
CHANGES = """
The following packages will be UPDATED:

  ca-certificates                     2023.05.30-h06a4308_0 --> 2023.08.22-h06a4308_0 None

The following packages will be SUPERSEDED by a higher-priority channel:

  pytorch            pytorch::pytorch-2.0.1-py3.11_cuda{cuda}_cudnn8.5.0_0 --> conda-forge::pytorch-{torch}-{build}
  torchvision        pytorch::torchvision-0.15.2-py311_cu117 --> conda-forge::torchvision-0.15.2-cpu_py311h3a8e1c5_1
"""


@each_case(
    ("plan", "torch", "cuda", "build", "causes"),
    [
        (COMMAND + DOWNLOADS, "1.12.1", "10.2.89", "py3.8_cpu_0", {"torch-cpu-build"}),
        (INSTALLS, "2.1.0", "11.8.0", "py3.10_cpu_0", {"torch-cpu-build"}),
        (MAMBA, "2.5.1", "12.4", "py3.12_cpu_0", {"torch-cpu-build"}),
        (CHANGES, "2.0.0", "11.7", "cpu_generic_py311h6f07a9f_1", {"torch-cpu-build"}),
        (CHANGES, "2.0.0", "11.7", "cuda112py311h13fee9e_200", set()),
        (INSTALLS, "2.1.0", "11.8.0", "py3.10_cuda11.8_cudnn8_0", set()),
        (COMMAND + DOWNLOADS, "1.12.1", "10.2.89", "py3.8_cuda10.2_cudnn7_0", set()),
        (MAMBA, "2.5.1", "12.4", "py3.12_cuda12.4_cudnn9.1.0_0", set()),
    ],
)
def test_the_build_of_a_plan(plan: str, torch: str, cuda: str, build: str, causes: set[str]) -> None:
    assert blamed_causes(plan.format(torch=torch, cuda=cuda, build=build)) == causes


def test_a_row_of_docker_compose_is_no_package() -> None:
    report = parse_report("vllm-1  | Loading model weights took 13.5 GB\nweb-2  | started 3 workers\n")
    assert report.stack.distributions.value is None


@each_case(
    ("name", "capability"),
    [
        ("NVIDIA GeForce RTX 509...", "12.0"),
        ("NVIDIA GeForce RTX 40...", "8.9"),
        ("NVIDIA GeForce GTX 105...", "6.1"),
        ("NVIDIA RTX A60...", "8.6"),
        ("Quadro RTX 60...", "7.5"),
        ("NVIDIA GeForce RTX 205...", "8.6"),
        ("NVIDIA GeForce RTX 20...", None),  # an RTX 2050 has 8.6, the others 7.5
        ("NVIDIA RTX 50...", None),  # an RTX 5000 Ada has 8.9, an RTX 5090 has 12.0
        ("NVIDIA GeForce ...", None),
        ("NVIDIA GeForce RTX 3090", "8.6"),
    ],
)
def test_the_compute_capability_of_a_name_that_is_cut_off(name: str, capability: str | None) -> None:
    assert compute_capability(name) == capability


def test_brackets_do_not_belong_to_a_name() -> None:
    assert clean_name("[NVIDIA GeForce RTX 4090]") == "NVIDIA GeForce RTX 4090"


@each_case(
    ("text", "kernel"),
    [
        ("Install PyTorch for Python 3.10.16 and JetPack 5.1.2\ntorch.cuda.is_available() is False", "5.10-tegra"),
        ("We run it on JetPack 6.2 with the container.\nGPU: Orin", "5.15-tegra"),
        ("The wheels are on JetPack 5.1.2 and on JetPack 6.0 the same.\nGPU: Orin", None),
        ("Jetpack<6 is needed to support ubuntu20.\nGPU: Orin", None),
    ],
)
def test_jetpack_in_a_sentence(text: str, kernel: str | None) -> None:
    assert parse_report(text).machine.system.kernel.value == kernel


@each_case(
    ("text", "is_blamed"),
    [
        ("YOLOv8 using my CPU instead of GPU\nUltralytics YOLOv8.0.196 Python-3.10.5 torch-2.2.1+cpu CPU", True),
        ("It uses the CPU rather than my GPU.\ntorch==2.3.0+cpu", True),
        ("I want to train with device=cpu.\ntorch==2.3.0+cpu", False),
        ("torch==2.3.0+cpu\nThe machine has no GPU.", False),
    ],
)
def test_a_program_on_the_cpu_instead_of_the_gpu(text: str, is_blamed: bool) -> None:
    assert ("torch-cpu-build" in blamed_causes(text)) is is_blamed


EXPORT = """name: ldm
channels:
  - pytorch
dependencies:
  - python=3.8.19=h1aa4202_0
  - pytorch::pytorch=2.3.0=py3.8_cuda11.8_cudnn8_0
  - pytorch-mutex=1.0=cuda
  - pip:
      - markdown-it-py==3.0.0
      - torch==2.2.1
      - torchvision=={vision}
      - python-dateutil==2.9.0.post0
prefix: /opt/conda
"""


@each_case(("vision", "causes"), [("0.18.0", {"torch-companion-mismatch"}), ("0.17.1", set())])
def test_pip_replaces_the_releases_of_conda_in_an_export(vision: str, causes: set[str]) -> None:
    text = EXPORT.format(vision=vision)
    report = parse_report(text)
    assert report.kinds == ("conda environment file",)
    assert report.stack.python_version.value == "3.8.19"
    assert report.stack.distributions.value["python-dateutil"].version == "2.9.0.post0"
    assert not re.search(r"==|=py|pip:", report.errors)
    assert blamed_causes(text) == causes


def test_a_name_that_ends_in_py_is_not_python() -> None:
    assert parse_report("It needs markdown-it-py==3.0.0 and torch 2.4.0").stack.python_version.value is None


@each_case(("torch", "causes"), [("2.12.1", {"torch-companion-mismatch"}), ("2.3.1", set())])
def test_a_long_list_of_installed_packages_is_read_to_its_end(torch: str, causes: set[str]) -> None:
    packages = " ".join(f"package-of-many-{number}.0.0" for number in range(1, 90))
    assert blamed_causes(f"Successfully installed {packages} torch-{torch} torchtext-0.18.0") == causes


@each_case(("vision", "causes"), [("0.13.1", {"torch-companion-mismatch"}), ("0.14.1", set())])
def test_an_environment_file_without_builds(vision: str, causes: set[str]) -> None:
    text = f"""name: zoe
channels: [pytorch, nvidia]
dependencies:
  - cuda=11.7.1
  - numpy=1.24.1
  - python=3.9.7
  - pytorch=1.13.1
  - torchvision={vision}
"""
    assert parse_report(text).stack.python_version.value == "3.9.7"
    assert blamed_causes(text) == causes
