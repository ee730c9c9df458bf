"""Reports of public issues about an environment that works: another device, an older system, advice of Ray."""

from __future__ import annotations

from support.cases import each_case
from support.collect_env_reports import torch_report
from support.report_samples import blamed_causes

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

CPU_TORCH = {"PyTorch version": "2.5.1", "CUDA used to build PyTorch": "None"}
FAILED = "TypeError: unexpected argument 'ge'\nvLLM Version: {}\n"
ON_HPU = f"INFO Automatically detected platform hpu.\n{FAILED}"
ON_CPU = f"INFO Automatically detected platform cpu.\n{FAILED}"


def cpu_report(before: str, system: str = "Ubuntu 22.04.5 LTS (x86_64)", **packages: str) -> str:
    return torch_report(CPU_TORCH | {"OS": system}, {"torch": "2.5.1", **packages}, before=before)


@each_case(
    ("text", "cause", "expected"),
    [
        (cpu_report(FAILED.format("0.7.2")), "vllm-cuda-variant", True),
        (
            cpu_report(ON_HPU.format("0.7.2")),
            "vllm-cuda-variant",
            False,
        ),
        (
            cpu_report(ON_CPU.format("0.7.2")),
            "vllm-cuda-variant",
            False,
        ),
        (cpu_report(FAILED.format("0.6.0"), torch_xla="2.5.0"), "vllm-torch-mismatch", False),
        (cpu_report(FAILED.format("0.6.0")), "vllm-torch-mismatch", True),
        (cpu_report(FAILED.format("0.7.2"), "macOS 14.7.3 (arm64)"), "platform-no-wheel", False),
        (cpu_report(FAILED.format("0.7.2"), "macOS 14.7.3 (arm64)"), "vllm-cuda-variant", False),
    ],
)
def test_vllm_that_was_built_for_another_device(text: str, cause: str, expected: bool) -> None:
    assert (cause in blamed_causes(text)) == expected


@each_case(
    ("glibc", "vllm", "expected"), [("2.26", "0.5.5", False), ("2.12", "0.8.3", True), ("2.17", "0.10.2", True)]
)
def test_glibc_of_the_wheels_of_vllm(glibc: str, vllm: str, expected: bool) -> None:
    text = torch_report({"Libc version": f"glibc-{glibc}"}, {"vllm": vllm}, before="RuntimeError: it fails\n")
    assert ("glibc-too-old" in blamed_causes(text)) == expected


RAY = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the "
    "problem, check the logs for the dead worker. There are some potential root causes. (1) The process is killed by "
    "SIGKILL by OOM killer due to high memory usage. (2) `ray stop --force` is called. (3) The worker is crashed."
)
SELECTED = "INFO selector.py:131] Cannot use FlashAttention-2 backend for Volta and Turing GPUs."
MARKERS = (
    "ERROR 02-21 02:30:26 async_llm_engine.py:68]     ^^^^^^^^^^^^^^^^\n"
    "AttributeError: 'SpecDecodeWorker' object has no attribute '_execute_model_spmd'\nray: 2.40.0"
)
TWO_TRITONS = "torch 2.6.0+rocm6.2, triton 3.2.0, pytorch-triton-rocm 3.2.0\nIt fails"


@each_case(
    ("text", "cause"),
    [
        (RAY, "host-oom-runtime"),
        (f"{SELECTED}\nTesla T4\nIndexError: list index out of range", "gpu-unsupported-by-library"),
        (MARKERS, "dependency-pin-violated"),
        ("torch 2.7.0+rocm6.3 on MI300X\nNvidia(H100): the text is right. AMD: it is wrong", "torch-cpu-build"),
        (TWO_TRITONS, "dependency-pin-violated"),
    ],
)
def test_a_line_that_reports_no_such_cause(text: str, cause: str) -> None:
    assert cause not in blamed_causes(f"{text}\n")


def test_a_list_with_another_torch_is_one_of_another_environment() -> None:
    older = "vllm==0.6.1.post2\ntorch==2.4.0+cu121\ntorchvision==0.19.0\nxformers==0.0.27.post2\n"
    same = older.replace("2.4.0+cu121", "2.8.0+cu128")
    report = torch_report({}, {"vllm": "0.10.2"}) + "It fails since the update. Before:\n```\n{}```\n"
    assert "torch-abi-mismatch" not in blamed_causes(report.format(older))
    assert "torch-abi-mismatch" in blamed_causes(report.format(same))


