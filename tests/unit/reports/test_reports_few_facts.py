"""Reports of two to six facts in the spellings that people use: each names the fault, and sound pairs stay silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report
from envdoctor.rules import evaluate

Facts = dict[str, str]
NAMES = {"torch": "PyTorch", "python": "Python", "gpu": "GPU", "driver": "Driver", "os": "OS"}
CHINESE = {"torch": "pytorch", "gpu": "显卡", "driver": "显卡驱动", "os": "操作系统"}
BARE = ("gpu", "os")  # named without their label in prose


def bullets(facts: Facts) -> str:
    return "My environment:\n" + "".join(f"- {NAMES.get(name, name)}: {value}\n" for name, value in facts.items())


def labels(facts: Facts) -> str:
    return "".join(f"{NAMES.get(name, name)} version: {value}\n" for name, value in facts.items())


def pins(facts: Facts) -> str:
    return "".join(
        f"{NAMES[name]}: {value}\n" if name in NAMES and name != "torch" else f"{name}=={value}\n"
        for name, value in facts.items()
    )


def sentence(facts: Facts) -> str:
    items = [value if name in BARE else _with_cuda(name, value) for name, value in facts.items()]
    return f"It fails on my machine. Environment: {', '.join(items)}.\n"


def table(facts: Facts) -> str:
    rows = "".join(f"| {NAMES.get(name, name)} | {value} |\n" for name, value in facts.items())
    return "| Component | Version |\n|---|---|\n" + rows


def full_width(text: str) -> str:
    """The text with the marks of Chinese in place of their names."""
    return text.replace("COLON", "\uff1a").replace("COMMA", "\uff0c")


def chinese(facts: Facts) -> str:
    lines = ["运行报错COMMA环境如下COLON"]
    for name, value in facts.items():
        version, _, digits = value.partition("+cu") if name == "torch" else (value, "", "")
        lines.append(f"{CHINESE.get(name, name)}{'' if name in BARE else '版本'}COLON{version}")
        lines += [f"cuda版本COLON{digits[:2]}.{digits[2:]}"] if digits else []
    return full_width("\n".join(lines) + "\n")


def plain(facts: Facts) -> str:
    return "Here is my setup\n" + "".join(
        f"{value}\n" if name in BARE else f"{name} {value}\n" for name, value in facts.items()
    )


def _with_cuda(name: str, value: str) -> str:
    """`Pytorch 2.1.0 (cuda 11.8)`."""
    version, _, digits = value.partition("+cu")
    return f"Pytorch {version} (cuda {digits[:2]}.{digits[2:]})" if digits else f"{name} {value}"


SPELLINGS: tuple[Callable[[Facts], str], ...] = (bullets, labels, pins, sentence, table, chinese, plain)
FAULTY: tuple[tuple[str, Facts], ...] = (
    ("gpu-arch-not-in-build", {"torch": "2.1.0+cu118", "gpu": "RTX 5090"}),
    ("gpu-arch-not-in-build", {"torch": "1.13.1+cu117", "gpu": "H100", "os": "Ubuntu 20.04"}),
    ("gpu-arch-dropped", {"torch": "2.9.1+cu130", "gpu": "GTX 1080 Ti", "os": "Windows 10"}),
    ("driver-too-old", {"torch": "2.9.0+cu130", "gpu": "RTX 4090", "driver": "550.54.14"}),
    ("driver-too-old", {"torch": "2.8.0", "gpu": "RTX 3090", "driver": "470.199.02", "os": "Ubuntu 20.04"}),
    ("glibc-too-old", {"torch": "2.8.0", "os": "CentOS 7"}),
    ("glibc-too-old", {"vllm": "0.11.0", "os": "Ubuntu 18.04"}),
    ("no-nvidia-gpu", {"torch": "2.3.1+cu121", "gpu": "AMD Radeon RX 6700 XT", "os": "Windows 11"}),
    ("python-unsupported", {"jax": "0.4.31", "python": "3.9"}),
    ("python-unsupported", {"onnxruntime-gpu": "1.17.1", "python": "3.13"}),
    ("python-unsupported", {"torch": "2.1.0+cu118", "python": "3.13.1", "os": "Windows 11"}),
    ("python-unsupported", {"torch": "2.5.1+cu121", "python": "3.8.10"}),
    ("python-unsupported", {"tensorflow": "2.15.0", "python": "3.13", "os": "Windows 11"}),
    ("python-unsupported", {"transformers": "4.50.0", "python": "3.8"}),
    ("python-unsupported", {"vllm": "0.9.1", "python": "3.13"}),
    ("bnb-no-cuda-binary", {"torch": "2.7.0+cu128", "bitsandbytes": "0.45.0"}),
    ("torch-companion-mismatch", {"torch": "2.6.0", "torchaudio": "2.5.1", "python": "3.10"}),
    ("numpy2-abi", {"torch": "2.1.2", "numpy": "2.0.1"}),
)
SOUND: tuple[Facts, ...] = (
    {"torch": "2.7.1+cu128", "gpu": "RTX 5090", "python": "3.12"},
    {"torch": "2.4.1+cu118", "gpu": "Tesla V100", "driver": "470.199.02"},
    {"torch": "2.6.0+cu126", "gpu": "GTX 1080 Ti", "os": "Windows 10", "python": "3.13"},
    {"torch": "2.9.0+cu130", "gpu": "RTX 4090", "driver": "580.95.05", "python": "3.14"},
    {"torch": "2.5.1", "os": "CentOS 7", "python": "3.11"},
    {"torch": "2.8.0", "os": "Ubuntu 20.04", "python": "3.11"},
    {"torch": "1.12.1", "xformers": "0.0.18"},  # conda has this build
    {"torch": "2.3.1+cpu", "gpu": "AMD Radeon RX 6700 XT", "os": "Windows 11"},
    {"torch": "2.10.0+cu130", "triton": "3.6.0.post26", "os": "Windows 11", "gpu": "RTX 5070 Ti"},  # triton-windows
    {"jax": "0.4.30", "jaxlib": "0.4.30", "python": "3.9"},
    {"transformers": "5.3.0", "peft": "0.15.2", "torch": "2.6.0"},  # every name that peft imports is there
    {"transformers": "4.49.0", "trl": "0.16.0.dev0", "torch": "2.6.0"},
    {"onnxruntime-gpu": "1.18.1", "python": "3.12"},
    {"tensorflow": "2.17.0", "python": "3.12"},
    {"tensorflow": "2.9.1", "python": "3.8"},
    {"transformers": "4.46.3", "python": "3.8"},
    {"vllm": "0.11.0", "python": "3.13"},
    {"torch": "2.1.2+cu121", "numpy": "1.26.4", "python": "3.11"},
)


def problems(text: str) -> set[str]:
    """The causes of the errors and warnings of a report."""
    report = parse_report(text)
    return {
        each.cause
        for each in evaluate(report.machine, report.stack)
        if each.status in ("error", "warning", "crashed")
    }


@pytest.mark.parametrize("spell", SPELLINGS, ids=lambda spell: spell.__name__)
@pytest.mark.parametrize(("cause", "facts"), FAULTY, ids=lambda value: str(value)[:60])
def test_faulty_pair_is_named_in_each_spelling(cause: str, facts: Facts, spell: Callable[[Facts], str]) -> None:
    assert cause in problems(spell(facts)), spell(facts)


@pytest.mark.parametrize("spell", SPELLINGS, ids=lambda spell: spell.__name__)
@pytest.mark.parametrize("facts", SOUND, ids=lambda value: str(value)[:60])
def test_sound_facts_are_silent_in_each_spelling(facts: Facts, spell: Callable[[Facts], str]) -> None:
    assert not problems(spell(facts)), spell(facts)


def test_host_compiler_of_a_list_is_read() -> None:
    assert "gcc-too-new-for-nvcc" in problems("- gcc: 13.2.0\n- nvcc: 11.8\n")
    assert "gcc-too-new-for-nvcc" in problems("GCC version: gcc (Ubuntu 12.3.0-1ubuntu1) 12.3.0\nnvcc: 11.3\n")
    assert "gcc-too-new-for-nvcc" in problems(
        "gcc (GCC) 11.2.0\nnvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 10.1, V10.1.243\n"
    )
    assert not problems("- gcc: 11.4.0\n- nvcc: 11.8\n")
    assert not problems("- compiler: clang 14.0.0\n- nvcc: 11.8\n")


def test_python_of_an_environment_with_an_imported_torch_is_no_fault() -> None:
    """A distribution can build torch for a newer Python; there, torch prints whether CUDA is available."""
    printed = "PyTorch version: 2.4.0\nPython version: 3.13.1\nIs CUDA available: True\n"
    assert not problems(printed)
    assert not problems("torch: 2.4.0a0+3bcc3cddb5.nv24.07\nPython: 3.13\n")  # of a container
    assert not problems("torch: 2.4.0\nPython: 3.1\n")  # cut off


def test_short_lines_with_chinese_labels_are_no_paragraph() -> None:
    text = "环境如下COLON\n显卡COLONRTX 4090\npytorch版本COLON2.4.1\n操作系统COLONWindows 10\npython版本COLON3.10\n"
    report = parse_report(full_width(text))
    assert report.stack.python_version.value == "3.10"
    assert report.machine.system.os.value == "Windows 10"


def test_tensorflow_is_compared_with_the_toolkit_of_the_form() -> None:
    form = "### TensorFlow version\n\ntf {}\n\n### Python version\n\n3.8\n\n### CUDA/cuDNN version\n\ncuda {}\n"
    assert "cudart-missing" in problems(form.format("2.13", "12.8 cudnn 9.7.1"))
    assert not problems(form.format("2.13", "11.8"))
    assert not problems("tensorflow==2.13.0\ntorch==2.1.0+cu121\nnumpy==1.24.3\n")  # for TensorBoard
    assert not problems(form.format("2.16.1", "11.8").replace("3.8", "3.11"))  # tensorflow[and-cuda] has CUDA 12


def test_sentence_about_a_machine_without_nvidia_gpu() -> None:
    pc = (
        "pytorch 2.0.1+cu118\nWindows10\nPython 3.10.11\nAn office computer with no discrete graphics, only UHD 630\n"
    )
    assert "no-nvidia-gpu" in problems(pc)
    assert "no-nvidia-gpu" not in problems(pc.replace("no discrete graphics, only UHD 630", "an RTX 3060"))


def test_old_system_of_a_container_or_of_an_imported_torch_is_no_fault() -> None:
    assert not problems("OS: CentOS 7\nPyTorch: 2.8.0\nCUDA available: True\n")
    assert not problems(
        "- OS: CentOS 7\n- Docker image: pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\n- torch: 2.8.0\n"
    )


def test_release_with_a_build_for_the_driver_is_no_fault() -> None:
    assert not problems("- PyTorch: 2.6.0\n- GPU: RTX 3090\n- Driver: 470.199.02\n")  # one is for CUDA 11.8


def test_torch_of_the_index_is_not_of_conda() -> None:
    """conda has xformers 0.0.18 for torch 1.12.1, PyPI for 2.0.0 only."""
    assert "torch-abi-mismatch" in problems("torch==1.12.1+cu113\nxformers==0.0.18\nnumpy==1.24.0\n")
    assert not problems("torch==1.12.1\nxformers==0.0.18\nnumpy==1.24.0\n")


def findings(text: str) -> dict[str, str]:
    """The causes of the errors and warnings on a report and its lines, with their rules."""
    return {
        each.cause: each.id for each in diagnose_report(parse_report(text)) if each.status in ("error", "warning")
    }


def test_failed_installation_in_words_is_a_request() -> None:
    facts = "OS: Win11\nPython: 3.10.9\nPyTorch version: 2.5.1+cu121\n"
    assert findings("Only Flash Attn failed to install.\n" + facts)["flash-attn-no-wheel"] == "FA004"
    assert findings("flash-attn\u5b89\u88c5\u5931\u8d25\n" + facts)["flash-attn-no-wheel"] == "FA004"
    assert not findings("Flash Attn is installed.\n" + facts)
    assert not findings("Only Flash Attn failed to install.\n" + facts.replace("Win11", "Ubuntu 22.04"))


def test_last_lines_of_the_warning_of_xformers_decide() -> None:
    lines = "PyTorch 2.9.0+cu128 with CUDA 1208 (you have {})\n  Please reinstall xformers\n"
    assert "torch-abi-mismatch" in findings(lines.format("2.10.0+cu128"))
    assert "torch-cpu-build" in findings(lines.format("2.9.0+cpu"))


def test_host_compiler_next_to_nvcc_alone_is_about_a_build() -> None:
    commands = (
        "$ gcc --version\ngcc (GCC) 12.1.0\n$ nvcc --version\nCuda compilation tools, release 11.3, V11.3.109\n"
    )
    assert findings(commands) == {"gcc-too-new-for-nvcc": "CUDA003"}
    assert not findings(commands + "$ python -c 'import torch; print(torch.__version__)'\n2.4.1+cu118\n")


def test_one_version_for_torch_and_torchvision_is_that_of_torch() -> None:
    text = "I use it on Windows 11 with Python 3.10.13, torch and torchvision 2.2.2+cu121, triton 3.0.0\n"
    report = parse_report(text)
    assert {name: each.version for name, each in (report.stack.distributions.value or {}).items()} == {
        "torch": "2.2.2+cu121"
    }
    assert not findings(text)  # torch requires triton on Linux only


def test_wheel_of_a_build_in_an_install_command_is_for_some_pythons() -> None:
    """The log of a program that installs torch into an environment of Python 3.11."""
    log = (
        "Python 3.11.0 (main, Oct 24 2022, 18:26:48) [MSC v.1933 64 bit (AMD64)]\n"
        "Command: python.exe -m pip install torch=={} --extra-index-url https://download.pytorch.org/whl/cu118\n"
    )
    assert findings(log.format("1.12.1+cu113"))["python-unsupported"] == "PKG019"
    assert "python-unsupported" not in findings(log.format("2.1.0+cu118"))


def test_library_without_a_version_is_compared_with_its_newest_release() -> None:
    assert not problems("import tensorflow as tf\nNo GPU found by tensorflow\n- Python: 3.13\n- OS: Ubuntu 24.04\n")
    assert not problems("- Python: 3.14\n- OS: Ubuntu 24.04\nimport onnxruntime\n")
