"""Findings from pasted collect_env reports with common problems, and none from healthy reports.

Each case changes a few lines of a healthy report, in the format of PyTorch or of vLLM.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.collect_env_reports import PACKAGES, torch_report, vllm_report
from support.command import envdoctor
from support.recorded_results import assert_as_recorded

from envdoctor.commands.check import CheckRequest, run
from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

CONTRADICTIONS = {
    "pip freeze": ("\n$ pip freeze\ntorch==2.9.0\n", "torch"),
    "pip list": ("\nPackage Version\n------- -------\nnumpy   2.1.2\ntorch   2.9.0\n", "torch"),
    "conda": ("\n[conda] torch   2.9.0   pypi_0   pypi\n", "torch"),
    "driver": ("\nNvidia driver version: 999.65.06\n", "driver"),
    "sglang": ("\nCUDA available: True\nCUDA Driver Version: 570.86.15\nPyTorch: 2.9.0\nsglang: 0.5.5\n", "torch"),
}
NO_GPU = {
    "Is CUDA available": "False",
    "CUDA runtime version": "No CUDA",
    "CUDA_MODULE_LOADING set to": "N/A",
    "GPU models and configuration": "No CUDA",
    "Nvidia driver version": "No CUDA",
    "cuDNN version": "No CUDA",
}
NO_TORCH = {
    "PyTorch version": "N/A",
    "Is debug build": "N/A",
    "CUDA used to build PyTorch": "N/A",
    "ROCM used to build PyTorch": "N/A",
    "Is CUDA available": "N/A",
    "Is XNNPACK available": "N/A",
}


def reported_causes(text: str) -> set[str]:
    """The causes of the findings with status error, warning or crashed."""
    return {f.cause for f in diagnose_report(parse_report(text)) if f.status in ("error", "warning", "crashed")}


def torch_of(
    version: str,
    cuda: str,
    vision: str = "",
    audio: str = "",
    triton: str = "",
    *,
    lines: dict[str, str] | None = None,
    packages: dict[str, str] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """The changed lines and packages of a report for a torch build."""
    changed_lines = {"PyTorch version": version, "CUDA used to build PyTorch": cuda} | (lines or {})
    versions = {"torch": version, "torchvision": vision, "torchaudio": audio, "triton": triton} | (packages or {})
    return changed_lines, versions


GPU, DRIVER, GPUS = "Is CUDA available", "Nvidia driver version", "GPU models and configuration"
AVAILABLE, UNAVAILABLE = {GPU: "True"}, {GPU: "False"}


PROBLEMS: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
    ("gpu-arch-dropped", "GTX 1080 on cu128", {GPUS: "GPU 0: NVIDIA GeForce GTX 1080"}, {}),
    ("gpu-arch-dropped", "P100 on cu128", {GPUS: "GPU 0: Tesla P100-PCIE-16GB"}, {}),
    (
        "gpu-arch-dropped",
        "V100 on cu130",
        *torch_of("2.11.0+cu130", "13.0", lines={GPUS: "GPU 0: Tesla V100-SXM2-32GB", DRIVER: "580.95.05"}),
    ),
    (
        "gpu-arch-not-in-build",
        "RTX 5080 on cu124",
        *torch_of("2.5.1+cu124", "12.4", lines={GPUS: "GPU 0: NVIDIA GeForce RTX 5080"}),
    ),
    ("gpu-arch-not-in-build", "B200 on cu126", *torch_of("2.7.1+cu126", "12.6", lines={GPUS: "GPU 0: NVIDIA B200"})),
    ("gpu-arch-not-in-build", "H100 on cu117", *torch_of("2.0.1+cu117", "11.7")),
    (
        "driver-too-old",
        "535 with cu130",
        *torch_of("2.11.0+cu130", "13.0", lines={DRIVER: "535.183.01", **UNAVAILABLE}),
    ),
    (
        "driver-too-old",
        "470 with cu121",
        *torch_of(
            "2.3.1+cu121", "12.1", lines={DRIVER: "470.199.02", GPUS: "GPU 0: NVIDIA A100-SXM4-80GB", **UNAVAILABLE}
        ),
    ),
    (
        "torch-cpu-build",
        "+cpu build with a GPU",
        {"PyTorch version": "2.8.0+cpu", "CUDA used to build PyTorch": "Could not collect", **UNAVAILABLE},
        {"torch": "2.8.0+cpu"},
    ),
    (
        "torch-cpu-build",
        "ROCm build with a GPU",
        {
            "PyTorch version": "2.4.0+rocm6.1",
            "CUDA used to build PyTorch": "N/A",
            "ROCM used to build PyTorch": "6.1.40091",
            **UNAVAILABLE,
        },
        {"torch": "2.4.0+rocm6.1", "torchvision": "", "torchaudio": "", "triton": ""},
    ),
    (
        "torch-cpu-build",
        "aarch64 from PyPI",
        {
            "PyTorch version": "2.8.0+cpu",
            "CUDA used to build PyTorch": "None",
            GPUS: "GPU 0: NVIDIA GH200 480GB",
            "OS": "Ubuntu 22.04.5 LTS (aarch64)",
            "Python platform": "Linux-6.8.0-1013-nvidia-64k-aarch64-with-glibc2.35",
            **UNAVAILABLE,
        },
        {"torch": "2.8.0"},
    ),
    ("no-nvidia-gpu", "CUDA torch on a laptop", NO_GPU, {}),
    ("torch-companion-mismatch", "torchvision of another torch", {}, {"torchvision": "0.20.1+cu124"}),
    ("torch-companion-mismatch", "torchaudio of another torch", {}, {"torchaudio": "2.5.1"}),
    ("numpy2-abi", "numpy 2 with torch 2.1", *torch_of("2.1.2+cu121", "12.1", packages={"numpy": "2.0.1"})),
    ("nccl-lib-mismatch", "two NCCL packages", {}, {"nvidia-nccl-cu12": "2.27.3", "nvidia-nccl-cu13": "2.28.3"}),
    ("nvcc-torch-mismatch", "nvcc 11.8", {"CUDA runtime version": "11.8.89"}, {"deepspeed": "0.17.5"}),
    ("wrong-python-env", "no torch", NO_TORCH, dict.fromkeys(PACKAGES, "")),
    (
        "fabric-manager",
        "8 H100 that CUDA does not open",
        {GPUS: "\n".join(f"GPU {n}: NVIDIA H100 80GB HBM3" for n in range(8)), **UNAVAILABLE},
        {},
    ),
    (
        "platform-no-wheel",
        "Jetson",
        {
            "OS": "Ubuntu 22.04.4 LTS (aarch64)",
            "Python platform": "Linux-5.15.136-tegra-aarch64-with-glibc2.35",
            GPUS: "Could not collect",
            DRIVER: "Could not collect",
            "PyTorch version": "2.3.0",
            "Is CUDA available": "False",
            "CUDA used to build PyTorch": "12.2",
        },
        {"torch": "2.3.0", "torchvision": "", "torchaudio": "", "triton": ""},
    ),
    (
        "wsl-multi-gpu-limit",
        "WSL with 6 GPUs",
        {
            "Python platform": "Linux-5.15.153.1-microsoft-standard-WSL2-x86_64-with-glibc2.35",
            GPUS: "\n".join(f"GPU {n}: NVIDIA GeForce RTX 4090" for n in range(6)),
            **UNAVAILABLE,
        },
        {},
    ),
]

VLLM_PROBLEMS: list[tuple[str, str, str, dict[str, str], dict[str, str]]] = [
    ("vllm-torch-mismatch", "vLLM 0.10.2 with torch 2.9", "0.10.2", *torch_of("2.9.0+cu128", "12.8")),
    (
        "vllm-torch-mismatch",
        "vLLM 0.6.3 with torch 2.5",
        "0.6.3.post1",
        *torch_of("2.5.1+cu124", "12.4", packages={"transformers": "4.46.0"}),
    ),
    ("transformers-too-new", "transformers 5", "0.10.2", {}, {"transformers": "5.3.0"}),
    (
        "gpu-unsupported-by-library",
        "P40",
        "0.6.4",
        *torch_of("2.5.1+cu121", "12.1", lines={GPUS: "GPU 0: Tesla P40"}, packages={"transformers": "4.46.0"}),
    ),
    ("driver-ptx-too-old", "550 with cu128", "0.11.0", {DRIVER: "550.90.07"}, {}),
    (
        "glibc-too-old",
        "CentOS 7",
        "0.10.2",
        {
            "Libc version": "glibc-2.17",
            "OS": "CentOS Linux 7 (Core) (x86_64)",
            "Python platform": "Linux-3.10.0-1160.el7.x86_64-x86_64-with-glibc2.17",
        },
        {},
    ),
    ("no-nvidia-gpu", "no GPU", "0.10.2", NO_GPU, {}),
    (
        "vllm-cuda-variant",
        "torch cu126 with the cu130 wheel",
        "0.21.0",
        *torch_of("2.11.0+cu126", "12.6", lines={DRIVER: "580.95.05"}),
    ),
    ("dependency-pin-violated", "huggingface-hub 1 with transformers 4", "0.10.2", {}, {"huggingface-hub": "1.2.3"}),
]

HEALTHY_CASES: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("H100", {}, {}),
    ("8 x A100", {GPUS: "\n".join(f"GPU {n}: NVIDIA A100-SXM4-80GB" for n in range(8)), DRIVER: "535.183.06"}, {}),
    ("RTX 4090 with a 12.2 driver", {GPUS: "GPU 0: NVIDIA GeForce RTX 4090", DRIVER: "535.171.04"}, {}),
    ("RTX 5090", {GPUS: "GPU 0: NVIDIA GeForce RTX 5090", DRIVER: "575.64.03"}, {}),
    ("T4", {GPUS: "GPU 0: Tesla T4"}, {}),
    ("V100 on cu126", *torch_of("2.7.1+cu126", "12.6", lines={GPUS: "GPU 0: Tesla V100-SXM2-32GB"})),
    (
        "P100 on cu121",
        *torch_of(
            "2.3.1+cu121",
            "12.1",
            "0.18.1+cu121",
            "2.3.1+cu121",
            "2.3.1",
            lines={GPUS: "GPU 0: Tesla P100-PCIE-16GB"},
            packages={"numpy": "1.26.4"},
        ),
    ),
    ("nvcc 12.4 with cu128", {"CUDA runtime version": "12.4.131"}, {}),
    (
        "conda",
        {"Python version": "3.11.9 | packaged by conda-forge | (main, Apr 19 2024, 18:36:13) [GCC 12.3.0]"},
        {},
    ),
    (
        "cu130 on 580",
        *torch_of("2.11.0+cu130", "13.0", "0.26.0+cu130", "2.11.0+cu130", "3.6.0", lines={DRIVER: "580.95.05"}),
    ),
    ("no compiler", {"GCC version": "Could not collect"}, {}),
    (
        "WSL with one GPU",
        {
            "Python platform": "Linux-5.15.153.1-microsoft-standard-WSL2-x86_64-with-glibc2.35",
            GPUS: "GPU 0: NVIDIA GeForce RTX 4090",
            DRIVER: "566.36",
        },
        {},
    ),
    (
        "GB10",
        *torch_of(
            "2.11.0+cu130",
            "13.0",
            "0.26.0+cu130",
            "2.11.0+cu130",
            "3.6.0",
            lines={
                GPUS: "GPU 0: NVIDIA GB10",
                DRIVER: "580.95.05",
                "OS": "Ubuntu 24.04.3 LTS (aarch64)",
                "Python platform": "Linux-6.11.0-1016-nvidia-aarch64-with-glibc2.39",
                "Libc version": "glibc-2.39",
            },
        ),
    ),
    (
        "CPU torch without a GPU",
        NO_GPU | {"PyTorch version": "2.8.0+cpu", "CUDA used to build PyTorch": "None"},
        {"torch": "2.8.0+cpu", "torchvision": "0.23.0+cpu", "torchaudio": "2.8.0+cpu", "triton": ""},
    ),
]


@each_case(("cause", "case", "lines", "packages"), PROBLEMS, ids=[row[1] for row in PROBLEMS])
def test_problem_in_a_torch_report(cause: str, case: str, lines: dict[str, str], packages: dict[str, str]) -> None:
    assert cause in reported_causes(torch_report(lines, packages))


@each_case(("cause", "case", "vllm", "lines", "packages"), VLLM_PROBLEMS, ids=[row[1] for row in VLLM_PROBLEMS])
def test_problem_in_a_vllm_report(
    cause: str, case: str, vllm: str, lines: dict[str, str], packages: dict[str, str]
) -> None:
    assert cause in reported_causes(vllm_report(lines, packages, vllm))


@each_case(("case", "lines", "packages"), HEALTHY_CASES, ids=[row[0] for row in HEALTHY_CASES])
def test_healthy_torch_report_has_no_findings(case: str, lines: dict[str, str], packages: dict[str, str]) -> None:
    assert reported_causes(torch_report(lines, packages)) == set()


@each_case(
    ("vllm", "lines", "packages"),
    [
        ("0.10.2", {}, {}),
        ("0.11.0", {GPUS: "\n".join(f"GPU {n}: NVIDIA H100 80GB HBM3" for n in range(8))}, {}),
        ("0.10.2", {GPUS: "GPU 0: NVIDIA GeForce RTX 5090", DRIVER: "575.57.08"}, {}),
        (
            "0.9.2",
            *torch_of(
                "2.7.0+cu126", "12.6", "0.22.0+cu126", "2.7.0+cu126", "3.3.0", packages={"transformers": "4.53.1"}
            ),
        ),
    ],
    ids=["0.10.2", "0.11.0 on 8 GPUs", "0.10.2 on RTX 5090", "0.9.2"],
)
def test_healthy_vllm_report_has_no_findings(vllm: str, lines: dict[str, str], packages: dict[str, str]) -> None:
    assert reported_causes(vllm_report(lines, packages, vllm)) == set()


@pytest.mark.parametrize("machine", ["h200", "h100x8", "gh200-480gb"])
def test_pasted_output_of_check_has_no_text_findings(machine: str, tmp_path: Path) -> None:
    """The output contains facts with their sources."""
    printed = envdoctor("check", "--machine", machine, "--verbose", home=tmp_path).stdout
    assert "RLIMIT_MEMLOCK" in printed or machine != "h200"
    assert not [f for f in diagnose_report(parse_report(printed)) if f.id.startswith("TEXT-") and f.status == "error"]


def test_missing_report_is_an_error(tmp_path: Path) -> None:
    done = envdoctor("check", "--from-report", "nothere.txt", home=tmp_path)
    assert done.returncode == 2
    assert "expected: a file with a pasted report" in done.stderr
    assert "hint: envdoctor check --from-report" in done.stderr


def test_shell_prompt_of_a_container_gives_container_no_gpu() -> None:
    text = torch_report(NO_GPU, {}, before="root@3f2b1c9d8e7a:/workspace# python collect_env.py\n")
    assert "container-no-gpu" in reported_causes(text)


def test_a_module_that_is_not_loaded_is_no_fault_of_nvidia_smis_list() -> None:
    """lspci lists the GPU and nouveau is loaded: nvidia-smi lists nothing."""
    report = """$ lspci | grep -i nvidia
