"""Lines that follow from another error, or that a tool prints while it works, do not get a cause."""

from __future__ import annotations

from support.cases import each_case
from support.explained import best_cause

SCHEDULER = (
    "[TP0] Scheduler hit an exception: Traceback (most recent call last):\nValueError: 14784 is not divisible\n"
)
FRAME = (
    'File "/usr/lib/python3.10/site-packages/sglang/srt/managers/tp_worker.py", line 441, in step\nTypeError: bad\n'
)
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
GGML = "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\n"
NO_GPU = "warning: no usable GPU found, --gpu-layers option will be ignored\n"
BUSY = "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
NO_NVCC = "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\n"
WITHOUT = "warning: one possible reason is that llama.cpp was compiled without GPU support\n"
XET = (
    "Xet Storage is enabled for this repo, but the 'hf_xet' package is not installed. Falling back to regular HTTP "
    "download. For better performance, install the package with: `pip install hf_xet`\n"
)
SHADOW = (
    "ImportError: cannot import name 'load' from partially initialized module '{}' "
    "(most likely due to a circular import) (/home/ada/{}.py)\n"
)
INSTALLED = "Requirement already satisfied: peft in /opt/v/lib/python3.11/site-packages (0.17.1)\n"
ROCR = "$ ROCR_VISIBLE_DEVICES=0 llama-bench -m model.gguf\n"


def first_cause(text: str) -> str:
    """The first cause; empty if there is none that the text decides."""
    best = best_cause(text)
    return best.cause if best else ""


@each_case(
    ("text", "cause"),
    [
        (SCHEDULER + "Killed\n", ""),  # SGLang ends its own processes
        (FRAME + "\nKilled\n", ""),
        ("Loading checkpoint shards: 67%\nKilled\n", "host-oom-runtime"),
        ("[TP0] Load weight begin. avail mem=9.69 GB\nKilled\n", "host-oom-runtime"),
        ("Exception: Capture cuda graph failed: mat1 and mat2 shapes cannot be multiplied\n", ""),
        ("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB\n", "gpu-oom"),
        (ILLEGAL + BUSY, "illegal-memory-access"),
        (BUSY, "mig-or-compute-mode"),
        ("=========     Host Frame:clone3 in ../sysdeps/unix/sysv/linux/x86_64/clone3.S:78 [0x1160db]\n", ""),
        ("#9  0x00007f8a in clone3 () from /lib64/libc.so.6\n", ""),
        ("clone3: Operation not permitted\n", "container-seccomp"),
        ("> vcruntime140d.dll!_CxxThrowException(void * pExceptionObject) Line 82\n", ""),
        ("The code execution cannot proceed because VCRUNTIME140_1.dll was not found.\n", "vc-runtime-missing"),
        ("It dumps core when compiled with cuda. It works fine when compiled without cuda.\n", ""),
        (ROCR, ""),
        (ROCR + "RuntimeError: HIP error: invalid device ordinal\n", "rocr-visible-devices"),
        ("docker run --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 image\nThe request times out.\n", ""),
        ("rdma_context.cpp:203] Failed to register memory 0x7c1cda000000: Bad address [14]\n", "nccl-interface"),
        ("Failed to register memory 0x7c1cda000000: Cannot allocate memory [12]\n", "ulimit-too-low"),
        ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>\nThe server is not running.\n", ""),
        (GGML + NO_GPU + WITHOUT, "driver-too-old"),
        (NO_GPU, "ext-cpu-build"),
        ("/usr/bin/ld: cannot find -lstdc++: No such file or directory\n", "compiler-missing"),
        (XET + "model.safetensors: 100%\n", ""),
        (XET + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "gpu-oom"),
        (SHADOW.format("datasets", "datasets"), "wrong-python-env"),
        (SHADOW.format("utils", "utils"), ""),  # two modules of the program import each other
        (SHADOW.format("datasets", "site-packages/datasets/__init__"), ""),
        (INSTALLED + "ModuleNotFoundError: No module named 'peft'\n", "wrong-python-env"),
        (INSTALLED + "ModuleNotFoundError: No module named 'lab'\n", "module-of-program-missing"),
        ("Name: lab\nNamespace: web\nModuleNotFoundError: No module named 'lab'\n", "module-of-program-missing"),
        (NO_NVCC + "Python: 3.11.10 (main)\nCUDA available: True\n", ""),
        (NO_NVCC + "ninja: build stopped: subcommand failed.\n", "cuda-home-missing"),
    ],
)  # fmt: skip
def test_a_consequence_is_not_the_cause(text: str, cause: str) -> None:
    assert first_cause(text) == cause
