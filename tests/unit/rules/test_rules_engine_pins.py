"""Exact versions that an inference engine requires, and other ones in a pasted report."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.core.records import Finding
from envdoctor.reports import parse_report

REPORT = """\
Python: 3.11.11 (main, Dec 16 2024, 17:23:09) [GCC 10.2.1]
CUDA available: True
GPU 0,1,2,3,4,5,6,7: NVIDIA H20
GPU 0,1,2,3,4,5,6,7 Compute Capability: 9.0
CUDA_HOME: /usr/local/cuda
NVCC: Cuda compilation tools, release 12.4, V12.4.99
CUDA Driver Version: 550.127.08
PyTorch: {torch}
sglang: {sglang}
{others}numpy: 1.26.4
zmq: 0.0.0
uvicorn: 0.34.0
uvloop: 0.21.0
openai: 1.70.0
tiktoken: 0.9.0
"""


def findings_of(torch: str, sglang: str, others: str, error: str = "") -> dict[str, Finding]:
    listed = "".join(f"{pair.replace(' ', ': ')}\n" for pair in others.split(", "))
    text = REPORT.format(torch=torch, sglang=sglang, others=listed)
    return {each.id: each for each in diagnose_report(parse_report(text + error))}


OLD_KERNELS = "sgl_kernel 0.0.6, transformers 4.50.3, xgrammar 0.1.16"


def test_all_violated_pins_are_one_finding_with_torch_first() -> None:
    finding = findings_of("2.6.0+cu124", "0.4.5", f"{OLD_KERNELS}, vllm 0.8.2")["PKG050"]
    assert finding.status == "warning"
    assert finding.message == (
        "sglang 0.4.5 requires torch==2.5.1 (installed: 2.6.0+cu124), sgl-kernel==0.0.8 (installed: 0.0.6), "
        "xgrammar==0.1.17 (installed: 0.1.16), transformers==4.51.0 (installed: 4.50.3)"
    )


def test_an_engine_that_cannot_be_installed_again_is_replaced_by_the_next_release() -> None:
    """The index no longer has sgl-kernel below 0.1.0."""
    (remedy,) = findings_of("2.6.0+cu124", "0.4.5", f"{OLD_KERNELS}, vllm 0.8.2")["PKG050"].remedies
    assert remedy.commands == (
        "uv venv --python 3.11 sglang-environment",
        "uv pip install --python sglang-environment 'sglang[all]==0.4.6.post1' --torch-backend=auto",
    )


def test_an_engine_without_other_packages_is_installed_again() -> None:
    (remedy,) = findings_of("2.8.0+cu128", "0.5.10", "transformers 4.56.1")["PKG050"].remedies
    assert remedy.commands == (
        "uv pip install sglang==0.5.10 openai==2.6.1 torch==2.9.1 transformers==5.3.0 --torch-backend=cu128",
    )


def test_the_torch_of_vllm_next_to_an_sglang_that_needs_it() -> None:
    found = findings_of("2.6.0+cu124", "0.4.3.post4", "sgl_kernel 0.0.4, transformers 4.48.3, vllm 0.7.2")
    assert [found[name].status for name in ("VLLM001", "PKG050")] == ["error", "warning"]
    assert "vllm 0.7.2 requires torch==2.5.1" in found["VLLM001"].message
    assert not any("sgl-kernel" in command for each in found["VLLM001"].remedies for command in each.commands)


TRACEBACK = '\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n'


@each_case(
    ("text", "status"),
    [
        ("", "warning"),
        ("\nRuntimeError: undefined symbol: cutlass_moe_mm in vllm/_C.abi3.so\n", "warning"),
        (f"{TRACEBACK}KeyError: 'choices'\n", "info"),
    ],
)
def test_a_vllm_that_sglang_does_not_need(text: str, status: str) -> None:
    found = findings_of("2.6.0+cu124", "0.4.6.post4", "sgl_kernel 0.1.2, vllm 0.7.2", text)["VLLM001"]
    assert (found.status, [each.commands for each in found.remedies]) == (status, [("uv pip uninstall vllm",)])


@each_case(
    ("torch", "sglang", "others"),
    [
        ("2.5.1+cu124", "0.4.5", "sgl_kernel 0.0.8, transformers 4.51.0, xgrammar 0.1.17"),
        ("2.5.1+cu124", "0.4.5", "sgl_kernel 0.0.8, transformers 4.51.3, xgrammar 0.1.18"),  # upgraded for a model
        ("2.7.0+cu128", "0.4.6.post5", "sgl_kernel 0.1.5, transformers 4.52.3, xgrammar 0.1.19"),  # Blackwell image
        ("2.5.0a0+git8d4926e", "0.4.5", "sgl_kernel 0.0.8.post3, transformers 4.51.1, xgrammar 0.1.17"),
        ("2.8.0.dev20250501+cu128", "0.4.6.post2", "sgl_kernel 0.1.3, transformers 4.51.1, xgrammar 0.1.19"),
        ("2.6.0+rocm6.3", "0.4.5", "transformers 4.50.3, xgrammar 0.1.16"),
        ("2.9.1+cu130", "0.5.5.post3", "sgl_kernel 0.3.18.post2, triton 3.5.1"),  # a checkout
        ("2.6.0+cu124", "0.4.5", "vllm 0.8.2"),  # an SGLang that needs no vLLM
    ],
)
def test_environments_that_run(torch: str, sglang: str, others: str) -> None:
    found = findings_of(torch, sglang, others)
    assert not [each for each in found.values() if each.id in ("PKG050", "VLLM001") and each.status != "info"]


@each_case(
    ("error", "status"),
    [
        ("\nThe server returns an empty answer for the second request of a batch, not for the first.\n", "info"),
        (f"{TRACEBACK}KeyError: 'choices'\n", "info"),
        (f"{TRACEBACK}ImportError: cannot import name 'rotary' from 'sgl_kernel'\n", "warning"),
    ],
)
def test_a_text_about_another_failure(error: str, status: str) -> None:
    assert findings_of("2.6.0+cu124", "0.4.5", OLD_KERNELS, error)["PKG050"].status == status
