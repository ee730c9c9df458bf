"""Reports that name the release of one package, next to the GPU, the driver, the Python or another package."""

# ruff: noqa: RUF001, E501 - full-width characters, and forms on one line

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


@each_case(
    ("text", "cause"),
    [
        ("The configuration explicitly specifies torch==2.5.1. However, my RTX 5060 Ti GPU requires sm_120.", "gpu-arch-not-in-build"),
        ("gpu ：1070\npaddle-gpu版本 2.5.1\n操作系统  windows11\n识别失败\n", "gpu-arch-dropped"),
        ("### TensorFlow version\n\ntf2.13.0\n\n### OS platform and distribution\n\nWindows 10\n\n### GPU model and memory\n\nNvidia Geforce GTX 1050TI\n", "platform-no-wheel"),
        ("- Python Version Used: 3.12.2\n\nPackage Version\n------- -------\nblis    0.7.11\nnumpy   2.0.0\n", "numpy2-abi"),
    ],
)  # fmt: skip
def test_short_forms_of_a_report_name_the_fault(text: str, cause: str) -> None:
    assert cause in blamed(text)
    assert "gpu-unsupported-by-library" not in blamed(text)


def test_pure_python_of_an_index_for_one_torch_is_not_compiled_for_it() -> None:
    text = "torch 1.12.1\npip install torch-scatter torch-geometric -f https://data.pyg.org/whl/torch-1.11.0+cu115.html\n"
    messages = [each.message for each in diagnose_report(parse_report(text))]
    assert any("torch-scatter" in each for each in messages)
    assert not any("torch-geometric" in each for each in messages)


def test_the_fix_of_an_older_flashinfer_names_the_release_for_the_gpu() -> None:
    findings = diagnose_report(parse_report(f"{FAILS}flashinfer: 0.1.3\nGPU 0: Tesla T4\n"))
    assert any("0.1.6" in each.fix for each in findings)


def test_the_index_of_mmcv_names_the_torch_of_its_wheels() -> None:
    torch = "pip install torch==1.9.0+cu111 -f https://download.pytorch.org/whl/torch_stable.html\n"
    page = "https://download.openmmlab.com/mmcv/dist/cu111/torch{}/index.html\n"
    mmcv = f"{torch}pip install mmcv-full==1.6.2 -f {page}"
    assert "torch-abi-mismatch" in blamed(mmcv.format("1.10.0"))
    assert not blamed(mmcv.format("1.9.0"))
    assert not blamed(mmcv.format("1.10.0").replace("mmcv-full==1.6.2", "mmcv-full==1.6.2 --no-binary :all:"))


def test_the_name_of_pip_has_the_python_version() -> None:
    assert parse_report("$ pip3.14 install spacy\n").stack.python_version.value == "3.14"
    assert parse_report("python3.13 -m pip install vllm\n").stack.python_version.value == "3.13"
    assert parse_report("pip3.12 install a\npip3.14 install a\n").stack.python_version.value is None


def test_torchtext_ended_with_torch_2_3() -> None:
    assert "torch-companion-mismatch" in blamed("torch        2.4.1+cu121\ntorchtext    0.18.0\n")
    assert not blamed("torch        2.3.1+cu121\ntorchtext    0.18.0\n")


def test_k2_without_cuda() -> None:
    text = "k2 version: 1.24.4\nWith CUDA: {}\nPyTorch version: 2.3.1+cu121\nGPU 0: NVIDIA GeForce RTX 3090\n"
    assert blamed(text.format(False)) == {"ext-cpu-build"}
    assert not blamed(text.format(True))


def test_the_kernels_of_autoawq_are_for_one_torch() -> None:
    """Their metadata requires torch >=2.0.1."""
    text = "torch 2.1.0+cu121\nautoawq 0.2.5\nautoawq_kernels 0.0.6\n"
    finding = next(each for each in diagnose_report(parse_report(text)) if each.cause == "torch-abi-mismatch")
    assert finding.message == "autoawq-kernels 0.0.6 requires torch==2.2.*, but 2.1.0+cu121 is installed"
    assert finding.fix == "Install torch==2.2.*, or a release of autoawq-kernels for torch 2.1.0+cu121."
    assert not blamed(text.replace("2.1.0", "2.2.1"))
    assert not blamed(text.replace("2.1.0", "2.4.1").replace("0.0.6", "0.0.8"))
    assert "torch-abi-mismatch" in blamed(text.replace("2.1.0", "2.3.1").replace("0.0.6", "0.0.8"))


def test_auto_gptq_is_for_one_torch() -> None:
    assert "torch-abi-mismatch" in blamed("torch 2.3.1+cu121\nauto-gptq 0.7.1\n")
    assert not blamed("torch 2.2.2+cu121\nauto-gptq 0.7.1\n")
    assert not blamed("torch 2.1.2+cu118\nauto-gptq 0.6.0+cu118\n")


def test_gcc_next_to_cuda_alone_is_judged_if_the_text_is_about_a_build() -> None:
    text = "I use:\n- Ubuntu 24.04 LTS\n- gcc (Ubuntu 13.2.0-23ubuntu4) 13.2.0\n- {}\n\n{}\n"
    assert blamed(text.format("cuda_12.1", "I ran `cmake . -B build`")) == {"gcc-too-new-for-nvcc"}
    assert not blamed(text.format("cuda_12.1", "vLLM serves a model slowly"))
    assert not blamed(text.format("CUDA 12.4", "I ran `cmake . -B build`"))


def test_a_printed_fact_on_cuda_home_is_no_error() -> None:
    assert not blamed("PyTorch Version: 1.13.0\nPyTorch CUDA: 11.7\nSystem CUDA_HOME is None: True\n")