01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
$ lsmod | grep -i -E 'nvidia|nouveau'
nouveau              2306048  4
$ python -c "import torch; print(torch.__version__, torch.cuda.is_available())"
2.5.1+cu124 False
"""
    found = {each.id for each in diagnose_report(parse_report(report)) if each.status == "error"}
    assert found == {"DRV002"}


@each_case(
    "text",
    [
        "GPU: RTX 3090\nGPU Driver Version: 550.120\ntorch 2.5.1+cu124\n>>> torch.cuda.is_available()\nFalse\n",
        "a desktop with a 4070, driver 550.120, torch 2.5.1+cu124 and torch.cuda.is_available() is False",
    ],
)
def test_a_written_list_is_no_output_of_nvidia_smi(text: str) -> None:
    messages = [each.message for each in diagnose_report(parse_report(text)) if each.id == "DRV009"]
    assert [each.startswith("the report names GPU") for each in messages] == [True]


def test_a_gpu_of_another_vendor_is_no_sign_of_a_container() -> None:
    """A CUDA build of torch next to a card of AMD."""
    report = "I have an AMD Radeon RX 7900 XTX.\nPyTorch version: 2.5.1+cu124\ntorch.cuda.is_available(): False\n"
    found = {each.id for each in diagnose_report(parse_report(report)) if each.status in ("error", "warning")}
    assert found == {"DRV007"}


def test_findings_are_as_recorded() -> None:
    texts = {row[1]: torch_report(*row[2:]) for row in PROBLEMS}
    texts |= {case: vllm_report(lines, packages, vllm) for _, case, vllm, lines, packages in VLLM_PROBLEMS}
    found = {
        case: [each for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")]
        for case, text in texts.items()
    }
    assert_as_recorded("reports-findings", found)


@each_case(
    ("text", "code", "missing"),
    [
        ("torch==2.8.0\ntransformers==4.57.1\n", 3, ["GPU", "driver"]),
        ("torch==2.7.0\ntorchaudio==2.11.0\n", 1, ["GPU", "driver"]),
        (torch_report({}, {}), 0, []),
        (
            torch_report({"GPU models and configuration": "GPU 0: NVIDIA Foobar X9000"}, {}),
            3,
            ["compute capability of NVIDIA Foobar X9000"],
        ),
    ],
)
def test_a_report_with_too_little_has_another_exit_code(
    text: str, code: int, missing: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A script must not take a report for sound that shows no GPU."""
    path = tmp_path_factory.mktemp("report") / "report.txt"
    path.write_text(text)
    result = run(CheckRequest(report=str(path)))
    assert result.data.coverage
    assert ([each.fact for each in result.data.coverage.missing], result.exit_code) == (missing, code)


