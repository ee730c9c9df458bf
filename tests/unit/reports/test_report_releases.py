"""Reports that name the release of one package, next to the GPU, the driver, the Python or another package."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

FAILS = "It fails at start.\n"


def blamed(text: str) -> set[str]:
    findings = diagnose_report(parse_report(text))
    return {each.cause for each in findings if each.status in ("error", "warning")}


@each_case(
    ("text", "cause"),
    [
        (f"{FAILS}vllm==0.11.0\nDriver: 470.82.01\n", "driver-too-old"),
        (f"{FAILS}- vLLM: 0.20.0\n- NVIDIA driver: 535.104.05\n", "driver-too-old"),
        ("torch 2.1.0, driver 470.57.02. CUDA is not available\n", "driver-too-old"),
        (
            "I cannot use CUDA 11.4 (Driver Version: 470.182.03), where the torch version is torch=2.1.0.",
            "driver-too-old",
        ),
        (
            "推理不支持RTX50系列显卡\nWSL2-ubuntu24.04\npaddlepaddle-gpu 3.1.0\nnvidia: RTX 5060\n",
            "ext-arch-not-in-build",
        ),
        (f"{FAILS}flashinfer: 0.1.3\nGPU 0: Tesla T4\n", "gpu-unsupported-by-library"),
        (f"{FAILS}trl==0.7.4\ntransformers==4.57.0\n", "transformers-too-new"),
        (f"{FAILS}Python: 3.12\nray==2.9.0\n", "python-unsupported"),
        (f"{FAILS}Python: 3.12\nnumpy==1.24.4\n", "python-unsupported"),
        (f"{FAILS}Python: 3.12\npaddlepaddle-gpu==2.5.2\n", "python-unsupported"),
    ],
)
def test_a_release_names_the_fault(text: str, cause: str) -> None:
    assert cause in blamed(text)


@each_case(
    "text",
    [
        "vllm==0.11.0\nDriver: 470.82.01\n",  # can be the wheel for CUDA 11.8, and nothing failed
        f"{FAILS}vllm==0.11.0\nDriver: 535.104.05\n",
        f"{FAILS}vllm==0.8.5+cu118\nDriver: 470.82.01\n",
        "torch 2.1.0, driver 470.57.02. RuntimeError: shapes do not match\n",
        f"{FAILS}- torch: 2.1.0+cu118\n- driver: 470.57.02\n",
        f"{FAILS}paddlepaddle-gpu 3.2.0\nGPU: RTX 5060\n",
        f"{FAILS}paddlepaddle-gpu 3.1.0\nGPU: RTX 4060\n",
        f"{FAILS}flashinfer: 0.1.6\nGPU 0: Tesla T4\n",
        f"{FAILS}trl==0.7.4\ntransformers==4.38.2\n",
        f"{FAILS}trl==0.8.6\ntransformers==4.40.0\n",
        f"{FAILS}Python: 3.11\nray==2.9.0\nnumpy==1.24.4\n",
        f"{FAILS}Python: 3.12\nray==2.34.0\nnumpy==1.26.4\n",
        # The names of packages next to a text without Latin words are similar to no error.
        "运行报错\n操作系统 Windows 11\ndeepspeed 0.10.0\n",
        "运行报错\npython 3.11\nflash-attn 2.6.3\n",
    ],
)
def test_a_sound_pair_is_not_blamed(text: str) -> None:
    assert not blamed(text)
