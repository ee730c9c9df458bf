"""Reports in the logs of jobs and in the outputs of notebook cells, which record programs that work as well.

Sources: github.com/eth-cscs/cscs-docs (resource-hook.md), Ghost09a1/lkppp (comfyui.prev.log), IPL-UV/gaussflow
(freia_coupling_custom.ipynb), B664577/DocAvatar (demo_colab_remote_server.ipynb), h34v3nzc0dex/
strix-halo-llm-finetune-guide, opencv/opencv/issues/24293, sgl-project/sglang/issues/3765 (2026-11-29).
"""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import blamed_causes

from envdoctor.reports import parse_report

EXCLUSIVE = """
    | NVIDIA-SMI 535.129.03          Driver Version: 535.129.03   CUDA Version: 12.5     |
    |   0  GH200 120GB                 On  | 00000009:01:00.0 Off |                    0 |
    | N/A   24C    P0           89W / 900W |     37MiB / 97871MiB |      0%   E. Process |
"""
COMFYUI = """** Platform: Windows
** Python version: 3.12.12 (main, Oct 31 2025, 23:00:21) [MSC v.1944 64 bit (AMD64)]
pytorch version: 2.9.1+xpu
Device: xpu:0 Intel(R) Arc(TM) B580 Graphics
[Crystools ERROR] pynvml is not installed. No module named 'pynvml'
Starting server
"""
NO_DRIVER = """Using device: cpu
/home/u/.conda/envs/flow/lib/python3.8/site-packages/torch/cuda/__init__.py:52: UserWarning: CUDA initialization: \
Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from \
http://www.nvidia.com/Download/index.aspx (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:100.)
  return torch._C._cuda_getDeviceCount() > 0
"""
BUILT = """Requirement already satisfied: torch==2.7.0 in /usr/local/lib/python3.11/dist-packages (2.7.0+cu128)
Building wheels for collected packages: flash-attn
  Building wheel for flash-attn (setup.py) ... done
Successfully built flash-attn
Successfully installed flash-attn-2.8.0.post2
"""
NOT_BUILT = """Requirement already satisfied: torch==2.7.0 in /usr/local/lib/python3.11/dist-packages (2.7.0+cu128)
Building wheels for collected packages: flash-attn
  Building wheel for flash-attn (setup.py) ... error
  ERROR: Failed building wheel for flash-attn
Failed to build flash-attn
"""
REPLACED = """GPU: NVIDIA GeForce RTX 3090
conda install -c conda-forge opencv
This command replaced the CUDA-enabled pytorch with CPU-enabled-only pytroch:
"""
JIT = """INFO - flashinfer.jit: Prebuilt kernels not found, using JIT backend
PyTorch: 2.5.1+cu124
sglang: 0.4.3.post2
flashinfer: 0.2.1.post2
NVCC: Cuda compilation tools, release {nvcc}
"""
CPU_REPORT = """Collecting environment information...
PyTorch version: 2.2.2
Is debug build: False
CUDA used to build PyTorch: Could not collect
ROCM used to build PyTorch: N/A

OS: Microsoft Windows 11 Education
Python version: 3.10.11 (64-bit runtime)
Is CUDA available: False
GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4080
Nvidia driver version: 551.86
[pip3] torch==2.2.2+cpu"""


@each_case(
    ("text", "causes"),
    [
        (EXCLUSIVE, set()),
        (EXCLUSIVE + "RuntimeError: CUDA error: all CUDA-capable devices are busy", {"mig-or-compute-mode"}),
        (COMFYUI, set()),
        (NO_DRIVER, {"driver-not-loaded"}),
        (BUILT, set()),
        (NOT_BUILT, {"flash-attn-no-wheel"}),
        (REPLACED, {"torch-cpu-build"}),
        (JIT.format(nvcc="11.4, V11.4.48"), {"nvcc-torch-mismatch"}),
        (JIT.format(nvcc="12.2, V12.2.140"), set()),
    ],
)
def test_the_causes_in_a_log(text: str, causes: set[str]) -> None:
    assert blamed_causes(text) == causes


def test_uv_replaced_a_wheel_of_an_address() -> None:
    wheel = "torch==2.9.1+rocm7.1.0 (from https://repo.example/torch-2.9.1%2Brocm7.1.0-cp313-cp313-linux_x86_64.whl)"
    report = parse_report(f" + {wheel}\n + torchvision==0.24.0\n - {wheel}\n + torch==2.10.0+rocm7.1\n")
    torch = report.stack.torch.value
    assert torch is not None
    assert torch.version.value == "2.10.0+rocm7.1"


@each_case(
    "start",
    [
        "#16 {0}.013 ",
        "[1,{0}]<stderr>:",
        "stderr: ",
        "build\tRun the tests\t2025-01-03T10:00:0{0}.1234567Z ",
        "INFO 2025-01-02T03:04:0{0}.123456Z [resource.labels.task_name: workerpool0-0] ",
        "2024-07-01 12:00:00.00{0} | ERROR    | __main__:main:4{0} - ",
    ],
)
def test_a_report_in_a_log_with_a_start_of_each_line(start: str) -> None:
    lines = [start.format(number % 10) + line for number, line in enumerate(CPU_REPORT.split("\n"))]
    assert blamed_causes("\n".join(lines)) == {"torch-cpu-build"}