def test_a_missing_kernel_image_has_one_cause_if_torch_lacks_the_code() -> None:
    printed = (
        "PyTorch version: 2.5.1+cu124\nRuntimeError: CUDA error: no kernel image is available for execution on the "
        "device\nCUDA used to build PyTorch: 12.4\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 5090\n"
        "Nvidia driver version: 570.124.04\n"
    )
    found = [each.id for each in diagnose_report(parse_report(printed)) if each.status in ("error", "warning")]
    assert found == ["TORCH001"]


def test_an_error_of_the_program_between_two_parts_of_a_report_is_a_note() -> None:
    first, rest = torch_report({}, {}).split("\n", 1)
    error = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
    found = diagnose_report(parse_report(f"{first}\nTraceback (most recent call last):\n{error}\n{rest}"))
    assert [(each.cause, each.status, each.message) for each in found] == [("no-gradient", "info", error)]


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_two_values_of_a_fact_give_no_verdict(tmp_path: Path, name: str) -> None:
    added, fact = CONTRADICTIONS[name]
    file = tmp_path / "report.txt"
    file.write_text(torch_report({}, {}) + added)
    done = envdoctor("check", "--from-report", file, home=tmp_path)
    assert "✓ no problems" not in done.stdout
    assert f"two values of {fact}:" in done.stdout
    file.write_text(torch_report({}, {}))
    assert "two values" not in envdoctor("check", "--from-report", file, home=tmp_path).stdout


