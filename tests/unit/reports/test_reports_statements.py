"""Facts that a text states in words, in file names and in lines of programs, although the rest is about a failure."""

from __future__ import annotations

from typing import Any

from support.cases import each_case

from envdoctor.core.records import Fact
from envdoctor.reports import Report, parse_report


def fact(report: Report, path: str) -> Any:
    """A value by its path in the report; the version of a distribution by its name."""
    if path in (packages := report.stack.distributions.value or {}):
        return packages[path].version
    found: Any = report
    for name in path.split("."):
        found = getattr(found.value if isinstance(found, Fact) else found, name, None)
    return found.value if isinstance(found, Fact) else found


TORCH, PYTHON, NVCC = "stack.torch.version", "stack.python_version", "machine.cuda.nvcc_version"
DRIVER, DRIVER_CUDA = "machine.driver.version", "machine.driver.cuda"


@each_case(
    ("text", "path", "value"),
    [
        ("I upgraded torch to 2.9 and since then it fails", TORCH, "2.9"),
        ("after upgrading torch from 2.5.1 to 2.7.0 the import fails", TORCH, "2.7.0"),
        ("updated PyTorch 2.4.0 -> 2.6.0, now the extension does not load", TORCH, "2.6.0"),
        ("torch was downgraded to 2.3.1 by another package", TORCH, "2.3.1"),
        ("the installer picked torch-2.7.1+cu126", TORCH, "2.7.1+cu126"),
        ("print(torch.__version__) -> 2.1.0+cu121", TORCH, "2.1.0+cu121"),
        ("updated transformers to 5.1 yesterday", "transformers", "5.1"),
        ("transformers to 5.1 and an AttributeError", "transformers", None),
        ("I updated transformers to 5.1 and get an AttributeError", "transformers", "5.1"),
        ("torchvision stayed on 0.21.0", "torchvision", "0.21.0"),
        ("torchaudio is still 2.5.1+cu121", "torchaudio", "2.5.1+cu121"),
        ("kept vllm pinned at 0.8.5", "vllm", "0.8.5"),
        ("Loading fails with a RuntimeError (torchvision 0.20.1 was there before)", "torchvision", "0.20.1"),
        ("deepspeed's version is 0.15.4", "deepspeed", "0.15.4"),
        ("we are stuck with driver 525.85.12, the admins won't update it", DRIVER, "525.85.12"),
        ("I just upgraded the driver from 550.90 to 575.64.03", DRIVER, "575.64.03"),
        ("the cluster's driver is 470 (47 point something)", DRIVER_CUDA, "11.4"),
        ("Grafikkarte: RTX 4070, Treiber 551.86", DRIVER, "551.86"),
        ("GPUはRTX 5090、ドライバは572.70、torchは2.5.1です", DRIVER, "572.70"),
        ("GPUはRTX 5090、ドライバは572.70、torchは2.5.1です", TORCH, "2.5.1"),
        ("nvcc from apt (11.5)", NVCC, "11.5"),
        ("toolkit 12.1 is installed in /usr/local", NVCC, "12.1"),
        ("-- The CUDA compiler identification is NVIDIA 11.5.119", NVCC, "11.5.119"),
        ('-- Found CUDAToolkit: /usr/local/cuda/include (found version "12.8.93")', NVCC, "12.8.93"),
        ("[1/9] /usr/local/cuda-12.4/bin/nvcc -c a.cu", NVCC, "12.4"),
        ("Ultralytics 8.3.40 Python-3.11.9 torch-2.5.1+cu121 CUDA:0 (NVIDIA L4, 22478MiB)", PYTHON, "3.11.9"),
        ("DeepSpeed info: version=0.16.5, git-hash=unknown", "deepspeed", "0.16.5"),
        ("torch-2.9.0-cp312-cp312-manylinux_2_28_x86_64.whl was downloaded", PYTHON, "3.12"),
        ("gsplat-1.5.0+pt24cu124-cp310-cp310-linux_x86_64.whl is it", "gsplat", "1.5.0+pt24cu124"),
        ("site-packages/vllm-0.8.4.dist-info\nsite-packages/torch-2.7.1+cu126.dist-info", "vllm", "0.8.4"),
        ("site-packages/vllm-0.8.4.dist-info\nsite-packages/vllm-0.9.1.dist-info", "vllm", None),
        ('[[package]]\nname = "torch"\nversion = "2.6.0+cpu"', TORCH, "2.6.0+cpu"),
        ('name = "torch"\nversion = "2.6.0"\n\nname = "torch"\nversion = "2.6.0+cpu"', TORCH, None),
        ("FROM vllm/vllm-openai:v0.9.1\nRUN pip install torch==2.8.0", TORCH, "2.8.0"),
        ("the version that was used to compile\nPyTorch (11.7). Please make sure it is the same.", TORCH, None),
        ("after `pip install -U transformers` (5.2.0) nothing works", "transformers", "5.2.0"),
        ("pip gave torch 2.9.1+cu130 and the driver does not fit", TORCH, "2.9.1+cu130"),
        ("/usr/local/cuda -> cuda-12.8, torch 2.3.1+cu118, I try to build it", NVCC, "12.8"),
        # What is no statement about the environment that fails.
        ("should I upgrade torch to 2.9?", TORCH, None),
        ("if it is upgraded, torch goes to 2.9", TORCH, None),
        ("I would have upgraded torch to 2.9", TORCH, None),
        ("I downgraded torch to 2.6.0 and it works", TORCH, None),
        ("a colleague upgraded torch to 2.9", TORCH, None),
        ("torch 2.4.0+cu121: RuntimeError: compiled with torch 2.3.0+cu118", TORCH, "2.4.0+cu121"),
    ],
)
def test_a_fact_is_read(text: str, path: str, value: str | None) -> None:
    assert fact(parse_report(text), path) == value


@each_case(
    ("text", "names"),
    [
        ("my 5060 Ti (16 gb) arrived yesterday and nothing works", ["RTX 5060 Ti"]),
        ("there is an error when loading unsloth on my NVIDIA GeForce RTX 5090.", ["RTX 5090"]),
        ("I swapped the 3080 for a 5080 last week.", ["RTX 5080"]),
        ("we moved from A100 to B200 nodes", ["B200"]),
        ("Run with --gpus all on a 3090, torch doesn't use it", ["RTX 3090"]),
        ("my old 3080 worked", []),
        ("on my 4090 it is fast, on the 5090 it fails", []),
        ("It dies at the start with a TypeError. RTX 6000 Ada", ["RTX 6000 Ada"]),
    ],
)
def test_a_gpu_is_read(text: str, names: list[str]) -> None:
    assert [gpu.name.value for gpu in parse_report(text).machine.gpus.value or ()] == names


def test_an_arm_module_has_the_build_for_arm_from_pypi() -> None:
    stack = parse_report("GH200 node\n + torch==2.5.1\n + torchvision==0.20.1").stack
    assert stack.torch.value is not None
    assert stack.torch.value.cuda.state == "absent"
