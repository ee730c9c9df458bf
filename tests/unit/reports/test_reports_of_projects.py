"""Reports that projects print: detectron2, OpenMMLab, Ultralytics, WebUI, NVIDIA's images and Jetsons."""

from __future__ import annotations

import pytest
from support.cases import each_case
from support.report_samples import blamed_causes, gpus, versions

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report
from envdoctor.reports.coverage import measure_coverage
from envdoctor.reports.gpus import compute_capability

DETECTRON2 = """\
----------------------  ----------------------------------------------------------------
sys.platform            linux
Python                  3.9.7 (default, Sep 16 2021, 13:09:58) [GCC 7.5.0]
numpy                   1.21.2
detectron2              0.6 @/opt/venv/lib/python3.9/site-packages/detectron2
Compiler                GCC 9.4
CUDA compiler           CUDA {compiler}
detectron2 arch flags   8.6
DETECTRON2_ENV_MODULE   <not set>
PyTorch                 1.10.1+cu113 @/opt/venv/lib/python3.9/site-packages/torch
PyTorch debug build     False
GPU available           Yes
GPU 0,1                 NVIDIA GeForce RTX 3090 (arch=8.6)
Driver version          495.29.05
CUDA_HOME               /usr/local/cuda
Pillow                  8.4.0
torchvision             0.11.2+cu113 @/opt/venv/lib/python3.9/site-packages/torchvision
torchvision arch flags  3.5, 5.0, 6.0, 7.0, 7.5, 8.0, 8.6
cv2                     4.5.4
----------------------  ----------------------------------------------------------------
"""
OPENMMLAB = """\
sys.platform: linux
Python: 3.8.16 (default, Mar  2 2023, 03:21:46) [GCC 11.2.0]
CUDA available: True
GPU 0: {gpu}
CUDA_HOME: /usr/local/cuda
NVCC: Cuda compilation tools, release 11.7, V11.7.99
PyTorch: 1.13.1
PyTorch compiling details: PyTorch built with:
  - GCC 9.3
  - C++ Version: 201402
  - CUDA Runtime 11.7
  - NVCC architecture flags: -gencode;arch=compute_70,code=sm_70;-gencode;arch=compute_86,code=sm_86
  - CuDNN 8.5
    - Built with CuDNN 8.4
  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release, USE_CUDA=ON, USE_CUDNN=ON

MMCV CUDA Compiler: {compiler}
"""
YOLO_CHECKS = """\
Ultralytics 8.3.100 \U0001f680 Python-3.11.9 torch-{torch} {device}
Setup complete \u2705 (16 CPUs, 31.8 GB RAM, 400.1/931.5 GB disk)

OS                  Linux-6.8.0-57-generic-x86_64-with-glibc2.39
Environment         Linux
Python              3.11.9
Install             pip
RAM                 31.80 GB
CPU                 AMD Ryzen 7 5800X 8-Core Processor
GPU                 {gpu}
GPU count           2
CUDA                {cuda}

numpy               \u2705 2.1.1<=2.1.1,>=1.23.0
torch               \u2705 {torch}>=1.8.0
torchvision         \u274c 0.21.0{local}>=0.9.0
"""
WEBUI = """\
{{
    "Platform": "{platform}",
    "Torch env info": {{
        "torch_version": "2.1.2+cu121",
        "is_debug_build": "False",
        "cuda_compiled_version": "12.1",
        "os": "{system}",
        "libc_version": "N/A",
        "is_cuda_available": "{available}",
        "cuda_runtime_version": null,
        "nvidia_driver_version": {driver},
        "nvidia_gpu_models": {models},
"""


def test_detectron2() -> None:
    """All rows of the table are facts or known, and `GPU 0,1` are two GPUs."""
    report = parse_report(DETECTRON2.format(compiler="11.3"))
    assert report.kinds[0] == "collect_env (detectron2)"
    assert report.stack.python_version.value == "3.9.7"
    assert report.stack.torch.value
    assert report.stack.torch.value.version.value == "1.10.1+cu113"
    assert [gpu.compute_capability.value for gpu in gpus(report)] == ["8.6", "8.6"]
    assert report.machine.driver.version.value == "495.29.05"
    assert report.machine.cuda.nvcc_version.value == "11.3"
    assert versions(report).items() >= {"detectron2": "0.6", "torchvision": "0.11.2+cu113"}.items()
    assert report.errors == ""


@each_case(
    ("compiler", "blamed"), [("11.3", set()), ("11.1", set()), ("10.2", {"nvcc-torch-mismatch", "nvcc-too-old"})]
)
def test_detectron2_of_another_cuda(compiler: str, blamed: set[str]) -> None:
    """detectron2 is compiled on the machine, by a toolkit of torch's major version."""
    assert blamed_causes(DETECTRON2.format(compiler=compiler)) == blamed