@pytest.mark.parametrize("value", ["False", "  False", "True"])
def test_value_on_the_next_line_is_read(value: str) -> None:
    report = parse_report(torch_report({}, {}).replace("Is CUDA available: True", f"Is CUDA available:\n{value}"))
    assert report.stack.cuda_available.value is (value.strip() == "True")


SGLANG = "Python: 3.12.12\nGPU 0: NVIDIA H100 80GB HBM3\nPyTorch: 2.9.1+cu130\nsglang: 0.5.5.post3\ntriton: 3.5.1\n"
SGL_NEWER, SGL_OLDER = "sgl_kernel: 0.3.18.post2\n", "sgl_kernel: 0.3.16\n"


@each_case(
    ("text", "status"),
    [
        (SGLANG + SGL_NEWER, {"info"}),
        (f"The throughput of the new release is 3 % lower.\n{SGLANG}{SGL_NEWER}", {"info"}),
        (f"{SGLANG}{SGL_NEWER}sglang does not start since the upgrade.", {"warning"}),
        (f"{SGLANG}{SGL_NEWER}AttributeError: module 'sgl_kernel' has no attribute 'fp8_gemm'", {"info", "warning"}),
        (f"{SGLANG}{SGL_NEWER}KeyError: 'learning_rate' in my_config.py", {"info"}),
        (SGLANG + SGL_OLDER, {"warning"}),
        ("torch==2.5.1\ntriton==3.2.0\n", {"warning"}),  # torch generates code for one release of triton
    ],
)
def test_a_newer_release_than_the_required_one_is_blamed_only_for_a_failure(text: str, status: set[str]) -> None:
    found = {each.status for each in diagnose_report(parse_report(text)) if each.id in ("PKG001", "PKG050")}
    assert found == status


