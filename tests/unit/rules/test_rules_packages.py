"""Rules on combinations of packages: no problems for working sets, the right cause for broken ones."""

from __future__ import annotations

import re
import time

import msgspec
from packaging.specifiers import SpecifierSet
from support.cases import each_case
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of
from support.report_stack import error_causes, make_machine, make_stack

from envdoctor.core.records import Distribution, Extension, Finding, Machine, Stack, known
from envdoctor.knowledge.releases import (
    TorchPairing,
    bitsandbytes_libraries,
    numpy2_releases,
    optional_specifier,
    parse_requirement,
    releases_of,
    releases_that_accept,
    required_specifier,
)
from envdoctor.knowledge.tables import load_table
from envdoctor.knowledge.versions import satisfies, version_key
from envdoctor.rules import RULES, evaluate
from envdoctor.rules.known_breaks import known_breaks
from envdoctor.rules.requirements import requirements_of

H100 = "NVIDIA H100 80GB HBM3"
MODULES = ("packages", "vllm", "vllm_builds", "training", "companions", "shared_libraries", "known_breaks",
           "wheel_builds", "wheel_cuda", "package_pairs", "engine_pins")  # fmt: skip


def packages(text: str) -> dict[str, str]:
    """`torch 2.8.0, vllm 0.10.2` as versions by name."""
    return dict(part.split() for part in text.split(","))


def stack_of(text: str) -> Stack:
    """A pasted list. Its torch also gives the torch build, and the local version its CUDA, unknown without one."""
    listed = packages(text)
    torch = listed.get("torch", "")
    found = re.search(r"\+cu(\d\d)(\d)", torch)
    cuda = f"{found[1]}.{found[2]}" if found else None
    return make_stack(torch or None, cuda=cuda, cuda_unread=bool(torch) and "+" not in torch, packages=listed)


def findings_by_id(machine: Machine, stack: Stack) -> dict[str, Finding]:
    """Findings of the rules of this family by id; none of them may crash."""
    ours = {rule.id for rule in RULES.values() if rule.check.__module__.rpartition(".")[2] in MODULES}
    findings = evaluate(machine, stack)
    assert [each for each in findings if each.status == "crashed"] == []
    return {each.id: each for each in findings if each.id in ours}


# Sets that were resolved, installed or used for training, from /profiles and measurements.
WORKING = {
    "HF stack, CUDA 12.4": """torch 2.5.1+cu124, torchvision 0.20.1, torchaudio 2.5.1, triton 3.1.0,
        transformers 4.56.2, trl 0.22.2, peft 0.17.1, accelerate 1.11.0, datasets 4.2.0, bitsandbytes 0.48.1,
        numpy 2.3.4""",
    "vLLM 0.10.2": """torch 2.8.0+cu128, torchvision 0.23.0, triton 3.4.0, vllm 0.10.2, xformers 0.0.32.post1,
        transformers 4.57.1, trl 0.23.1, peft 0.17.1, accelerate 1.11.0, datasets 4.3.0, kernels 0.10.4,
        liger-kernel 0.6.3, bitsandbytes 0.48.1, numpy 2.2.6, huggingface-hub 0.36.0, setuptools 79.0.1""",
    "verl 0.5": """torch 2.6.0+cu124, verl 0.5.0, vllm 0.8.3, transformers 4.55.2, ray 2.48.0, tensordict 0.9.1,
        numpy 1.26.4""",
    "TRL 0.27": """torch 2.9.0+cu128, triton 3.5.0, vllm 0.12.0, trl 0.27.1, transformers 4.57.6, accelerate 1.12.0,
        flashinfer-python 0.5.3""",
    "aarch64, PyPI": """torch 2.13.0+cu130, triton 3.7.1, vllm 0.31.0, trl 1.16.0, transformers 5.17.0,
        bitsandbytes 0.50.2""",
    "H200 with vLLM 0.26": """torch 2.11.0+cu130, triton 3.6.0, vllm 0.26.0, trl 1.16.0, transformers 5.17.0,
        accelerate 1.15.0, peft 0.21.0, liger-kernel 0.8.5, bitsandbytes 0.50.2""",
    "SGLang 0.5.9": """torch 2.9.1+cu128, torchaudio 2.9.1, triton 3.5.1, sglang 0.5.9, torchao 0.9.0,
        transformers 4.57.1""",
    "torchao with a newer torch": "torch 2.12.1+cu130, torchao 0.17.0",
}


@each_case("name", WORKING)
def test_working_sets_have_no_problems(name: str) -> None:
    stack = stack_of(WORKING[name])
    assert {
        each.id: each.message
        for each in findings_by_id(make_machine([H100]), stack).values()
        if each.status != "info"
    } == {}


@each_case(
    ("gpu", "text", "reported"),
    [
        ("NVIDIA H20", "torch 2.4.0+cu121", True),
        ("NVIDIA H20", "torch 2.4.0+cu121, nvidia-cublas-cu12 12.1.3.1", True),
        ("NVIDIA H20", "torch 2.4.0+cu121, nvidia-cublas-cu12 12.4.5.8", False),
        ("NVIDIA H20", "torch 2.4.0+cu124", False),
        ("NVIDIA H200", "torch 2.4.0+cu121", False),
    ],
)
def test_cublas_fault_of_an_h20(gpu: str, text: str, reported: bool) -> None:
    findings = evaluate(make_machine([gpu]), stack_of(text))
    assert ("TORCH010" in {each.id for each in findings}) == reported