def test_build_details_of_torch() -> None:
    """The CUDA version and the architectures of torch, without those of a line that can be cut."""
    report = parse_report(OPENMMLAB.format(gpu="NVIDIA GeForce RTX 3090", compiler="11.7"))
    torch = report.stack.torch.value
    assert torch
    assert torch.cuda.value == "11.7"
    assert torch.architectures.value == ("sm_70", "sm_86")
    cut = parse_report(OPENMMLAB.partition("  - CuDNN")[0].format(gpu="NVIDIA GeForce RTX 3090"))
    assert cut.stack.torch.value
    assert cut.stack.torch.value.architectures.value is None


@each_case(
    ("gpu", "compiler", "blamed"),
    [
        ("NVIDIA GeForce RTX 3090", "11.7", set()),
        ("Tesla V100-SXM2-16GB", "n/a", set()),
        ("NVIDIA GeForce RTX 4090", "11.7", set()),
        ("NVIDIA GeForce RTX 3090", "not available", {"ext-cpu-build"}),
        ("NVIDIA GeForce RTX 5090", "11.7", {"gpu-arch-not-in-build"}),
    ],
)
def test_openmmlab(gpu: str, compiler: str, blamed: set[str]) -> None:
    """The architectures of the details are compared with the GPU; code for 8.6 runs on 8.9."""
    assert blamed_causes(OPENMMLAB.format(gpu=gpu, compiler=compiler)) == blamed


def test_printed_dictionary() -> None:
    """The members of an OrderedDict are the lines of the report."""
    report = parse_report(
        "print(collect_env()):\nOrderedDict([('sys.platform', 'linux'), ('Python', '3.10.6 (main) [GCC 11.2.0]'), "
        "('CUDA available', False), ('PyTorch', '2.1.0'), ('PyTorch compiling details', 'PyTorch built with:\\n"
        "  - GCC 11.2\\n  - Build settings: BLAS_INFO=open, USE_CUDA=0, USE_MKL=OFF\\n'), ('MMEngine', '0.8.4')])"
    )
    assert report.stack.python_version.value == "3.10.6"
    assert report.stack.cuda_available.value is False
    assert report.stack.torch.value
    assert report.stack.torch.value.cuda.state == "absent"


@pytest.mark.parametrize("text", ["OrderedDict([('loss', 0.1), ('step'", "{'PyTorch': [[[[", "OrderedDict([(1)])"])
def test_no_dictionary_of_a_report(text: str) -> None:
    """Other and incomplete dictionaries remain text."""
    assert parse_report(f"nvcc: 12.4\n{text}").errors.endswith(text)


def test_yolo_checks() -> None:
    """Packages with a mark, the name of the GPU without its memory, and the CUDA version of torch."""
    report = parse_report(
        YOLO_CHECKS.format(
            torch="2.6.0+cu126",
            local="+cu126",
            device="CUDA:0 (NVIDIA GeForce RTX 3060, 12288MiB)",
            gpu="NVIDIA GeForce RTX 3060, 12288MiB",
            cuda="12.6",
        )
    )
    assert [gpu.name.value for gpu in gpus(report)] == ["NVIDIA GeForce RTX 3060"] * 2
    assert report.stack.cuda_available.value is True
    assert versions(report) == {
        "ultralytics": "8.3.100", "numpy": "2.1.1", "torch": "2.6.0+cu126", "torchvision": "0.21.0+cu126"
    }  # fmt: skip
    assert report.machine.system.glibc.value == "2.39"


@each_case(
    ("torch", "device", "gpu", "cuda", "blamed"),
    [
        (
            "2.6.0+cu126",
            "CUDA:0 (NVIDIA GeForce RTX 3060, 12288MiB)",
            "NVIDIA GeForce RTX 3060, 12288MiB",
            "12.6",
            "",
        ),
        (
            "2.6.0+cu126",
            "CPU (AMD Ryzen 7 5800X)",
            "NVIDIA GeForce RTX 5070, 12227MiB",
            "12.6",
            "gpu-arch-not-in-build",
        ),
        ("2.6.0+cpu", "CPU (AMD Ryzen 7 5800X)", "None", "None", ""),
    ],
)
def test_causes_in_yolo_checks(torch: str, device: str, gpu: str, cuda: str, blamed: str) -> None:
    """A build without CUDA is a fault only on a machine with a GPU."""
    text = YOLO_CHECKS.format(torch=torch, local=torch.removeprefix("2.6.0"), device=device, gpu=gpu, cuda=cuda)
    assert blamed_causes(text) == ({blamed} if blamed else set())