OLD_NVCC = (
    "PyTorch: 2.6.0+cu124\nGPU 0: NVIDIA GeForce RTX 3090\nNVCC: Cuda compilation tools, release 11.0, V11.0.194\n"
)


@each_case(
    ("text", "causes"),
    [
        ("The profiler writes no file.\n", set()),
        ("torch.compile gives another result than eager.\n", set()),
        ("pip install -e submodules/simple-knn\n", {"nvcc-torch-mismatch", "nvcc-too-old"}),
        ("The extension does not build.\n", {"nvcc-torch-mismatch", "nvcc-too-old"}),
        ("deepspeed==0.17.5\n", {"nvcc-torch-mismatch", "nvcc-too-old"}),  # compiles its optimizers
    ],
)
def test_nvcc_is_blamed_only_if_cuda_code_is_compiled(text: str, causes: set[str]) -> None:
    assert reported_causes(f"{OLD_NVCC}CUDA available: True\nPython: 3.10.12\n{text}") == causes


SERVER = "CUDA available: True\nGPU 0: NVIDIA H200\nCUDA Driver Version: 560.35.03\nPython: 3.10.12\n"
OTHER_ERROR = "Traceback (most recent call last):\nAssertionError: H must be 128, but got 16\n"
FLASH_ATTN = "torch==2.8.0+cu128\nflash_attn==2.8.3+cu12torch2.7cxx11abiTRUE\n"
NO_NVCC = "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found\n"
LOADED = "INFO ggml_cuda_init: found 1 CUDA devices:\nllm_load_tensors: offloaded 0/29 layers to GPU\n"


