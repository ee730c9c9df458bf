"""Pasted output of env commands of libraries and of common shell commands."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import ACCELERATE, TRANSFORMERS, TRL, gpus, versions

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.core.records import Filesystem
from envdoctor.reports import parse_report


@each_case(
    ("text", "kind", "torch", "count", "packages"),
    [
        (ACCELERATE, "accelerate env", ("2.5.1+cu124", True), 1, {"accelerate": "1.2.1", "numpy": "2.2.1"}),
        (
            TRANSFORMERS,
            "transformers env",
            ("2.8.0+cpu", False),
            0,
            {"transformers": "4.57.1", "huggingface-hub": "0.36.0"},
        ),
        (
            TRL,
            "trl env",
            ("2.6.0", None),
            2,
            {"trl": "0.16.0.dev0+5975879", "transformers": "4.47.0", "huggingface-hub": "0.25.0", "vllm": "0.7.3"},
        ),
    ],
)
def test_env_commands_of_hugging_face(
    text: str, kind: str, torch: tuple[str, bool | None], count: int, packages: dict[str, str]
) -> None:
    version, available = torch
    report = parse_report(text)
    assert report.kinds == (kind,)
    assert report.errors == ""
    assert report.stack.torch.value
    assert report.stack.torch.value.version.value == version
    assert report.stack.cuda_available.value is available
    assert len(report.machine.gpus.value or ()) == count
    assert versions(report) == packages | {"torch": version}
    assert report.machine.system.kernel.value == "5.15.0-1048-aws"


def test_ds_report() -> None:
    report = parse_report(
        "--------------------------------------------------\nDeepSpeed C++/CUDA extension op report\n"
        "ninja .................. [OKAY]\nop name ................ installed .. compatible\n"
        "cpu_adam ............... [NO] ....... [OKAY]\n"
        " [WARNING]  sparse_attn requires a torch version >= 1.5 and < 2.0 but detected 2.3\n"
        " [WARNING]  using untested triton version (2.3.1), only 1.0.0 is known to be compatible\n"
        "DeepSpeed general environment info:\n"
        "torch install path ............... ['/opt/conda/lib/python3.11/site-packages/torch']\n"
        "torch version .................... 2.3.0+cu121\n"
        "deepspeed info ................... 0.15.5+46d7d0d1, 46d7d0d1, patch-1\n"
        "torch cuda version ............... 12.1\nnvcc version ..................... 12.0\n"
        "shared memory (/dev/shm) size .... 64.00 MB\n"
    )
    assert report.kinds == ("ds_report",)
    assert "untested triton" in report.errors
    assert not [finding for finding in diagnose_report(report) if finding.cause == "library-too-old"]
    assert versions(report) == {"deepspeed": "0.15.5+46d7d0d1", "torch": "2.3.0+cu121"}
    assert report.machine.cuda.nvcc_version.value == "12.0"
    assert report.machine.storage.places.value
    assert report.machine.storage.places.value["shm"].total == 64 << 20
    missing = parse_report(
        "nvcc version .....................  [FAIL] cannot find CUDA_HOME via torch.utils.cpp_extension\n"
    )
    assert missing.machine.cuda.nvcc.state == "absent"


def test_sglang_check_env() -> None:
    report = parse_report(
        "root@d0bc665ab720:/sgl-workspace/sglang# python3 -m sglang.check_env\n"
        "Python: 3.12.3 (main, Jan 22 2026, 20:57:42) [GCC 13.3.0]\nCUDA available: True\nGPU 0,1: NVIDIA B200\n"
        "GPU 0,1 Compute Capability: 10.0\nCUDA_HOME: /usr/local/cuda\n"
        "NVCC: Cuda compilation tools, release 12.9, V12.9.86\nCUDA Driver Version: 580.95.05\nPyTorch: 2.9.1+cu129\n"
        "sglang: 0.5.5\nvllm: Module Not Found\nzmq: 27.0\n"
    )
    assert report.kinds == ("sglang check_env",)
    assert report.errors == ""
    assert [gpu.compute_capability.value for gpu in gpus(report)] == ["10.0", "10.0"]
    assert (report.machine.cuda.nvcc.value, report.machine.cuda.nvcc_version.value) == (
        "/usr/local/cuda/bin/nvcc",
        "12.9.86",
    )
    assert versions(report) == {"pyzmq": "27.0", "sglang": "0.5.5", "torch": "2.9.1+cu129"}
    assert report.stack.uses.value == ("sglang",)
    assert report.machine.system.container.value == "docker"


def test_output_of_common_commands() -> None:
    report = parse_report(
        "$ uname -a\nLinux vm 6.8.0-45-generic #45-Ubuntu SMP x86_64 x86_64 x86_64 GNU/Linux\n"
        "$ ldd --version | head -1\nldd (Ubuntu GLIBC 2.39-0ubuntu8.9) 2.39\n"
        'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\n'
        "$ nvcc --version\nnvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 11.5, V11.5.119\n"
        "$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\ntmpfs            64M     0   64M   0% /dev/shm\n"
        "overlay         100G   98G  2.0G  98% /\n/dev/loop1       64M   64M     0 100% /snap/core20/2318\n"
        "$ free -h\n               total        used        free      shared  buff/cache   available\n"
        "Mem:           125Gi        12Gi       100Gi       1.0Gi        13Gi       112Gi\n"
        "$ ulimit -n\n1024\nmax locked memory           (kbytes, -l) 64\n"
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
        ">>> import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())\n"
        "2.6.0+cu124 12.4 False\n"
    )
    machine, stack = report.machine, report.stack
    assert report.errors == ""
    assert (machine.system.kernel.value, machine.system.glibc.value) == ("6.8.0-45-generic", "2.39")
    assert machine.system.os.value == "Ubuntu 24.04.3 LTS"
    assert machine.cuda.nvcc_version.value == "11.5.119"
    assert machine.storage.places.value == {
        "shm": Filesystem("/dev/shm", 64 << 20, 64 << 20, "tmpfs"),
        "root": Filesystem("/", 100 << 30, 2 << 30, "overlay"),
    }
    assert (machine.memory.total.value, machine.memory.available.value) == (125 << 30, 112 << 30)
    assert (machine.limits.open_files.value, machine.limits.locked_memory.value) == (1024, 64 << 10)
    assert (machine.driver.version.value, machine.driver.module.value) == ("580.159.04", "open")
    assert stack.torch.value
    assert (stack.torch.value.version.value, stack.cuda_available.value) == ("2.6.0+cu124", False)


def test_openmmlab_collect_env_in_a_log() -> None:
    report = parse_report(
        "2024/10/15 13:48:48 - mmengine - INFO - \nSystem environment:\n"
        "    sys.platform: linux\n"
        "    Python: 3.8.18 | packaged by conda-forge | (default) [GCC 12.3.0]\n    CUDA available: True\n"
        "    MUSA available: False\n    GPU 0: NVIDIA GeForce RTX 3080 Ti\n    CUDA_HOME: /usr/local/cuda\n"
        "    NVCC: Cuda compilation tools, release 11.8, V11.8.89\n"
        "    GCC: gcc (Ubuntu 7.5.0) 7.5.0\n    PyTorch: 1.8.0+cu111\n"
    )
    assert report.kinds == ("collect_env (OpenMMLab)",)
    assert report.stack.uses.value is None
    assert (report.stack.python_version.value, report.machine.cuda.nvcc_version.value) == ("3.8.18", "11.8.89")
    logged = parse_report(
        "2022-11-11 08:08:37,084 - mmdeploy - INFO - CUDA available: True\n"
        "10/07 17:11:55 - mmengine - INFO - GPU 0,1: NVIDIA GeForce RTX 3080\n"
        "INFO:root:NVCC: Cuda compilation tools, release 11.2, V11.2.152\n"
    )
    assert [gpu.name.value for gpu in gpus(logged)] == ["NVIDIA GeForce RTX 3080"] * 2
    assert logged.machine.cuda.nvcc_version.value == "11.2.152"


def test_llamafactory_env_with_gpu_type_and_number() -> None:
    report = parse_report(
        "- `llamafactory` version: 0.9.3.dev0\n- Platform: Linux-6.8.0-59-generic-x86_64-with-glibc2.35\n"
        "- Python version: 3.10.0\n- PyTorch version: 2.3.0+cu121 (GPU)\n- Transformers version: 4.49.0\n"
        "- TRL version: 0.9.6\n- GPU type: NVIDIA A100-SXM4-80GB\n- GPU number: 8\n- GPU memory: 79.25GB\n"
    )
    assert report.kinds == ("LlamaFactory env",)
    assert [gpu.name.value for gpu in gpus(report)] == ["NVIDIA A100-SXM4-80GB"] * 8
    assert report.stack.cuda_available.value is True
    assert versions(report)["llamafactory"] == "0.9.3.dev0"
    assert report.errors == ""


@each_case(
    ("expression", "printed", "fact"),
    [
        ("torch.version.cuda", "12.8", ("cuda", "12.8")),
        ("torch.__version__, torch.version.cuda", "2.8.0 None", ("cuda", None)),
        ("torch.cuda.get_arch_list()", "['sm_80', 'sm_90a', 'compute_120']",
         ("architectures", ("sm_80", "sm_90a", "compute_120"))),
        ("torch.cuda.get_device_capability(0)", "(9, 0)", ("compute_capability", "9.0")),
        ("torch.cuda.get_device_name(0)", "NVIDIA H200", ("name", "NVIDIA H200")),
        ("torch.cuda.is_available()", "True", ("available", True)),
        ("transformers.__version__", "4.57.1", ("transformers", "4.57.1")),
    ],
)  # fmt: skip
def test_values_that_python_prints(expression: str, printed: str, fact: tuple[str, object]) -> None:
    report = parse_report(f">>> import torch; print({expression})\n{printed}\n")
    stack, (name, expected) = report.stack, fact
    assert stack is not None
    if name in ("compute_capability", "name"):
        (gpu,) = report.machine.gpus.value or ()
        found: object = getattr(gpu, name).value
    elif name == "available":
        found = stack.cuda_available.value
    elif name == "transformers":
        found = (stack.distributions.value or {})[name].version
    else:
        assert stack.torch.value is not None
        found = getattr(stack.torch.value, name).value
    assert found == expected