@each_case(
    ("python", "text", "reported"),
    [
        ("3.11.9", "torch 2.3.1+cu121, triton 3.0.0", True),
        ("3.11.9", "torch 2.2.2+cu121, triton 2.2.0", False),
        ("3.10.14", "torch 2.3.0+cu121, triton 2.3.1", True),
        ("3.12.3", "torch 2.3.1+cu121, triton 3.0.0", False),  # no triton is required for Python 3.12
    ],
)
def test_a_requirement_for_older_pythons(python: str, text: str, reported: bool) -> None:
    stack = msgspec.structs.replace(stack_of(text), python_version=known(python, "report"))
    assert ("PKG001" in findings_by_id(make_machine([H100]), stack)) == reported


@each_case(
    ("source", "reported"),
    [("conda", False), ("pip", True)],  # torchvision 0.22.0 of conda-forge was built with torch 2.7.1
)
def test_conda_compares_its_own_builds(source: str, reported: bool) -> None:
    stack = stack_of("torch 2.7.1+cu126, torchvision 0.22.0")
    packages = {
        name: msgspec.structs.replace(package, source=source)
        for name, package in (stack.distributions.value or {}).items()
    }
    stack = msgspec.structs.replace(stack, distributions=known(packages, "report"))
    assert ("PKG002" in findings_by_id(make_machine([H100]), stack)) == reported


def test_a_torchao_that_another_package_does_not_accept_is_reported_once() -> None:
    stack = stack_of("torch 2.9.1+cu128, sglang 0.5.9, torchao 0.17.0")
    found = findings_by_id(make_machine([H100]), stack)
    assert "torchao==0.9.0" in found["PKG001"].message
    assert "PKG010" not in found