@each_case(
    ("text", "causes"),
    [
        (OTHER_ERROR + SERVER + "PyTorch: 2.6.0+cu124\nsglang: 0.4.6.post1\nxgrammar: 0.1.18\n", set()),
        ("- [x] I have searched but cannot get help.\n" + SERVER + "sglang: 0.4.6.post1\nxgrammar: 0.1.18\n", set()),
        (OTHER_ERROR + FLASH_ATTN, set()),
        ("ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c10\n" + FLASH_ATTN, {"torch-abi-mismatch"}),
        ("It does not start.\n" + FLASH_ATTN, {"torch-abi-mismatch"}),
        (SERVER + 'File "/Users/me/lib/python3.12/site-packages/openai/c.py", line 1\nvllm: 0.10.2\n', set()),
        ("NVIDIA GeForce RTX 3060, 12288 MiB\n" + LOADED, set()),
        (
            OTHER_ERROR + NO_NVCC + "Python: 3.11.10\nCUDA available: True\nsglang: 0.3.6\n",
            set(),
        ),
        (
            SERVER + 'CUDA_VISIBLE_DEVICES="5" \\\n  llama-server -m model.gguf\nThe answers of slot 1 are wrong.\n',
            set(),
        ),
    ],
)
def test_a_fact_is_not_blamed_for_another_error(text: str, causes: set[str]) -> None:
    assert reported_causes(text) == causes


