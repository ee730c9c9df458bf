"""Issue forms of TensorFlow and ONNX Runtime, and the report of Colossal-AI."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report


def rules_of(text: str) -> set[str]:
    findings = diagnose_report(parse_report(text))
    return {finding.id for finding in findings if finding.status in ("error", "warning")}


def tensorflow_form(version: str, system: str, cuda: str = "12.3", gpu: str = "RTX4060") -> str:
    fields = {
        "Issue type": "Bug", "Source": "binary", "TensorFlow version": version, "Custom code": "Yes",
        "OS platform and distribution": system, "Python version": "3.11", "CUDA/cuDNN version": cuda,
        "GPU model and memory": gpu,
    }  # fmt: skip
    return "".join(f"### {key}\n\n{value}\n\n" for key, value in fields.items())


@each_case(
    ("version", "system", "cuda", "gpu"),
    [
        ("2.12.1", "Windows 11  23H2", "11.7.1", "RTX4060"),
        ("tf 2.16", "win10", "12.3", "_No response_"),
        ("v2.12.0-rc1-12-g0db597d0d75 2.12.0", "Windows 10", "cuda_11.8.0_522.06_windows", "1050ti 4 GB"),
        ("2.14.0", "Windows 10 22H2 19045.3448", "CUDA v11.2, cudnn-11.2-windows-x64-v8", "GeForce GTX 960M, 4Gb"),
    ],
)
def test_tensorflow_for_windows_has_no_cuda(version: str, system: str, cuda: str, gpu: str) -> None:
    assert "PY010" in rules_of(tensorflow_form(version, system, cuda, gpu))


@each_case(
    ("version", "system", "cuda", "gpu"),
    [
        ("2.10.1", "Windows 10", "11.2", "RTX 3060"),
        ("2.17.0", "Ubuntu 22.04", "12.3", "RTX 4060"),
        ("2.17.0", "Windows 11, WSL2 Ubuntu 22.04", "12.3", "RTX 4060"),
        ("2.17.0", "Windows 11", "_No response_", "_No response_"),
        ("nightly", "Windows 11", "12.3", "RTX 4060"),
    ],
)
def test_other_tensorflows_are_not_reported(version: str, system: str, cuda: str, gpu: str) -> None:
    assert "PY010" not in rules_of(tensorflow_form(version, system, cuda, gpu))


def old_tensorflow_form(version: str, cuda: str, system: str = "Linux Ubuntu 18.04") -> str:
    return (
        "**System information**\n- OS Platform and Distribution (e.g., Linux Ubuntu 16.04): " + system + "\n"
        "- TensorFlow installed from (source or binary): binary\n"
        f"- TensorFlow version (use command below): {version}\n- Python version: 3.8.2\n"
        f"- CUDA/cuDNN version: {cuda}\n- GPU model and memory: GeForce GTX 1080, 8GB\n"
    )


@each_case(
    ("version", "cuda", "is_reported"),
    [
        ("v2.3.0-rc2-23-gb36436b087 2.3.0", "10.2, 8.0.2", True),
        ("2.3.0", "10.1/7.6", False),
        ("2.4.1", "11.0/8.0", False),
        ("2.4.1", "11.2/8.1", True),
        ("2.8.0", "CUDA 12.1 / cuDNN 8.9", True),
        ("2.8.0", "11.7", False),
        ("2.15.0", "11.8", False),
    ],
)
def test_toolkits_of_another_cuda_than_tensorflow_loads(version: str, cuda: str, is_reported: bool) -> None:
    assert ("PY011" in rules_of(old_tensorflow_form(version, cuda))) is is_reported


def test_conda_and_wheels_have_the_libraries_of_tensorflow() -> None:
    for line in ("cudatoolkit==11.2.2", "nvidia-cuda-runtime-cu11==11.8.89", "torch==2.1.0"):
        assert "PY011" not in rules_of(
            old_tensorflow_form("2.8.0", "12.1") + f"\npip freeze:\n{line}\nnumpy==1.24.1\n"
        )


def test_the_list_that_tensorflow_had_as_a_form_is_read() -> None:
    report = parse_report(old_tensorflow_form("2.3.0", "10.1/7.6"))
    assert report.stack.distributions.value["tensorflow"].version == "2.3.0"
    assert (report.machine.system.os.value, report.machine.cuda.nvcc_version.value) == ("Linux Ubuntu 18.04", "10.1")
    assert [gpu.name.value for gpu in report.machine.gpus.value] == ["GeForce GTX 1080"]


def test_gcc_is_not_compared_with_the_toolkit_of_tensorflow() -> None:
    text = (
        tensorflow_form("2.8.0", "Ubuntu 22.04", "11.2") + "### GCC/compiler version\n\ngcc (Ubuntu 11.3.0) 11.3.0\n"
    )
    assert "CUDA003" not in rules_of(text)


def test_tensorflow_next_to_torch_is_for_tensorboard() -> None:
    text = "Windows 11, RTX 3060\ntensorflow==2.15.0\ntorch==2.1.2+cu121\ntorchvision==0.16.2+cu121\n"
    assert "PY010" not in rules_of(text)


def onnxruntime_form(version: str, library: str, provider: str = "CUDA", api: str = "Python") -> str:
    fields = {
        "Describe the issue": "The session runs on the CPU.", "Platform": "Windows", "OS Version": "11",
        "ONNX Runtime Installation": "Released Package", "ONNX Runtime Version or Commit ID": version,
        "ONNX Runtime API": api, "Architecture": "X64", "Execution Provider": provider,
        "Execution Provider Library Version": library,
    }  # fmt: skip
    return "".join(f"### {key}\n\n{value}\n\n" for key, value in fields.items())


@each_case(
    ("version", "library"),
    [("1.16.2", "CUDA12.1"), ("onnxruntime-gpu 1.19.0", "CUDA 11.7"), ("1.20.1", "CUDA 11.8, cuDNN 8.9"),
     ("1.27.0", "CUDA 12.2/12.6")],
)  # fmt: skip
def test_onnxruntime_is_for_another_cuda(version: str, library: str) -> None:
    assert "PKG030" in rules_of(onnxruntime_form(version, library))


@each_case(
    ("version", "library", "provider", "api"),
    [
        ("1.19.2", "CUDA12.1", "CUDA", "Python"),
        ("1.16.3", "CUDA 11.8, cuDNN 8.9", "CUDA", "Python"),
        ("1.16.2", "CUDA 12.1", "CUDA", "C++"),
        ("1.16.2", "CUDA 12.1", "Default CPU", "Python"),
        ("1.16.2", "_No response_", "CUDA", "Python"),
    ],
)
def test_fitting_and_other_onnxruntimes_are_not_reported(version: str, library: str, provider: str, api: str) -> None:
    assert "PKG030" not in rules_of(onnxruntime_form(version, library, provider, api))


def test_the_cuda_of_a_sentence_is_not_a_toolkit() -> None:
    assert "PKG030" not in rules_of("RTX 4090, CUDA 13.0, Ubuntu 24.04\nonnxruntime-gpu==1.22.0\nnumpy==2.1.0\n")


COLOSSALAI = """\
#### Installation Report ####

