"""Facts in sentences, in the output of Python commands, in install commands, and in what Linux prints of a driver."""

from __future__ import annotations

from typing import Any

from support.cases import each_case
from support.report_facts import value_at
from support.report_samples import blamed_causes, versions

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report
from envdoctor.reports.coverage import measure_coverage
from envdoctor.reports.nodes import differing_versions


def gpu_names(text: str) -> list[str | None]:
    return [gpu.name.value for gpu in parse_report(text).machine.gpus.value or ()]


@each_case(
    ("text", "path", "value"),
    [
        ("a new laptop (win 11, RTX 5060, driver 576.52)", "machine.driver.version", "576.52"),
        ("a new laptop (win 11, RTX 5060, driver 576.52)", "machine.system.os", "Windows 11"),
        ("I am on WSL with a 4090", "machine.system.wsl", "WSL"),
        ("Debian 12 with the 550.163.01 driver", "machine.driver.version", "550.163.01"),
        ("Rocky Linux 9, glibc 2.34, Python 3.11.9", "machine.system.glibc", "2.34"),
        ("python --version -> 3.14.0", "stack.python_version", "3.14.0"),
        ("torch.version.cuda is None here", "stack.torch.cuda", "absent"),
        ("torch 2.4 it is, and torch.cuda.is_available() returns False", "stack.cuda_available", False),
        ("PyTorch 2.8.0 (cu128)", "stack.torch.cuda", "12.8"),
        ("I use torch 2.4.0+cu121 and vllm 0.6.3", "stack.torch.version", "2.4.0+cu121"),
        ("Running torch (2.4.0+cu121) with an old driver", "stack.torch.version", "2.4.0+cu121"),
        ("nvcc is release 11.8", "machine.cuda.nvcc_version", "11.8"),
        ("CUDA runtime of PyTorch: 12.8", "stack.torch.cuda", "12.8"),
        ("CUDA runtime of PyTorch: 12.8", "stack.torch.version", "unreadable"),
        ("No, plain desktop: driver 550.120", "machine.driver.version", "550.120"),
        ("torch 2.5.1, driver 550.120, numpy 2.1.0: it never ends", "machine.driver.version", "550.120"),
        ("Debian 12 / 2x L4 / 545.23.08 / torch 2.3.1", "machine.driver.version", "545.23.08"),
        ("an A10 (535.183.01) and torch 2.3.1", "machine.driver.version", "535.183.01"),
        ("T4, driver 470, torch 1.13", "machine.driver.cuda", "11.4"),
        ("torch 2.4.0 still sees no GPU", "stack.cuda_available", False),
        ("torch 2.4.0, torch.cuda.device_count() is 0", "stack.cuda_available", False),
        ("On Windows 11 with torch 2.4.0: does not import", "stack.torch.version", "2.4.0"),
        ("Windows, torch 2.4.0, cannot import it", "machine.system.os", "Windows"),
        ("nvcc release 12.8 V12.8.93, torch 2.4.0, no success", "stack.torch.version", "2.4.0"),
        ("conda list torch -> 2.4.1 cpu_generic_py310h0", "stack.torch.cuda", "absent"),
        ("torch 2.5.1 (py3.11_cuda12.4_cudnn9)", "stack.torch.cuda", "12.4"),
        ("the log: CUDA not available, running on CPU", "stack.cuda_available", False),
        ("A Radeon RX 7900 and torch 2.4.0+cu121", "machine.gpus", "absent"),
    ],
)
def test_fact_of_a_sentence(text: str, path: str, value: Any) -> None:
    report = parse_report(text)
    assert value_at(report, path) == value
    assert report.kinds == ()
    assert report.errors == text  # the sentence may be the symptom as well


@each_case(
    ("text", "expected"),
    [
        ("I use jax (0.4.35) with jaxlib (v0.4.30) on a T4", {"jax": "0.4.35", "jaxlib": "0.4.30"}),
        ("I run unsloth 2025.3.19 with torch 2.6.0", {"torch": "2.6.0", "unsloth": "2025.3.19"}),
        ("I run vllm 2025.8.14 with torch 2.6.0", {"torch": "2.6.0"}),  # a day
        (
            ">>> jax.__version__, jaxlib.__version__\n('0.4.35', '0.4.30')\n>>> hydra.__version__\n'1.3.2'",
            {"jax": "0.4.35", "jaxlib": "0.4.30", "hydra-core": "1.3.2"},
        ),
    ],
)
def test_packages_of_a_sentence(text: str, expected: dict[str, str]) -> None:
    assert versions(parse_report(text)) == expected