@each_case(
    ("text", "python", "torch", "count"),
    [
        ("YOLOv5 \U0001f680 v7.0-56-gc0ca1d2 Python-3.10.9 torch-1.13.1+cpu CPU", "3.10.9", "1.13.1+cpu", 0),
        (
            "YOLOR \U0001f680 v0.1-115-g072f76c torch 1.12.1+cu113 CUDA:0 (Tesla T4, 15109.75MB)",
            None,
            "1.12.1+cu113",
            1,
        ),
    ],
)
def test_banner_of_yolo(text: str, python: str | None, torch: str, count: int) -> None:
    """The banner of YOLOv5 to YOLOv7."""
    report = parse_report(text)
    assert report.stack.python_version.value == python
    assert report.stack.torch.value
    assert report.stack.torch.value.version.value == torch
    assert len(report.machine.gpus.value or ()) == count


def test_build_without_cuda_of_a_gpu_that_is_not_detected() -> None:
    """The sentence shows that the machine has a GPU; without it the CPU build is no fault."""
    banner = "YOLOv5 \U0001f680 v7.0-56-gc0ca1d2 Python-3.10.9 torch-1.13.1+cpu CPU"
    assert blamed_causes(f"my GPU is not detected\n{banner}") == {"torch-cpu-build"}
    assert blamed_causes(f"training is fine\n{banner}") == set()


@each_case(
    ("system", "driver", "models", "available", "blamed"),
    [
        ("Microsoft Windows 11 Pro", '"552.22"', '"GPU 0: NVIDIA GeForce RTX 4070"', "True", set()),
        ("Ubuntu 22.04.4 LTS (x86_64)", '"550.54.14"', r'"GPU 0: Tesla T4\nGPU 1: Tesla T4"', "True", set()),
        ("Microsoft Windows 11 Pro", "null", "null", "False", {"no-nvidia-gpu"}),
        (
            "Microsoft Windows 11 Pro",
            '"552.22"',
            '"GPU 0: NVIDIA GeForce RTX 5080"',
            "True",
            {"gpu-arch-not-in-build"},
        ),
    ],
)
def test_webui(system: str, driver: str, models: str, available: str, blamed: set[str]) -> None:
    """WebUI prints the record of collect_env as JSON, with null where nothing was collected."""
    platform = "Windows-10-10.0.22631-SP0" if "Windows" in system else "Linux-6.5.0-28-generic-x86_64-with-glibc2.35"
    text = WEBUI.format(system=system, driver=driver, models=models, available=available, platform=platform)
    report = parse_report(text)
    assert report.kinds[0] == "collect_env (PyTorch)"
    assert len(report.machine.gpus.value or ()) == models.count("GPU ")
    assert blamed_causes(text) == blamed


@each_case(
    ("text", "kernel"),
    [
        ("Board: Jetson AGX Orin\nJetPack: 6.2", "5.15-tegra"),
        ("* **JetPack Version:** 5.1.3\n* **L4T Release:** R35.5.0", "5.10-tegra"),
        ("# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic", "5.15-tegra"),
        ("JetPack: 5.1\nJetPack: 6.0", None),
        ("I read about JetPack 5 in the manual", None),
    ],
)
def test_releases_of_jetson(text: str, kernel: str | None) -> None:
    """JetPack and L4T give the kernel, unless the text names several."""
    assert parse_report(text).machine.system.kernel.value == kernel


def test_driver_in_banners_of_images() -> None:
    """The kernel driver of the host, not the driver of the forward-compatibility package."""
    enabled = (
        "NOTE: CUDA Forward Compatibility mode ENABLED.\n"
        "  Using CUDA 12.9 driver version 575.57.08 with kernel driver version 550.90.07.\n"
    )
    assert parse_report(enabled).machine.driver.version.value == "550.90.07"
    unavailable = (
        "ERROR: This container was built for NVIDIA Driver Release 575.51 or later, but\n"
        "       version 550.90.07 was detected and compatibility mode is UNAVAILABLE.\n"
    )
    assert parse_report(unavailable).machine.driver.version.value == "550.90.07"


def test_torch_next_to_the_torch_of_a_checkpoint() -> None:
    """pyannote prints both; the installed one is the second, with its CUDA version."""
    report = parse_report(
        "Model was trained with pyannote.audio 0.0.1, yours is 3.3.2. Bad things might happen.\n"
        "Model was trained with torch 1.10.0+cu102, yours is 2.5.1+cu121. Bad things might happen.\n"
    )
    torch = report.stack.torch.value
    assert torch
    assert (torch.version.value, torch.cuda.value) == ("2.5.1+cu121", "12.1")