# A set with the rule id and status that must be reported; all other packages in it are compatible.
BROKEN = [
    ("torch 2.4.0+cu121, torchvision 0.20.1+cu124", "PKG002", "error"),
    ("torch 2.7.1+cu128, torchvision 0.22.0+cu128", "PKG002", "warning"),
    ("torch 2.8.0+cu128, torchaudio 2.9.0", "PKG002", "error"),
    ("torch 2.8.0+cu128, torchvision 0.23.0+cpu", "PKG011", "error"),
    ("torch 1.10.1+cu113, torchaudio 0.10.1+rocm4.1", "PKG011", "error"),
    ("torch 2.9.0+cpu, torchvision 0.24.0", "PKG011", "error"),
    ("torch 2.13.0+cu132, torchvision 0.28.0+cu132, torchaudio 2.11.0", "PKG011", "error"),
    ("torch 2.11.0+cu128, torchaudio 2.11.0", "PKG011", "error"),
    ("torch 2.10.0+cu130, torchao 0.14.0", "PKG010", "warning"),
    ("torch 2.9.1+cu128, torchao 0.12.0", "PKG010", "error"),
    ("torch 2.5.1+cu124, torchao 0.13.0", "PKG010", "error"),
    ("torch 2.7.1+cu128, torchao 0.18.0", "PKG010", "error"),
    ("torch 2.8.0+cu128, sglang 0.4.9", "PKG001", "warning"),
    ("torch 2.2.0+cu121, vllm 0.6.3", "VLLM001", "error"),
    ("torch 2.9.1+cu128, vllm 0.11.2", "VLLM001", "warning"),
    ("torch 2.8.0+cu128, vllm 0.12.0", "VLLM001", "error"),
    ("torch 2.11.0+cu126, vllm 0.21.0", "VLLM003", "error"),
    ("torch 2.9.0+cpu, vllm 0.12.0", "VLLM003", "error"),
    ("torch 2.11.0+cu130, vllm 0.20.0+cu129", "VLLM003", "error"),
    ("torch 2.8.0+cu128, vllm 0.10.2, transformers 5.3.0", "HF002", "error"),
    ("torch 2.9.0+cu128, vllm 0.12.0, transformers 5.3.0", "PKG004", "error"),
    ("torch 2.7.0+cu126, vllm 0.9.2, transformers 4.57.1", "HF003", "error"),
    ("torch 2.8.0+cu128, trl 0.23.1, transformers 5.23.0", "HF001", "error"),
    ("torch 2.8.0+cu128, trl 0.22.2, transformers 5.2.0", "HF019", "warning"),
    ("torch 2.8.0+cu128, trl 0.26.2, transformers 5.2.0", "HF018", "error"),
    ("torch 2.9.0+cu129, trl 0.25.0, vllm 0.12.0", "TRL001", "error"),
    ("torch 2.9.0+cu129, trl 0.23.1, vllm 0.12.0", "TRL001", "error"),
    ("torch 2.10.0+cu128, trl 0.28.0, vllm 0.17.0", "TRL001", "warning"),
    ("torch 2.4.0+cu121, vllm 0.6.3, transformers 4.40.1", "PKG005", "error"),
    ("transformers 4.57.1, huggingface-hub 1.2.3", "PKG001", "error"),
    ("transformers 4.40.0, tokenizers 0.21.0", "PKG001", "error"),
    ("numba 0.61.2, numpy 2.3.1", "PKG001", "error"),
    ("torch 2.5.1+cu124, triton 3.9.0", "PKG001", "warning"),
    ("torch 2.8.0+cu128, vllm 0.10.2, xgrammar 0.1.10", "PKG001", "warning"),
    ("torch 2.5.1+cu121, xformers 0.0.29.post3", "PKG006", "error"),
    ("torch 2.1.2+cu121, numpy 2.1.0", "NPY001", "error"),
    ("torch 2.4.0+cu121, vllm 0.6.0, numpy 2.0.1", "PKG003", "warning"),
    ("torch 2.8.0+cu128, pandas 2.0.3, numpy 2.1.0", "NPY001", "error"),
    ("jax 0.4.20, jaxlib 0.4.20, numpy 2.1.0", "NPY001", "error"),
    ("torch 2.8.0+cu128, statsmodels 0.14.1, numpy 2.1.0", "NPY001", "warning"),
    ("pytorch 2.2.2, mkl 2024.2.0", "MKL001", "error"),
    ("torch 2.12.0+cu130, nvidia-nccl-cu12 2.29.3, nvidia-nccl-cu13 2.29.7", "NCCL001", "warning"),
    ("torch 2.8.0+cu128, nvidia-nccl-cu12 2.19.3", "NCCL001", "warning"),
    ("torch 2.9.1, nvidia-nccl-cu12 2.27.5, nvidia-nccl-cu13 2.28.9", "NCCL001", "warning"),
    ("torch 1.9.0+cu102, torchvision 0.7.0", "PKG002", "error"),
    ("torch 2.8.0+cu128, vllm 0.10.2, pynvml 11.5.0, nvidia-ml-py 12.575.51", "NVML001", "warning"),
    ("torch 2.7.0+cu128, bitsandbytes 0.44.1", "BNB001", "error"),
    ("torch 2.9.0+cu130, bitsandbytes 0.47.0", "BNB001", "error"),
    ("torch 2.6.0+cu124, triton 3.2.0, bitsandbytes 0.44.1", "BNB003", "error"),
    ("flash-attn-3 0.0.0", "FA003", "error"),
    ("torch 2.3.0+cu121, flash-attn 2.5.7", "FA002", "info"),
    ("torch 2.7.1+cu126, flash-attn 2.8.3+cu12torch2.8cxx11abitrue", "FA001", "error"),
    ("torch 2.7.1+cu126, torch-scatter 2.1.2+pt25cu124", "FA001", "error"),
    ("torch 2.10.0+cu128, natten 0.21.0+torch290cu128", "FA001", "error"),
    ("torch 2.6.0+cu124, triton-windows 3.3.1.post19", "PKG001", "warning"),
    ("torch 2.8.0+cu128, transformers 4.57.1, kernels 0.13.0", "HF020", "error"),
    ("torch 2.8.0+cu128, transformers 4.57.1, kernels 0.15.0", "HF020", "warning"),
    ("torch 2.13.0+cu130, transformers 5.23.0, kernels 0.17.2", "HF020", "warning"),
    ("torch 2.8.0+cu128, transformers 5.20.0, kernels 0.10.0", "HF020", "warning"),
    ("torch 2.8.0+cu128, vllm 0.10.2, triton-kernels 0.1.0", "VLLM007", "warning"),
    ("torch 2.2.0+cu121, transformers 5.5.0", "PKG008", "error"),
    ("accelerate 0.20.3, transformers 4.51.3, setuptools 80.9.0", "PKG008", "error"),
    ("trl 0.15.2, peft 0.4.0", "PKG008", "info"),
    ("accelerate 1.0.1, transformers 4.53.0", "HF006", "error"),
    ("accelerate 0.21.0, transformers 4.41.2", "HF017", "error"),
    ("peft 0.17.1, transformers 5.2.0", "HF004", "error"),
    ("peft 0.21.2, transformers 4.37.2", "HF022", "error"),
    ("accelerate 1.15.0, transformers 4.37.2", "HF023", "error"),
    ("trl 0.7.11, transformers 4.40.0", "HF032", "error"),
    ("gradio 4.44.1, huggingface-hub 2.4.0", "HF024", "error"),
    ("datasets 2.12.0, fsspec 2026.2.0", "HF025", "error"),
    ("openai 1.8.0, httpx 0.28.1", "PKG020", "error"),
    ("gradio 5.20.0, huggingface-hub 2.4.0", "PKG077", "warning"),
    ("pillow 10.4.0, numpy 1.20.3", "PKG078", "error"),
    ("anthropic 0.34.2, httpx 0.28.1", "PKG075", "error"),
    ("groq 0.9.0, httpx 0.28.1", "PKG076", "error"),
    ("tensorboard 2.2.2, protobuf 5.29.6", "PKG060", "error"),
    ("tensorboardx 2.5, protobuf 7.36.2", "PKG061", "error"),
    ("wandb 0.12.11, protobuf 4.25.3, setuptools 80.9.0", "PKG062", "error"),
    ("tensorflow 2.8.0, protobuf 4.21.1", "PKG063", "error"),
    ("onnx 1.11.0, protobuf 5.29.6", "PKG064", "error"),
    ("mlflow 1.24.0, protobuf 4.25.3", "PKG065", "error"),
    ("streamlit 1.8.1, protobuf 4.25.3", "PKG066", "error"),
    ("typer 0.12.5, click 8.3.1", "PKG067", "warning"),
    ("g2p-en 2.1.0, nltk 3.9.2", "PKG068", "warning"),
    ("dgl 2.1.0, torch 2.4.0", "PKG071", "error"),
    ("torch 1.10.1, tensorboard 2.11.2, setuptools 60.9.3", "PKG072", "warning"),
    ("tensorflow-metadata 1.21.0, protobuf 5.29.6", "PKG079", "error"),
    ("torch 2.1.2+cu121, deepspeed 0.8.3, pydantic 2.10.6", "PKG080", "error"),
    ("pyarrow 26.0.1, numpy 1.26.4", "PKG073", "error"),
    ("datasets 2.14.4, pyarrow 22.0.0, fsspec 2023.9.2", "PKG074", "error"),
    ("librosa 0.9.0, setuptools 84.2.1", "PKG021", "error"),
    ("webrtcvad 2.0.10, setuptools 84.2.1", "PKG069", "error"),
    ("pyworld 0.3.5, setuptools 82.0.0", "PKG070", "error"),
    ("gradio 3.48.0, starlette 1.10.0", "PKG022", "error"),
    ("gradio-client 1.3.0, pydantic 2.13.5", "PKG023", "error"),
    ("peft 0.19.1, torchao 0.10.0", "HF007", "error"),
    ("torch 2.8.0+cu128, transformers 5.2.0, bitsandbytes 0.45.0", "HF009", "error"),
    ("autoawq 0.2.9, transformers 4.57.1", "HF010", "error"),
    ("deepspeed 0.14.0, torch 2.4.0+cu121", "DS001", "error"),
    ("deepspeed 0.14.2, torch 2.4.0+cu121", "DS002", "error"),
    ("deepspeed 0.14.3, numpy 2.0.0", "DS003", "error"),
    ("flashinfer-python 0.5.3, flashinfer-cubin 0.5.2", "PKG012", "error"),
    ("torch 2.7.0+cu128, triton 3.3.0, pytorch-triton 3.4.0+gitae848267", "PKG013", "warning"),
    ("torch 2.9.0+cu128, verl 0.7.0, vllm 0.13.0", "VERL001", "info"),
    ("torch 2.9.1+cu128, sglang 0.5.8, nvidia-cudnn-cu12 9.10.2.21", "CUDNN002", "warning"),
    ("torch 2.9.0+cu128, timm 1.0.0", "CUDNN004", "info"),
    ("trl 1.5.0, vllm 0.17.0", "TRL002", "info"),
    ("torch 2.4.1+cu121, transformers 5.10.2", "HF015", "error"),
    ("torch 2.1.2+cu121, transformers 4.57.6", "HF026", "error"),
    ("torch 2.1.0+cu118, transformers 4.55.4", "HF033", "error"),
    ("torch 2.4.1+cu121, transformers 5.14.1", "HF027", "error"),
    ("torch 2.1.2+cu121, diffusers 0.36.0", "HF028", "error"),
    ("torch 2.4.1+cu121, diffusers 0.40.0", "HF029", "error"),
    ("torch 2.4.1+cu121, diffusers 0.42.1", "HF030", "error"),
    ("torch 2.4.1+cu121, transformers 5.8.0", "HF031", "error"),
    ("torch 2.8.0+cu128, trl 0.17.0, vllm 0.12.0", "TRL001", "warning"),
    ("torch 2.9.0+cu129, trl 0.26.2, vllm 0.12.0", "TRL001", "error"),
    ("torch 2.9.0+cu130, nvidia-cudnn-cu12 9.10.2.21, nvidia-cudnn-cu13 9.13.0.50", "CUDNN003", "warning"),
    ("torch 2.9.0, nvidia-cudnn-cu12 9.8.0.87", "CUDNN005", "warning"),
    ("torch 2.12.0+cu130, nvidia-cudnn-cu13 9.13.0.50", "CUDNN005", "warning"),
    ("torch 2.6.0+cu124, nvidia-cudnn-cu12 8.9.2.26", "CUDNN005", "error"),
    ("torch 2.6.0+cu124, nvidia-nvjitlink-cu12 12.1.105", "CUDNN005", "error"),
    ("torch 2.8.0+cu128, nvidia-cuda-runtime-cu12 12.4.127", "CUDNN005", "warning"),
    ("torch 2.8.0+cu128, onnxruntime-gpu 1.28.0", "PKG030", "warning"),
    ("torch 2.5.1+cu124, ctranslate2 4.4.0", "PKG030", "warning"),
    ("jaxlib 0.5.3, jax-cuda12-plugin 0.5.1, jax-cuda12-pjrt 0.5.1", "PKG040", "error"),
    ("tensorflow 2.3.0, tensorflow-gpu 2.8.0", "PKG040", "warning"),
    ("jax 0.4.20, jaxlib 0.4.38", "PKG040", "error"),
    ("transformer-engine 2.5.0, transformer-engine-torch 2.4.0", "PKG040", "error"),
    ("onnxruntime 1.19.2, onnxruntime-gpu 1.19.2", "PKG041", "warning"),
    ("cupy-cuda11x 13.3.0, cupy-cuda12x 13.3.0", "PKG042", "warning"),
    ("opencv-python 4.10.0.84, opencv-python-headless 4.8.1.78", "PKG042", "info"),
    ("mmdet 3.3.0, mmcv 2.2.0", "PKG043", "warning"),
    ("mmdet 3.1.0, mmcv-full 1.7.1", "PKG044", "warning"),
    ("pytorch-lightning 1.7.7, torchmetrics 1.4.0, setuptools 80.9.0", "PKG045", "error"),
    ("lightning 2.2.1, setuptools 84.2.1", "PKG051", "error"),
    ("pytorch-lightning 2.0.9, setuptools 84.2.1, torchmetrics 1.4.0", "PKG052", "error"),
    ("nemo-toolkit 1.23.0, huggingface-hub 0.26.0", "PKG046", "error"),
    ("albumentations 1.4.15, albucore 0.0.17", "PKG047", "error"),
    ("torch 2.2.1+cu121, torchvision 0.17.1, basicsr 1.4.2", "PKG048", "warning"),
    ("flask 2.2.2, werkzeug 3.0.1", "PKG049", "error"),
    ("torch 2.4.1+cu121, transformers 5.9.0", "PKG049", "error"),  # next to a note of the table on the same pair
]  # fmt: skip