@each_case(
    ("text", "path"),
    [
        ("it worked with driver 535.54.03", "machine.driver.version"),
        ("The package needs Python 3.12 or newer.", "stack.python_version"),
        ("driver 550.54 on one node, driver 570.26 on the other node", "machine.driver.version"),
        ("Should I try torch 2.5.0?", "stack.torch.version"),
        ("torch 2.0.1 -> 2.2.2", "stack.torch.version"),
        ("torch 2.4.0 failed, torch 2.5.1 fails as well", "stack.torch.version"),
        ("ImportError: torch 2.4.0 is not compatible", "stack.torch.version"),
        ("my project depends on torch==2.9.0, numpy 2.1.0", "stack.torch.version"),
        ("If torch finds no GPU, restart the container.", "stack.cuda_available"),
    ],
)
def test_other_times_and_several_values_are_no_facts(text: str, path: str) -> None:
    assert value_at(parse_report(text), path) == "unreadable"


@each_case(
    ("text", "names"),
    [
        ("two RTX 3090 in one box", ["RTX 3090", "RTX 3090"]),
        ("8x H100 SXM on bare metal", ["H100 SXM"] * 8),
        ("my 5070 Ti laptop", ["RTX 5070 Ti laptop"]),
        ("4x A5000 box, the RTX A5000 have 24 GB", ["RTX A5000"] * 4),
        ("a Tesla P40", ["Tesla P40"]),
        ("on my 4090 it is fast, on the 5090 it fails", []),
        ("the 4090 samples are in a file", []),
        ("DGX Spark with CUDA 13", ["GB10"]),
        ("it worked on a 3090", []),
        ("rented a 4090 yesterday, vllm does not start", ["RTX 4090"]),
        ("GPU 4090 (24 GB)", ["RTX 4090"]),
        ("gpu = 5080", ["RTX 5080"]),
        ("4090 24GB", ["RTX 4090"]),
        ("a 16GB 4060 Ti", ["RTX 4060 Ti"]),
        ("5090 laptop", ["RTX 5090 laptop"]),
        ("the run took 3060 ms", []),
        ("epoch 4090 16 rows", []),
        ("g5.12xlarge", ["A10G"] * 4),
        ("a SageMaker endpoint on ml.g6e.xlarge", ["L40S"]),
        ("p4d.24xlarge with 8 A100", ["A100 40GB"] * 8),
        ("machine type a3-highgpu-2g", ["H100 80GB"] * 2),
        ("Standard_NC24ads_A100_v4 of Azure", ["A100 80GB"]),
        ("m5.xlarge and c6i.4xlarge", []),
        ("moved from g4dn.xlarge to g5.xlarge", []),
    ],
)
def test_gpus_of_a_sentence(text: str, names: list[str]) -> None:
    assert gpu_names(text) == names


@each_case(
    ("text", "path", "value"),
    [
        (
            (
                'C:\\ai> python -c "import torch; print(torch.__version__, torch.cuda.get_device_name(0), '
                'torch.cuda.is_available())"\n2.5.1+cu121 NVIDIA GeForce RTX 5060 Laptop GPU True'
            ),
            "stack.torch.version",
            "2.5.1+cu121",
        ),
        (
            (
                "$ python -c \"import torch; print(f'torch {torch.__version__} cuda={torch.version.cuda}')\"\n"
                "torch 2.6.0 cuda=12.4"
            ),
            "stack.torch.cuda",
            "12.4",
        ),
        (">>> torch.version.cuda\n>>> torch.cuda.is_available()\nFalse", "stack.torch.cuda", "absent"),
        (
            "python3 -c 'import torch; print(torch.__version__, torch.cuda.device_count())'\n2.4.1+cu121 0",
            "stack.cuda_available",
            False,
        ),
        (">>> print('CUDA', torch.cuda.is_available())\nCUDA False", "stack.cuda_available", False),
        (">>> torch.version.cuda\n'12.1'", "stack.torch.cuda", "12.1"),
        ("In [3]: torch.__version__\nOut[3]: '2.5.1+cu121'", "stack.torch.version", "2.5.1+cu121"),
        (">>> torch.__version__, torch.version.cuda\n('2.5.1', '12.4')", "stack.torch.cuda", "12.4"),
        ("torch.__version__: 2.5.1+cu121", "stack.torch.version", "2.5.1+cu121"),
        ("torch.__version__ 2.5.1, torch.version.cuda 12.4", "stack.torch.cuda", "12.4"),
        ("torch.version.cuda = '11.8'", "stack.torch.cuda", "11.8"),
        ("torch.cuda.is_available() -> False", "stack.cuda_available", False),
        ("torch.cuda.device_count(): 0", "stack.cuda_available", False),
        ("assert torch.__version__ == '2.1.0'", "stack.torch", "unreadable"),
        ("if torch.__version__ >= '2.0':", "stack.torch", "unreadable"),
    ],
)
def test_printed_value(text: str, path: str, value: Any) -> None:
    assert value_at(parse_report(text), path) == value


