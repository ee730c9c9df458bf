"""Reports in which torch finds no GPU: the state of the driver, containers, and builds without CUDA."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import blamed_causes

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report


@each_case(
    ("text", "cause"),
    [
        (
            (
                "ii  libnvidia-compute-535:amd64  535.183.01-0ubuntu0.22.04.1  amd64  NVIDIA libcompute\n"
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024"
            ),
            "nvml-driver-library-mismatch",
        ),
        ("$ lsmod | grep nvidia\n$ uname -r\n6.8.0-79-generic", "driver-not-loaded"),
        ("nvidia/550.144.03, 6.8.0-78-generic, x86_64: installed\n6.8.0-79-generic", "driver-not-loaded"),
        ("\tKernel driver in use: nouveau\n\tKernel modules: nvidiafb, nouveau", "driver-not-loaded"),
    ],
)
def test_state_of_the_driver(text: str, cause: str) -> None:
    assert cause in blamed_causes(text)


@each_case(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01\nlibcuda.so.535.183.01",
        "$ lsmod | grep nvidia\nnvidia_uvm           2076672  0\nnvidia              61767680  2 nvidia_uvm",
        "nvidia/550.144.03, 6.8.0-79-generic, x86_64: installed\n6.8.0-79-generic",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01\n/usr/local/cuda/compat/libcuda.so.575.57.08",
    ],
)
def test_a_loaded_driver_is_not_reported(text: str) -> None:
    assert blamed_causes(text) == set()


START = "services:\n  llm:\n    image: registry.local/llm:1\n"
PRINTED = '$ python3 -c "import torch; print(torch.cuda.is_available())"\nFalse\n'


@each_case(
    ("text", "is_reported"),
    [
        (START + PRINTED, True),
        ("docker run --rm -it registry.local/llm:1 bash\n" + PRINTED, True),
        (START + "    runtime: nvidia\n" + PRINTED, False),
        (START + PRINTED.replace("False", "True"), False),
        ("docker run --rm --gpus all -it registry.local/llm:1 bash\n" + PRINTED, False),
    ],
)
def test_a_container_without_a_request_for_gpus(text: str, is_reported: bool) -> None:
    assert ("DRV015" in {each.id for each in diagnose_report(parse_report(text))}) == is_reported


FINDS_NONE = "torch 2.6.0+cu124, torch.cuda.is_available() is False"


@each_case(
    ("text", "rules"),
    [
        (f"inside the pod {FINDS_NONE}. the node has 4 L40S", {"DRV008": "error"}),
        (f"in my docker container: {FINDS_NONE}, a 4070 in the host", {"DRV008": "error"}),
        (f"in the container it works. On the host {FINDS_NONE}, a 4070", {"DRV009": "warning"}),
        (f"a desktop with a 4070, {FINDS_NONE}", {"DRV009": "warning"}),
        (f"a desktop with a 4070, driver 550.120, {FINDS_NONE}", {"DRV009": "error"}),
        ("windows 11, torch 2.6.0+cu124\nNo module named 'triton'", {"TEXT-platform-no-wheel": "error"}),
    ],
)
def test_a_cuda_build_that_finds_no_gpu_is_no_cpu_build(text: str, rules: dict[str, str]) -> None:
    found = {each.id: each.status for each in diagnose_report(parse_report(text))}
    assert {name: status for name, status in found.items() if status in ("error", "warning")} == rules


TPU = """INFO 04-02 18:30:26 [__init__.py:239] Automatically detected platform tpu.
PyTorch version: 2.8.0
CUDA used to build PyTorch: {cuda}
OS: Ubuntu 22.04.5 LTS (x86_64)
Python version: 3.11.11 (64-bit runtime)
Is CUDA available: False
GPU models and configuration: No CUDA
Versions of relevant libraries:
[pip3] nvidia-cudnn-cu12==9.1.0.70
[pip3] nvidia-nvjitlink-cu12==12.4.127
[pip3] nvidia-nccl-cu12==2.21.5
[pip3] torch==2.8.0
[pip3] triton==3.2.0
"""


@each_case(("cuda", "expected"), [("None", False), ("12.8", True)])
def test_libraries_of_cuda_count_only_for_a_torch_for_cuda(cuda: str, expected: bool) -> None:
    libraries = {"cuda-lib-shadowed", "nccl-lib-mismatch", "dependency-pin-violated"}
    assert bool(libraries & set(blamed_causes(TPU.format(cuda=cuda)))) is expected