@each_case(("text", "rule", "status"), BROKEN, ids=[f"{rule}-{text}" for text, rule, _ in BROKEN])
def test_broken_sets_are_reported(text: str, rule: str, status: str) -> None:
    findings = findings_by_id(make_machine([H100]), stack_of(text))
    assert rule in findings, {name: each.message for name, each in findings.items()}
    finding = findings[rule]
    assert finding.status == status, finding.message
    assert finding.fix
    assert finding.url.startswith("https://")
    if status != "info":
        assert commands_of(finding)
    assert "{" not in finding.message + finding.fix + "".join(commands_of(finding))


@each_case(("torch", "release"), [("2.4.1+cu121", "5.13.1"), ("2.2.0+cu121", "5.0.0"), ("2.1.2+cu121", "4.55.4")])
def test_an_older_transformers_works_with_the_installed_torch(torch: str, release: str) -> None:
    finding = findings_by_id(make_machine([H100]), stack_of(f"torch {torch}, transformers 5.24.0"))["PKG008"]
    assert f"uv pip install transformers=={release}" in commands_of(finding)
    found = findings_by_id(make_machine([H100]), stack_of(f"torch {torch}, transformers {release}"))
    assert {each.status for each in found.values() if "transformers" in each.message} <= {"info"}


def test_the_torch_that_transformers_checks_for_counts_not_that_of_its_extras() -> None:
    cases = {"torch 2.1.0, transformers 4.57.6": False, "torch 2.0.1, transformers 4.57.6": True,
             "torch 2.0.1, transformers 4.50.0": True, "torch 1.13.1, transformers 4.49.0": False}  # fmt: skip
    for text, reported in cases.items():
        findings = findings_by_id(make_machine([H100]), stack_of(text))
        assert ("PKG008" in findings) == reported, text