@each_case(
    "line",
    [
        "FlashAttention 3 requires Hopper GPUs or newer, falling back to FlashAttention 2\n",
        "nvcc not found, skipping the compilation of optional kernels\n",
        "flash_attn is not installed. Falling back to eager attention.\n",
    ],
)
def test_a_fall_back_in_a_report_is_no_fault(line: str) -> None:
    assert not reported_causes(torch_report({}, {}, line))


@each_case(
    ("archs", "expected"),
    [
        ("8.0;8.6;9.0", "8.0;8.6;9.0"),
        ("7.5 8.0 9.0+PTX", "7.5 8.0 9.0+PTX"),
        ("Not Set", None),
        ("", None),
    ],
)
def test_the_architectures_of_vllms_build_flags(archs: str, expected: str | None) -> None:
    text = f"vLLM Version: 0.9.1\nvLLM Build Flags:\nCUDA Archs: {archs}; ROCm: Disabled; Neuron: Disabled\n"
    environment = parse_report(text).machine.environment.value or {}
    assert environment.get("TORCH_CUDA_ARCH_LIST") == expected


@each_case(("archs", "is_reported"), [("8.0;8.6;9.0", False), ("8.0;8.6", True), ("8.0 8.6 9.0+PTX", True)])
def test_a_vllm_that_was_built_for_the_gpu_needs_no_ptx(archs: str, *, is_reported: bool) -> None:
    """Images of NVIDIA set a list of their own, separated by spaces, for which PyPI's vLLM is not built."""
    text = (
        f"vLLM Version: 0.9.1\nvLLM Build Flags:\nCUDA Archs: {archs}; ROCm: Disabled; Neuron: Disabled\n"
        "PyTorch version: 2.7.0+cu126\nCUDA used to build PyTorch: 12.6\nIs CUDA available: True\n"
        "GPU models and configuration: GPU 0: NVIDIA H100 80GB HBM3\nNvidia driver version: 550.90.12\n"
    )
    assert ("TORCH005" in {each.id for each in diagnose_report(parse_report(text))}) == is_reported


@each_case(("remark", "causes"), [("separate, expected", set()), ("the reason", {"cuda-home-missing"})])
def test_a_failure_that_the_author_expects_is_not_blamed(remark: str, causes: set[str]) -> None:
    report = (
        "- GPU: NVIDIA RTX PRO 6000 Blackwell, driver 580.126.09\n- torch 2.11.0+cu130, Python 3.12\n"
        "- nvcc from `/usr/local/cuda/bin`, host compiler g++-10"
        f" (system g++ 9.4 lacks C++20 and fails JIT outright — {remark})\n"
    )
    assert reported_causes(report) == causes


def test_a_warning_of_ds_report_on_an_older_gpu_is_no_error() -> None:
    """The table lists operators that a training need not use."""
    text = (
        "DeepSpeed general environment info:\ntorch version .................... 2.9.1+cu128\n"
        "deepspeed info ................... 0.18.3, unknown, unknown\n"
        " [WARNING]  NVIDIA Inference is only supported on Ampere and newer architectures\n"
        "fp_quantizer ........... [NO] ....... [NO]\n"
    )
    assert not [each for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")]