------------ Environment ------------
Colossal-AI version: 0.3.6
PyTorch version: 2.1.2
{key}: {nvcc}
CUDA version required by PyTorch: {cuda}

------------ CUDA Extensions AOT Compilation ------------
Found AOT CUDA Extension: x
"""


@each_case(
    ("key", "nvcc", "cuda"),
    [("System CUDA version", "9.1", "11.7"), ("CUDA version", "**10.1**", "**11.7**")],
)
def test_colossalai_compares_the_toolkit_with_torch(key: str, nvcc: str, cuda: str) -> None:
    assert "CUDA001" in rules_of(COLOSSALAI.format(key=key, nvcc=nvcc, cuda=cuda))


@each_case("nvcc", ["12.1", "12.4", "N/A"])
def test_a_fitting_toolkit_of_colossalai_is_not_reported(nvcc: str) -> None:
    assert rules_of(COLOSSALAI.format(key="System CUDA version", nvcc=nvcc, cuda="12.1")) == set()


@each_case(
    "command",
    [
        "conda install pytorch==2.4.0 torchvision==0.19.0 pytorch-cuda=12.1 -c pytorch -c nvidia",
        "conda install pytorch torchvision pytorch-cuda=12.1 -c pytorch -c nvidia",
        "(env) $ mamba install pytorch=1.12.1 cudatoolkit=11.3 -c pytorch",
    ],
)
def test_a_conda_command_names_the_build_of_torch(command: str) -> None:
    assert "TORCH001" in rules_of(f"GPU: RTX 5090\nPython: 3.11\nI ran:\n{command}\n")
    assert "TORCH001" not in rules_of(f"GPU: RTX 3090\nPython: 3.11\nI ran:\n{command}\n")


@each_case(
    "text",
    [
        "torch: 2.8.0+cu128\nThe README has `conda install pytorch==2.4.0 pytorch-cuda=12.1 -c pytorch`",
        "conda install numpy cudatoolkit=11.3",
        "conda install pytorch pytorch-cuda=12.1\nconda install pytorch=2.5.1 pytorch-cuda=12.4",
    ],
)
def test_other_conda_commands_name_no_build(text: str) -> None:
    assert "TORCH001" not in rules_of(f"GPU: RTX 5090\nPython: 3.11\n{text}\n")