@each_case(
    ("text", "expected"),
    [
        ("torch 2.8.0+cu128, onnxruntime-gpu 1.22.0", []),
        ("torch 2.8.0+cu128, onnxruntime-gpu 9.9.0", []),  # newer than the table
        ("torch 2.8.0+cpu, onnxruntime-gpu 1.28.0", []),
        ("onnxruntime-gpu 1.28.0", []),
        ("torch 2.8.0+cu128, onnxruntime-gpu 1.28.0, nvidia-cublas-cu13 13.0.1", []),
        ("torch 2.8.0+cu128, onnxruntime-gpu 1.28.0", ["uv pip install 'onnxruntime-gpu>=1.19,<1.27'"]),
        ("torch 2.2.2+cu121, onnxruntime-gpu 1.18.0", ["Use a torch for CUDA 11 and cuDNN 8"]),
        ("torch 2.5.1+cu124, ctranslate2 4.4.0", ["uv pip install 'ctranslate2>=4.6.3,<=4.8.5'"]),
        ("torch 2.3.1+cu121, ctranslate2 4.5.0", ["uv pip install 'ctranslate2>=4.6.3,<=4.8.5'"]),
        ("torch 2.9.1+cu130, ctranslate2 4.8.5", ["no release of ctranslate2 is for CUDA 13"]),
        ("torch 2.9.1+cu130, faster-whisper 1.2.1, ctranslate2 4.8.5, nvidia-cublas-cu12 12.9.1.4", []),
        ("torch 2.9.1+cu130, sgl-kernel 0.3.21", ["Use a torch for CUDA 12"]),
    ],
)
def test_a_wheel_for_another_cuda_than_torch(text: str, expected: list[str]) -> None:
    finding = findings_by_id(make_machine([H100]), stack_of(text)).get("PKG030")
    shown = f"{finding.fix} {' '.join(commands_of(finding))}" if finding else ""
    assert bool(finding) == bool(expected)
    assert all(part in shown for part in expected), shown


def test_an_old_bitsandbytes_loads_the_library_for_the_libcudart_that_it_finds() -> None:
    cases = {"bitsandbytes 0.37.1": "warning", "bitsandbytes 0.41.0": "error",
             "bitsandbytes 0.37.1, cudatoolkit 11.8.0": ""}  # fmt: skip
    for text, status in cases.items():
        finding = findings_by_id(make_machine([H100]), stack_of(f"torch 2.14.1+cu130, {text}")).get("BNB001")
        assert (finding.status if finding else "") == status, text


def test_a_companion_for_cuda_next_to_a_torch_for_rocm() -> None:
    found = findings_by_id(make_machine([H100]), stack_of("torch 2.8.0+rocm6.4, torchvision 0.23.0+cu128"))["PKG011"]
    (command,) = commands_of(found)
    assert command == "uv pip install torchvision==0.23.0 --torch-backend=rocm6.4 --reinstall-package torchvision"


def test_an_older_release_of_the_importing_package_has_no_known_break() -> None:
    found = findings_by_id(make_machine([H100]), stack_of("torch 2.4.1+cu121, transformers 5.9.0"))["PKG049"]
    assert "transformers<=5.7.0" in found.fix  # 5.8 does not import next to torch 2.4


def test_a_newer_release_has_all_names_that_are_imported() -> None:
    """accelerate 0.20 has is_xpu_available, and not is_npu_available, which peft 0.5.0 imports as well."""
    found = findings_by_id(make_machine([H100]), stack_of("peft 0.5.0, accelerate 0.19.0"))["PKG049"]
    assert "Install accelerate>=0.21.0,<0.22, or peft<=0.4.0." in found.fix


def test_a_toolkit_brings_the_cuda_of_a_wheel() -> None:
    stack = stack_of("torch 2.2.2+cu121, onnxruntime-gpu 1.18.0")
    assert "PKG030" not in findings_by_id(make_machine([H100], nvcc="11.8.89"), stack)


def test_fix_names_compatible_releases() -> None:
    """vLLM with another torch: the torch that it requires, and the vLLM releases for the installed torch."""
    finding = findings_by_id(make_machine([H100]), stack_of("torch 2.9.0+cu128, vllm 0.10.2"))["VLLM001"]
    assert "torch==2.8.0" in finding.fix
    assert "0.11.1 to 0.13.0" in finding.fix
    assert commands_of(finding)[0] == "uv pip install torch==2.8.0 vllm==0.10.2 --torch-backend=cu128"
    trl = findings_by_id(make_machine([H100]), stack_of("torch 2.9.0+cu128, trl 0.25.0, vllm 0.12.0"))["TRL001"]
    assert "==0.10.2" in trl.message
    assert "0.27.0" in trl.fix