@each_case(
    ("text", "packages"),
    [
        ("trl.__version__ 0.12.0", {"trl": "0.12.0"}),
        ("- trl.__version__: 0.12.0\n- Python: 3.11", {"trl": "0.12.0"}),
        ("peft.__version__ = '0.13.2'\ntrl.__version__ = '0.12.1'", {"peft": "0.13.2", "trl": "0.12.1"}),
    ],
)
def test_a_stated_version_of_a_module(text: str, packages: dict[str, str]) -> None:
    assert versions(parse_report(text)) == packages


def test_the_name_of_a_printed_gpu_is_read_between_other_values() -> None:
    command = (
        '$ python -c "import torch; print(torch.__version__, torch.cuda.get_device_name(0), torch.version.cuda)"'
    )
    assert gpu_names(f"{command}\n2.5.1+cu121 NVIDIA GeForce RTX 5060 Laptop GPU 12.1") == [
        "NVIDIA GeForce RTX 5060 Laptop GPU"
    ]


@each_case(
    ("text", "requested"),
    [
        ("$ pip install torch==2.6.0 vllm==0.8.2", {"torch": "2.6.0", "vllm": "0.8.2"}),
        ("uv pip install -U 'vllm[flashinfer]==0.10.2' --torch-backend=auto", {"vllm": "0.10.2"}),
        ("  Using cached vllm-0.6.4.post1.tar.gz (3.1 MB)", {"vllm": "0.6.4.post1"}),
        ("pip install vllm==0.8.0\npip install vllm==0.9.0", {"vllm": ""}),
        ("flash-attn: not installed, I want to build 2.8.3", {"flash-attn": "2.8.3"}),
        ("pip install -r requirements.txt", None),
    ],
)
def test_requested_packages(text: str, requested: dict[str, str] | None) -> None:
    assert parse_report(text).stack.requested.value == requested


def test_the_index_of_an_install_command_names_the_build_of_torch() -> None:
    command = "pip3 install torch torchvision --index-url https://download.pytorch.org/whl/"
    assert value_at(parse_report(command + "cu130"), "stack.torch.cuda") == "13.0"
    assert value_at(parse_report(command + "cpu"), "stack.torch.cuda") == "absent"
    assert value_at(parse_report(f"{command}cpu\n{command}cu130"), "stack.torch") == "unreadable"


@each_case(
    ("text", "cuda"),
    [
        ("$ uname -m\naarch64\n$ pip freeze\nnumpy==2.1.3\ntorch==2.5.1\n", "absent"),
        ("PS C:\\x> pip list\nnumpy  2.1.3\ntorch  2.5.1\nWindows 11, RTX 3060", "absent"),
        ("$ uname -m\naarch64\n$ pip freeze\nnumpy==2.1.3\ntorch==2.11.0\n", "unreadable"),
        ("$ pip freeze\nnumpy==2.1.3\ntorch==2.5.1\n", "12.4"),
        ("aarch64, torch.cuda.is_available() is True\n$ pip freeze\nnumpy==2.1.3\ntorch==2.5.1\n", "unreadable"),
    ],
)
def test_pypi_has_no_cuda_build_for_the_platform(text: str, cuda: str) -> None:
    assert value_at(parse_report(text), "stack.torch.cuda") == cuda


def test_a_number_of_visible_devices_is_compared_only_with_a_complete_list() -> None:
    printed = ">>> torch.cuda.get_device_name(0)\n'NVIDIA A40'\nCUDA_VISIBLE_DEVICES=1"
    listed = "GPU 0: NVIDIA A40 (UUID: GPU-11111111-aaaa-bbbb-cccc-222222222222)\nCUDA_VISIBLE_DEVICES=1"
    assert ("cuda-device-selection" in blamed_causes(printed), "cuda-device-selection" in blamed_causes(listed)) == (
        False,
        True,
    )