FORWARD = 'File "venv/site-packages/vllm/model_executor/models/phi4mm.py", line 1738, in forward\n'
ATTRIBUTE = "AttributeError: 'list' object has no attribute 'shape'\n"
NO_OPERATOR = "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'\n"
CU118 = {"PyTorch version": "2.6.0+cu118", "CUDA used to build PyTorch": "11.8"}
NO_TORCH = {"PyTorch version": "N/A", "CUDA used to build PyTorch": "N/A"}
NO_GPU = dict.fromkeys(("GPU models and configuration", "Nvidia driver version"), "Could not collect") | {
    "Is CUDA available": "False"
}
CPU_BUILD = {"PyTorch version": "2.4.0+cpu", "CUDA used to build PyTorch": "None"}
PROFILED = 'File "venv/site-packages/vllm/executor/gpu_executor.py", line 75, in determine_num_available_blocks\n'
RESULT = "With speculative decoding the server returns the following incomplete object.\n"
NOT_FOUND = "The server does not start at all: ModuleNotFoundError: No module named 'torch'\n"


@each_case(
    ("fields", "text", "cause", "expected"),
    [
        (CU118, FORWARD + ATTRIBUTE, "vllm-cuda-variant", False),
        (CU118, FORWARD + NO_OPERATOR, "vllm-cuda-variant", True),
        (NO_TORCH, f"vllm serve model\n{RESULT}", "wrong-python-env", False),
        (NO_TORCH, "vllm serve model\nINFO # GPU blocks: 2048\nSegmentation fault\n", "wrong-python-env", False),
        (NO_TORCH, f"vllm serve model\n{NOT_FOUND}", "wrong-python-env", True),
        (NO_GPU, f"{PROFILED}RuntimeError: GET was unable to find an engine\n", "no-nvidia-gpu", False),
        (NO_GPU, "RuntimeError: the engine fails\n", "no-nvidia-gpu", True),
        (NO_GPU, "docker build -f Dockerfile.cpu -t cpu . crashes my machine\n", "no-nvidia-gpu", False),
        (CPU_BUILD, "INFO VLLM_CPU_KVCACHE_SPACE=4\nAttributeError: it fails\n", "torch-cpu-build", False),
        (CPU_BUILD, "AttributeError: it fails\n", "torch-cpu-build", True),
    ],
)
def test_an_engine_that_ran_had_its_libraries(fields: dict[str, str], text: str, cause: str, expected: bool) -> None:
    packages = {"vllm": "0.8.1"} | (
        {} if fields is NO_TORCH else {"torch": fields.get("PyTorch version", "2.6.0+cu124")}
    )
    assert (cause in blamed_causes(torch_report(fields, packages, before=text))) == expected


SLOW = "The requests with images take far longer than those of text.\n"
BOTH_BINDINGS = {"pynvml": "11.5.0", "nvidia-ml-py": "12.535.133"}


@each_case(
    ("text", "packages", "cause", "expected"),
    [
        (SLOW, BOTH_BINDINGS, "nvml-python-conflict", False),
        ("RuntimeError: NVMLError_FunctionNotFound\n", BOTH_BINDINGS, "nvml-python-conflict", True),
    ],
)
def test_a_text_about_another_subject(text: str, packages: dict[str, str], cause: str, expected: bool) -> None:
    assert (cause in blamed_causes(torch_report({}, packages, before=text))) == expected


@each_case(("package", "expected"), [("torch-neuronx", False), ("accelerate", True)])
def test_the_torch_of_neuron_needs_no_nvidia_gpu(package: str, expected: bool) -> None:
    text = torch_report(NO_GPU, {"torch": "2.5.1", package: "1.2.0"}, before="RuntimeError: the engine fails\n")
    assert ("no-nvidia-gpu" in blamed_causes(text)) == expected


def test_a_text_with_vllm_of_another_cuda_and_an_unknown_torch() -> None:
    text = "vllm serve m\nCUDA used to build PyTorch: 11.8\n[pip3] vllm==0.8.1\nRuntimeError: it fails\n"
    assert not {each.id for each in diagnose_report(parse_report(text)) if each.status == "crashed"}