def test_torch_moves_with_its_companions() -> None:
    packages = "torch 2.9.0+cu128, torchvision 0.24.0, torchaudio 2.9.0, timm 1.0.0"
    (command,) = commands_of(findings_by_id(make_machine([H100]), stack_of(packages))["CUDNN004"])
    assert command == (
        "uv pip install 'torch>=2.10,<2.11' torchvision==0.25.0 torchaudio==2.10.0 --torch-backend=auto"
    )


def test_cudnn_for_cuda_12_does_not_overwrite_that_for_cuda_13() -> None:
    packages = "torch 2.9.1+cu130, nvidia-cudnn-cu12 9.10.2.21, nvidia-cudnn-cu13 9.13.0.50, sglang 0.5.8"
    found = findings_by_id(make_machine([H100]), stack_of(packages))
    assert {name for name in found if name.startswith("CUDNN")} == {"CUDNN003"}


def test_package_that_requires_another_torch_than_vllm() -> None:
    neighbour = Distribution(name="speech-thing", version="1.0", requires=("torch==2.2.0",))
    stack = make_stack("2.4.0+cu121", cuda="12.1", packages={"vllm": "0.6.3"}, distributions=(neighbour,))
    finding = findings_by_id(make_machine([H100]), stack)["VLLM001"]
    assert "speech-thing 1.0 requires torch==2.2.0" in finding.message


def test_prerelease_torch_of_containers() -> None:
    """NVIDIA's containers have alphas of torch, which match no exact pin, but lower bounds."""
    nvidia = make_stack("2.1.0a0+32f93b1", cuda="12.2", uses=("vllm",), packages={"accelerate": "0.34.0"})
    assert {name: each.status for name, each in findings_by_id(make_machine([H100]), nvidia).items()} == {
        "VLLM002": "warning"
    }
    minimum = Distribution(name="peft", version="0.13.0", requires=("torch>=2.5.0",))
    enough = make_stack("2.5.0a0+e000cf0ad9.nv24.10", cuda="12.6", distributions=(minimum,))
    assert findings_by_id(make_machine([H100]), enough) == {}
    own = make_stack("2.8.0a0+5228986c39.nv25.06", cuda="12.9", packages={"vllm": "0.9.0.1+nv25.06"})
    assert "VLLM002" not in findings_by_id(make_machine([H100]), own)


def test_gpus_that_the_library_does_not_support() -> None:
    pascal = make_machine(["NVIDIA GeForce GTX 1080 Ti"])
    used = make_stack("2.7.0+cu126", cuda="12.6", uses=("vllm",))
    assert findings_by_id(pascal, used)["VLLM005"].status == "error"
    assert "VLLM005" not in findings_by_id(pascal, make_stack("2.7.0+cu126", cuda="12.6"))
    mixed = make_machine([H100, "NVIDIA GeForce GTX 1080 Ti"])
    assert findings_by_id(mixed, used)["VLLM005"].status == "warning"
    turing = make_machine(["Tesla T4"])
    assert findings_by_id(turing, stack_of("torch 2.8.0+cu128, flash-attn 2.8.3"))["VLLM005"].status == "warning"
    assert findings_by_id(turing, stack_of("torch 2.8.0+cu128, vllm 0.10.2"))["VLLM006"].status == "info"
    volta = make_machine(["Tesla V100-SXM2-32GB"])
    assert "VLLM005" not in findings_by_id(volta, stack_of("torch 2.8.0+cu128, vllm 0.10.2"))
    assert findings_by_id(volta, stack_of("torch 2.11.0+cu130, vllm 0.21.0"))["VLLM005"].status == "error"


def test_vllm_without_code_for_blackwell() -> None:
    card = make_machine(["NVIDIA GeForce RTX 5090"])
    assert findings_by_id(card, stack_of("torch 2.7.0+cu128, vllm 0.9.1"))["VLLM004"].status == "error"
    unnamed = make_stack("2.7.0+cu128", cuda="12.8", uses=("vllm",))
    assert findings_by_id(card, unnamed)["VLLM004"].status == "warning"  # 0.9.2 has code for some kernels
    assert "VLLM004" not in findings_by_id(card, make_stack("2.7.1+cu128", cuda="12.8", uses=("vllm",)))
    assert "VLLM004" not in findings_by_id(card, make_stack("2.7.0+cu128", cuda="12.8"))
    assert "VLLM004" not in findings_by_id(make_machine([H100]), unnamed)
    assert "VLLM004" not in findings_by_id(card, stack_of("torch 2.8.0+cu128, vllm 0.10.2"))


def test_cpu_torch_with_vllm() -> None:
    nowhere = make_machine(None)
    cpu = make_stack("2.5.1+cpu", uses=("vllm",), available=False)
    assert findings_by_id(nowhere, cpu)["VLLM003"].status == "warning"
    own = make_stack("2.9.0+cpu", packages={"vllm": "0.12.0+cpu"}, available=False)
    assert "VLLM003" not in findings_by_id(nowhere, own)


def test_cuda_version_is_read_from_vllms_files() -> None:
    needs = Extension(path="vllm/_C.abi3.so", distribution="vllm", needed=("libcudart.so.12", "libc.so.6"))
    held = {"vllm": "0.21.0", "torch": "2.11.0+cu130"}
    stack = make_stack("2.11.0+cu130", cuda="13.0", packages=held, extensions=(needs,), source="files")
    finding = findings_by_id(make_machine([H100]), stack)["VLLM003"]
    assert "vllm/_C.abi3.so needs libcudart.so.12" in finding.message


