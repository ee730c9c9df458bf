"""Sample reports for the parser tests, modelled on real ones, and helpers that read the parsed records."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec

from envdoctor.commands import report_findings
from envdoctor.core.records import Fact, Gpu
from envdoctor.reports import Report, parse_report
from envdoctor.rules import evaluate

PYTORCH = """\
root@container:/srv# python3 collect_env.py
Collecting environment information...
PyTorch version: 2.4.0+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 20.04.6 LTS (x86_64)
GCC version: (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0
Clang version: Could not collect
Libc version: glibc-2.31

Python version: 3.10.14 | packaged by conda-forge | (main, Apr  6 2024, 18:45:05) [GCC 9.4.0] (64-bit runtime)
Python platform: Linux-5.19.0-1010-nvidia-x86_64-with-glibc2.29
Is CUDA available: True
CUDA runtime version: 12.4.131
GPU models and configuration:
GPU 0: NVIDIA A100 80GB PCIe
  MIG 3g.40gb     Device  0:
  MIG 1g.10gb     Device  1:
GPU 1: NVIDIA GeForce RTX 3090

Nvidia driver version: 550.54.14
cuDNN version: Probably one of the following:
/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0
HIP runtime version: N/A
Is XNNPACK available: True

CPU:
Architecture:                    x86_64
Byte Order:                      Little Endian
CPU(s):                          80
Model name:                      Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz
NUMA node0 CPU(s):               0-39
Vulnerability Spectre v2:        Mitigation; IBRS

Versions of relevant libraries:
[pip3] numpy==1.26.4
[pip3] Flash_Attn==2.6.3
[conda] pytorch                   2.3.0           py3.10_cuda12.1_cudnn8.9.2_0    pytorch
[conda] mkl                       2023.1.0         h213fc3f_46344
[conda] openssl                   1.1.1w           h7f8727e_0
"""

VLLM = """\
INFO 06-12 17:10:51 [__init__.py:244] Automatically detected platform cuda.
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
GCC version                  : Could not collect
Clang version                : Could not collect
Libc version                 : glibc-2.35

==============================
       PyTorch Info
==============================
PyTorch version              : 2.7.0+cu128
CUDA used to build PyTorch   : 12.8
ROCM used to build PyTorch   : N/A

==============================
      Python Environment
==============================
Python version               : 3.12.11 (main, Jun  4 2025, 08:56:18) [GCC 11.4.0] (64-bit runtime)
Python platform              : Linux-6.8.0-60-generic-x86_64-with-glibc2.35

==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
CUDA runtime version         : Could not collect
GPU models and configuration : GPU 0: NVIDIA GeForce RTX 5090
Nvidia driver version        : 575.57.08

==============================
Versions of relevant libraries
==============================
[pip3] torch==2.7.0+cu128

==============================
         vLLM Info
==============================
vLLM Version                 : 0.9.2rc2.dev39+gc18b3b8e8 (git sha: c18b3b8e8)
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
GPU Topology:
  \tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tSYS\t0-31\t0
GPU1\tNV12\t X \tSYS\t0-31\t0
NIC0\tSYS\tSYS\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

==============================
     Environment Variables
==============================
NVIDIA_VISIBLE_DEVICES=all
NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=unknown,driver>=535,driver<536
LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/cuda/lib64
HF_TOKEN=hf_planted
HTTPS_PROXY=http://user:planted@proxy:3128
CUDA_VISIBLE_DEVICES=1
"""

TABLE = """\
Sat Nov 21 05:03:25 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100 80GB PCIe          On  |   00000000:CA:00.0 Off |                   On |
| N/A   35C    P0             64W /  300W |     176MiB /  81920MiB |     N/A   E. Process |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GeForce RTX 3090        Off |   00000000:CB:00.0 Off |                    2 |
| 30%   35C    P8             17W /  350W |      11MiB /  24576MiB |      0%   Prohibited |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|==================+==================================+===========+=======================|
|  0    1   0   0  |              87MiB / 40192MiB    | 42      0 |  3   0    2    0    0 |
|                  |                 0MiB / 65535MiB  |           |                       |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    1   N/A  N/A            1234      C   python3                               10240MiB |
+-----------------------------------------------------------------------------------------+
"""

ACCELERATE = """\
- `Accelerate` version: 1.2.1
- Platform: Linux-5.15.0-1048-aws-x86_64-with-glibc2.31
- `accelerate` bash location: /opt/conda/bin/accelerate
- Python version: 3.10.16
- Numpy version: 2.2.1
- PyTorch version (GPU?): 2.5.1+cu124 (True)
- System RAM: 1121.80 GB
- GPU type: NVIDIA A100-SXM4-80GB
- `Accelerate` default config:
        - compute_environment: LOCAL_MACHINE
        - num_processes: 8
"""
TRANSFORMERS = """\
Copy-and-paste the text below in your GitHub issue and FILL OUT the two last points.

- `transformers` version: 4.57.1
- Platform: Linux-5.15.0-1048-aws-x86_64-with-glibc2.31
- Python version: 3.12.2
- Huggingface_hub version: 0.36.0
- Accelerate config:    not found
- DeepSpeed version: not installed
- PyTorch version (accelerator?): 2.8.0+cpu (NA)
- Tensorflow version (GPU?): not installed (NA)
- Using distributed or parallel set-up in script?: <fill in>
"""
TRL = """\
- Platform: Linux-5.15.0-1048-aws-x86_64-with-glibc2.31
- Python version: 3.12.2
- TRL version: 0.16.0.dev0+5975879
- PyTorch version: 2.6.0
- CUDA device(s): NVIDIA H100 80GB HBM3, NVIDIA H100 80GB HBM3
- Transformers version: 4.47.0
- HF Hub version: 0.25.0
- Liger-Kernel version: not installed
- vLLM version: 0.7.3
"""


def every_fact(value: Any) -> list[Fact[Any]]:
    """All facts in a record, recursively."""
    if isinstance(value, Fact):
        return [value, *every_fact(value.value)]
    if isinstance(value, msgspec.Struct):
        return [fact for name in value.__struct_fields__ for fact in every_fact(getattr(value, name))]
    return [fact for item in value for fact in every_fact(item)] if isinstance(value, tuple) else []


def gpus(report: Report) -> tuple[Gpu, ...]:
    """The GPUs of a report."""
    assert report.machine.gpus.value
    return report.machine.gpus.value


def versions(report: Report) -> dict[str, str]:
    """The versions of a report's packages by name."""
    return {name: distribution.version for name, distribution in (report.stack.distributions.value or {}).items()}


def blamed_causes(text: str) -> set[str]:
    """The causes of the errors and warnings in a report; the search for the versions of remedies is left out."""
    with patch.object(report_findings, "evaluate_with_versions", evaluate):
        found = report_findings.diagnose_report(parse_report(text))
    return {each.cause for each in found if each.status in ("error", "warning")}