def test_a_remark_after_a_variable_is_no_part_of_it() -> None:
    report = parse_report("CUDA_VISIBLE_DEVICES=-1     (system wide)")
    assert report.machine.environment.value == {"CUDA_VISIBLE_DEVICES": "-1"}


@each_case(
    ("text", "variables"),
    [
        ('CUDA_VISIBLE_DEVICES="" is set in ~/.bashrc; torch 2.6.0', {"CUDA_VISIBLE_DEVICES": ""}),
        ("NCCL_DEBUG=INFO ; torch 2.6.0", {"NCCL_DEBUG": "INFO"}),
        ("NCCL_DEBUG=INFO and NCCL_IB_DISABLE=1", {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "1"}),
    ],
)
def test_a_sentence_continues_after_a_variable(text: str, variables: dict[str, str]) -> None:
    report = parse_report(text)
    assert report.machine.environment.value == variables
    assert ("torch" in text) == (value_at(report, "stack.torch.version") == "2.6.0")


@each_case(
    ("text", "cuda"),
    [
        ("$ pip list\nnumpy  2.1.3\ntorch  2.8.0\n", "12.8"),
        ("$ pip list\nnumpy  2.1.3\ntorch  2.5.1\nnvidia-cuda-runtime-cu12  12.4.127\n", "12.4"),
        ("- torch: 2.8.0\n- numpy: 2.1.3\n", "unreadable"),  # a list by hand may omit the local version
        ("$ conda list\n# Name  Version  Build  Channel\npytorch  2.5.1  x_0  conda-forge\n", "unreadable"),
    ],
)
def test_the_cuda_version_of_pypis_wheel(text: str, cuda: str) -> None:
    assert value_at(parse_report(text), "stack.torch.cuda") == cuda


@each_case(
    ("text", "path", "value"),
    [
        ("!pip show torch | grep -i version\nVersion: 2.1.2+cu121", "stack.torch.version", "2.1.2+cu121"),
        ("server with vllm/vllm-openai:v0.6.6, docker-compose", "machine.system.container", "docker"),
        ("I did pip install torch==2.6.0", "stack.torch.version", "2.6.0"),
        ("drivers are managed by the centre (525.105.17)", "machine.driver.version", "525.105.17"),
        ("vllm serve x --dtype bfloat16", "stack.dtype", "bfloat16"),
        ("vllm serve x --dtype half", "stack.dtype", "unreadable"),
        ("bf16: true, vllm 0.7.3", "stack.dtype", "bfloat16"),
        (
            (
                "$ lspci | grep VGA\n00:03.0 VGA compatible controller: Amazon.com, Inc. Device 1111\n"
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
            ),
            "machine.gpus",
            "absent",
        ),
    ],
)
def test_fact_of_a_short_text(text: str, path: str, value: Any) -> None:
    assert value_at(parse_report(text), path) == value


def test_a_wheel_that_the_text_names_is_installed() -> None:
    wheel = "flash_attn-2.6.3+cu123torch2.4cxx11abiFALSE-cp310-cp310-linux_x86_64.whl"
    assert "torch-abi-mismatch" in blamed_causes(f"torch 2.6.0+cu124\n{wheel}   (from the release page)")
    assert blamed_causes(f"torch 2.4.0+cu124\n{wheel}   (from the release page)") == set()


def test_bfloat16_is_an_error_only_if_vllm_is_started_with_it() -> None:
    text = "vllm 0.7.3 on a T4\nvllm serve x --dtype "
    assert ("dtype-unsupported-gpu" in blamed_causes(text + "bfloat16"), blamed_causes(text + "half")) == (
        True,
        set(),
    )