def test_bitsandbytes_libraries_from_files_and_variable() -> None:
    here = (Extension(path="bitsandbytes/libbitsandbytes_cuda126.so", distribution="bitsandbytes"),)
    held = {"bitsandbytes": "0.45.0"}
    alone = make_stack("2.7.0+cu128", cuda="12.8", packages=held, extensions=here, source="files")
    assert "for CUDA 12.6" in findings_by_id(make_machine([H100]), alone)["BNB001"].message
    fine = make_stack("2.7.0+cu126", cuda="12.6", packages=held, extensions=here, source="files")
    assert "BNB001" not in findings_by_id(make_machine([H100]), fine)
    family = stack_of("torch 2.11.0+cu129, bitsandbytes 0.50.2")
    assert "BNB001" not in findings_by_id(make_machine([H100]), family)  # 0.50 loads the nearest of the major version
    forced = make_machine([H100], environment={"BNB_CUDA_VERSION": "118"})
    finding = findings_by_id(forced, stack_of("torch 2.6.0+cu124, bitsandbytes 0.48.1"))
    assert (finding["BNB002"].status, "BNB001" in finding) == ("warning", False)


@each_case(("release", "imports_triton"), [("0.37.0", False), ("0.38.0.post2", False), ("0.38.1", True)])
def test_bitsandbytes_imports_triton_from_its_first_release_with_the_module(
    release: str, imports_triton: bool
) -> None:
    findings = findings_by_id(make_machine([H100]), stack_of(f"torch 2.6.0, triton 3.2.0, bitsandbytes {release}"))
    assert ("BNB003" in findings) is imports_triton


def test_flash_attn_wheel_name() -> None:
    wheel = Distribution(
        name="flash-attn", version="2.8.3",
        source="flash_attn-2.8.3+cu12torch2.7cxx11abiFALSE-cp312-cp312-linux_x86_64.whl",
    )  # fmt: skip
    stack = make_stack("2.8.0+cu128", cuda="12.8", distributions=(wheel,))
    assert "torch 2.7" in findings_by_id(make_machine([H100]), stack)["FA001"].message
    right = make_stack("2.7.1+cu128", cuda="12.8", distributions=(wheel,))
    assert "FA001" not in findings_by_id(make_machine([H100]), right)


@each_case(("torch", "differs"), [("2.4.0+cu121", False), ("2.5.1+cu124", False), ("2.6.0+cu124", True)])
def test_a_wheel_of_flashinfer_for_torch_2_4_runs_with_2_5(torch: str, differs: bool) -> None:
    findings = findings_by_id(make_machine([H100]), stack_of(f"torch {torch}, flashinfer 0.1.6+cu121torch2.4"))
    assert ("FA001" in findings) is differs


def test_missing_requirement_needs_a_complete_list() -> None:
    needy = Distribution(name="trl", version="0.23.1", requires=("accelerate>=1.4.0", "nvidia-cublas-cu12==12.8.4.1"))
    whole = findings_by_id(
        make_machine([H100]), make_stack("2.8.0+cu128", cuda="12.8", distributions=(needy,), source="files")
    )
    assert whole["PKG007"].message == "trl 0.23.1 requires packages that are not installed: accelerate>=1.4.0"
    assert findings_by_id(make_machine([H100]), make_stack("2.8.0+cu128", cuda="12.8", distributions=(needy,))) == {}


def test_less_important_conflicts_are_information() -> None:
    aside = Distribution(name="jupyter-thing", version="1.0", requires=("click<8",))
    stack = make_stack("2.8.0+cu128", cuda="12.8", packages={"click": "8.1.7"}, distributions=(aside,))
    assert {name: each.status for name, each in findings_by_id(make_machine([H100]), stack).items()} == {
        "PKG001": "info"
    }
    newer = stack_of("torch 2.8.0+cu128, nvidia-nccl-cu12 2.29.7")
    assert error_causes(make_machine([H100]), newer) == set()


def test_torch_on_windows_supports_numpy_2_later() -> None:
    stack = stack_of("torch 2.4.0+cu121, numpy 2.1.0")
    assert "NPY001" not in findings_by_id(make_machine([H100]), stack)
    windows = make_machine(["NVIDIA GeForce RTX 4080"], os="Microsoft Windows 11 Pro")
    assert findings_by_id(windows, stack)["NPY001"].status == "error"


def test_contradicting_pins_have_no_command() -> None:
    one = Distribution(name="sglang", version="0.4.6", requires=("transformers==4.51.1",))
    other = Distribution(name="compressed-tensors", version="0.9", requires=("transformers==4.50.0",))
    held = {"transformers": "4.51.1"}
    stack = make_stack("2.6.0+cu124", cuda="12.4", packages=held, distributions=(one, other))
    finding = findings_by_id(make_machine([H100]), stack)["PKG004"]
    assert "separate environment" in finding.fix
    assert commands_of(finding) == ()
    hub = "torch 2.6.0, transformers 4.49.0, datasets 5.2.0, huggingface-hub 2.4.0"
    finding = findings_by_id(make_machine([H100]), stack_of(hub))["PKG001"]
    assert "No version of huggingface-hub satisfies all packages" in finding.fix
    assert commands_of(finding) == ()