@each_case(
    ("text", "blamed"),
    [
        (
            "dependency conflict\ngradio requires starlette<1.0\nfastapi-mcp requires starlette>=1.0",
            {"dependency-pin-violated"},
        ),
        (
            "\u7248\u672c\u51b2\u7a81\uff1aA \u8981\u6c42 numpy<2\uff0cB \u8981\u6c42 numpy>=2.1",
            {"dependency-pin-violated"},
        ),
        ("no conflict: A requires numpy<2, B requires numpy>=1.24", set()),
        ("A requires numpy<2, B requires numpy>=2.1", set()),
    ],
)
def test_ranges_without_a_common_release(text: str, blamed: set[str]) -> None:
    """Two ranges of a package are a conflict if the text reports one and no release is in both."""
    assert blamed_causes(f"torch 2.8.0, Python 3.12\n{text}") == blamed


@each_case(
    ("name", "capability"),
    [
        ("GRID V100D-32C", "7.0"),
        ("GRID V100DX-16Q", "7.0"),
        ("NVIDIA A100D-80C", "8.0"),
        ("NVIDIA H100XM-80C", "9.0"),
        ("NVIDIA H100L-94C", "9.0"),
        ("GRID T4-16Q", "7.5"),
        ("GRID RTX6000-24Q", "7.5"),
        ("NVIDIA RTXA6000-48Q", "8.6"),
        ("NVIDIA RTX6000-Ada-48Q", "8.9"),
        ("Tesla V100-SXM2-32GB", "7.0"),
        ("NVIDIA L40S", "8.9"),
    ],
)
def test_names_of_virtual_gpus(name: str, capability: str) -> None:
    """A profile of a virtual GPU has the letters of the board and the memory in its name."""
    assert compute_capability(name) == capability


def test_versions_and_gpus_of_short_sentences() -> None:
    """A GeForce without RTX in a list, and a version after one equals sign."""
    report = parse_report("NVIDIA GeForce 5070 Ti\nPython 3.10\npytorch 2.9.0+cu128\ntorchvision 0.24.0+cu128")
    assert [gpu.name.value for gpu in report.machine.gpus.value or ()] == ["RTX 5070 Ti"]
    text = "PyTorch: 2.5.1\nGPU: V100\nAfter I installed vllm=0.7.2, when I type python -m xformers.info, it fails"
    assert versions(parse_report(text))["vllm"] == "0.7.2"


def test_lines_with_the_name_of_a_container_are_read() -> None:
    """A log message after the name of a service is no unread fact."""
    report = parse_report(
        "vllm-1  | NVIDIA GeForce RTX 5070 Ti with CUDA capability sm_120 is not compatible with it.\n"
        "vllm-1  | The current PyTorch install supports CUDA capabilities sm_80 sm_90.\n"
    )
    assert measure_coverage(report).unread == ()


def test_general_advice_has_no_placeholders() -> None:
    """The advice names the package, and the text after the bar where a value is unknown."""
    texts = (
        "conflict: A requires starlette<1.0, B requires starlette>=1.0\ntorch 2.8.0, Python 3.12",
        "vllm 0.7.3 requires torch==2.5.1, but you have torch 2.4.0+cu124 which is incompatible.",
    )
    for text in texts:
        found = [each for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")]
        assert found
        assert not [each.fix for each in found if "{" in each.fix or each.fix.startswith("llm ")]


@each_case(
    ("text", "count"),
    [
        ("\u4f7f\u75288\u5f20A100 80GB\uff0ctorch 2.5.1", 8),
        ("4\u5361A800\u8bad\u7ec3\uff0ctorch 2.5.1", 4),
        ("\u663e\u5361\uff1a\u4e24\u5757rtx 3090\n\u9a71\u52a8\uff1a550.54.14", 2),
        ("\u4e00\u5f20A100\uff0ctorch 2.5.1", 1),
    ],
)
def test_chinese_numbers_of_gpus(text: str, count: int) -> None:
    """A number before a measure word."""
    assert len(gpus(parse_report(text))) == count


def test_install_command_after_chinese() -> None:
    """A command need not follow a space."""
    report = parse_report(
        "\u663e\u5361\uff1aRTX 5090\n\u901a\u8fc7\u547d\u4ee4\u5b89\u88c5pip install torch==2.6.0 "
        "--index-url https://download.pytorch.org/whl/cu124"
    )
    assert report.stack.torch.value
    assert report.stack.torch.value.version.value == "2.6.0"