@each_case(
    ("text", "missing", "causes"),
    [
        ("torch 2.5.1, RTX 5090", ["driver"], ["gpu-arch-not-in-build"]),
        ("torch 2.8.0+cu128, RTX 5090", ["driver"], []),
        ("H100 80GB, driver 570.133.20, torch 2.8.0+cu128", [], []),
        ("RTX 4090", ["torch", "driver"], []),
        ("torch==2.5.1+cu121", ["GPU", "driver"], []),
        ("driver 535.183.01", ["torch", "GPU"], []),
        ("Python 3.12.3", ["torch", "GPU", "driver"], []),
        ("vllm 0.10.2 on 2x H100", ["torch", "driver"], []),
        ("NVIDIA GeForce RTX 5090, 575.64.03", ["torch"], []),
        ("NVIDIA L4, 550.54.14, 23034 MiB\nNVIDIA L4, 550.54.14, 23034 MiB", ["torch"], []),
        ("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaa)", ["torch", "driver"], []),
        ("Package Version\n------- -------\nnumpy 1.26.4\ntorch 2.5.1\n", ["GPU", "driver"], []),
        ("numpy==1.26.4\npandas==2.2.0\n", ["torch", "GPU", "driver"], []),
        ("torch.cuda.is_available() -> False", ["torch", "GPU", "driver"], []),
        ("Cuda compilation tools, release 12.4, V12.4.131", ["torch", "GPU", "driver"], []),
        ("OS: Windows 11\nGPU: RTX 3060\n", ["torch", "driver"], []),
        ("docker run --gpus all nvcr.io/nvidia/pytorch:24.05-py3", ["GPU", "driver"], []),
        ("transformers 4.57.1\npeft 0.17\n", ["torch", "GPU", "driver"], []),
        ("torch 2.8.0, torchaudio 2.8.0, vllm 0.11.0", ["GPU", "driver"], []),
        ("M2 Max, macOS 15.1, torch 2.7.0", [], []),
        ("GPU: RTX 5090\nDriver: 575.57\ntorch: 2.8.0+cu128", [], []),
    ],
)
def test_what_a_short_text_lacks(text: str, missing: list[str], causes: list[str]) -> None:
    report = parse_report(text)
    coverage = measure_coverage(report)
    assert [each.fact for each in coverage.missing] == missing
    assert coverage.enough == (not missing)
    assert coverage.unread == ()
    assert [each.cause for each in diagnose_report(report) if each.status == "error"] == causes


def test_a_report_of_wsl_without_torch_is_evaluated() -> None:
    found = diagnose_report(parse_report("WSL2, vllm 0.9.0, RTX 4090, driver 560.94: the model loads slowly"))
    assert not [each.id for each in found if each.status in ("error", "warning", "crashed")]


@each_case(
    ("driver", "is_old"),
    [("driver 470", True), ("driver 535", False), ("driver 470.161.03", True), ("driver 545.23.08", False)],
)
def test_a_driver_is_too_old_by_its_version_or_its_branch(driver: str, is_old: bool) -> None:
    assert ("driver-too-old" in blamed_causes(f"RTX A5000, {driver}, torch 2.4.0+cu121")) == is_old


@each_case(
    ("text", "differing"),
    [
        ("head: ray 2.40.0; worker: ray 2.43.0", {"ray": {"head": "2.40.0", "worker": "2.43.0"}}),
        ("ray head: 2.44.1, worker: ray 2.44.1", {}),
        ("node 1: torch 2.4.0\nnode 2: torch 2.3.1", {"torch": {"node 1": "2.4.0", "node 2": "2.3.1"}}),
        ("node 1: torch 2.4.0\nnode 2: vllm 0.6.3", {}),
        ("the head of the log: torch 2.4.0; torch 2.3.1", {}),
    ],
)
def test_versions_of_nodes(text: str, differing: dict[str, dict[str, str]]) -> None:
    assert differing_versions(text) == differing


def test_a_line_with_one_word_is_similar_to_no_error() -> None:
    """Its three names of GCC are one word, which a phrase for a missing compiler has too."""
    assert blamed_causes("{'CUDA_HOME': '/opt/cuda-11.8',\n 'GCC': 'gcc (GCC) 7.5.0',\n 'OpenCV': '4.8.0'}") == set()


def test_the_optional_tensorrt_of_tensorflow_is_no_error() -> None:
    """TensorFlow tries to load it on each start, and finds the GPU without it."""
    loader = (
        "2022-12-13 11:19:05.784273: W tensorflow/compiler/xla/stream_executor/platform/default/dso_loader.cc:64]"
    )
    missing = "libnvinfer.so.7: cannot open shared object file: No such file or directory"
    text = (
        f"GPU: RTX 4090\nPython 3.9\n{loader} Could not load dynamic library 'libnvinfer.so.7'; dlerror: {missing}\n"
    )
    assert blamed_causes(text) == set()
    assert blamed_causes(f"GPU: RTX 4090\nPython 3.9\nImportError: {missing}\n") == {"cudart-missing"}