@each_case("row", known_breaks(), ids=lambda row: row.id)
def test_every_known_break_is_limited_to_its_versions(row: object) -> None:
    conditions = [condition.partition(" ") for condition in row.when]  # type: ignore[attr-defined]
    companions = dict.fromkeys(row.only_with[:1], "1.0")  # type: ignore[attr-defined]
    python = "3.10.13" if row.python else "3.12.11"  # type: ignore[attr-defined]
    inside = {name: _example(specifier) for name, _, specifier in conditions} | companions
    stack = make_stack(inside.get("torch"), packages=inside, python=python)
    assert findings_by_id(make_machine(None), stack)[row.id].status == row.status  # type: ignore[attr-defined]
    if row.python:  # type: ignore[attr-defined]
        assert row.id not in findings_by_id(make_machine(None), make_stack(inside.get("torch"), packages=inside))  # type: ignore[attr-defined]
    for name in companions:
        alone = {other: text for other, text in inside.items() if other != name}
        assert row.id not in findings_by_id(
            make_machine(None), make_stack(alone.get("torch"), packages=alone, python=python)
        )  # type: ignore[attr-defined]
    for name, _, specifier in conditions:
        outside = {other: text for other, text in inside.items() if other != name}
        if specifier:
            outside[name] = _example(specifier, inside=False)
        torch = outside.get("torch")
        assert row.id not in findings_by_id(make_machine(None), make_stack(torch, packages=outside, python=python))  # type: ignore[attr-defined]


def _example(specifier: str, *, inside: bool = True) -> str:
    bounds = re.findall(r"\d[\d.]*\d|\d", specifier) or ["1.0"]
    near = [text for bound in bounds for text in (bound, bound + ".1", _below(bound), "0.0.1", "999.0")]
    return next(text for text in near if SpecifierSet(specifier).contains(text) == inside)


def _below(version: str) -> str:
    numbers = [int(part) for part in version.split(".")]
    last = max(index for index, number in enumerate(numbers) if number)
    return ".".join(map(str, [*numbers[:last], numbers[last] - 1, 9]))


def test_documentation_of_package_rules() -> None:
    for rule in RULES.values():
        if rule.check.__module__.rpartition(".")[2] in MODULES:
            first = rule.documentation.split("\n")[0]
            assert 20 < len(first) < 200, rule.id
            assert "References:\nhttps://" in rule.documentation, rule.id
            assert "Fix:" in rule.documentation, rule.id
            assert rule.url.startswith("https://"), rule.id


def test_tables_are_complete() -> None:
    """Every row has a source and a date, and every specifier is valid."""
    for package in ("vllm", "trl", "torch", "torchvision", "torchaudio", "transformers", "xformers", "verl", "peft"):
        rows = releases_of(package)
        assert len(rows) > 10, package
        for version, row in rows.items():
            assert version_key(version), (package, version)
            assert row.source, package
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date), package
            for line in (*row.requires, *row.optional):
                requirement = parse_requirement(line)
                assert requirement, line
                SpecifierSet(requirement.specifier)
    pairings = load_table("companions.toml", tuple[TorchPairing, ...], "pairing")
    for each in (*pairings, *numpy2_releases(), *bitsandbytes_libraries(), *known_breaks()):
        assert each.source
        assert each.date
    for row in known_breaks():
        for condition in (*row.when, *row.unless):
            SpecifierSet(condition.partition(" ")[2])


def test_queries_on_the_tables() -> None:
    assert required_specifier("vllm", "0.10.2", "torch") == "==2.8.0"
    assert required_specifier("vllm", "0.6.3", "torchvision") == "==0.19"
    assert optional_specifier("trl", "0.25.1", "vllm") == "==0.10.2"
    assert satisfies("0.31.0", optional_specifier("trl", "1.16.0", "vllm"))
    assert releases_that_accept("torchvision", "torch", "2.8.0") == ("0.23.0",)
    assert optional_specifier("transformers", "5.23.0", "kernels") == ">=0.18.2,<0.19"


def test_time_for_500_distributions() -> None:
    """10 different requirements each, so that no cache helps: measured 0.09 s on two slow cores."""
    many = tuple(
        Distribution(
            name=f"p{i}", version=f"1.{i}.3",
            requires=tuple(f"p{(i * 7 + j) % 500} (>=1.{j}.{i},!=1.{i}.*,<{j + 2}.{i})" for j in range(10)),
        )
        for i in range(500)
    )  # fmt: skip
    stack = make_stack("2.8.0+cu128", cuda="12.8", distributions=many, source="files")
    start = time.process_time()
    requirements_of(stack)
    assert time.process_time() - start < 3  # 25 times the target, for a busy machine


@each_case("release", releases_of("vllm"))
def test_requirements_of_vllm_releases_are_consistent(release: str) -> None:
    """The tables are consistent: 91 releases with the torch, torchvision, xformers ... that they require."""
    pinned = {"vllm": release}
    for line in releases_of("vllm")[release].requires:
        requirement = parse_requirement(line)
        if requirement and re.fullmatch(r"==[\w.]+", requirement.specifier):
            pinned[requirement.name] = requirement.specifier[2:]
    cuda = "13.0" if satisfies(release, ">=0.20") else "12.4" if satisfies(release, ">=0.2.2") else "11.8"
    stack = make_stack(pinned.get("torch"), cuda=cuda, packages=pinned)
    problems = {
        each.id: each.message
        for each in findings_by_id(make_machine([H100]), stack).values()
        if each.status != "info"
    }
    assert problems == {}


def test_findings_are_as_recorded() -> None:
    found = {f"{rule} {text}": findings_by_id(make_machine([H100]), stack_of(text))[rule] for text, rule, _ in BROKEN}
    assert_as_recorded("rules-packages", found)


def test_peft_before_hybrid_cache_is_used_with_transformers_5() -> None:
    """The import is in peft 0.16 and 0.17 alone."""
    versions = {"0.15.2": False, "0.16.0": True, "0.17.1": True, "0.18.0": False}
    for peft, is_reported in versions.items():
        stack = make_stack("2.11.0+cu130", packages={"torch": "2.11.0", "peft": peft, "transformers": "5.17.0"})
        assert ("HF004" in {each.id for each in evaluate(make_machine([H100]), stack)}) is is_reported, peft
