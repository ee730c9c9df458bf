"""Pasted package lists, and facts in log and error messages."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.knowledge.tables import FOLDER
from envdoctor.reports import parse_report
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.rules.known_breaks import known_breaks


def versions(text: str) -> dict[str, str]:
    distributions = parse_report(text).stack.distributions.value or {}
    return {name: distribution.version for name, distribution in distributions.items()}


@each_case(
    ("text", "kind", "expected"),
    [
        (
            "$ pip freeze\ntorch==2.4.0\nnumpy==1.26.4\nmy-tool @ file:///home/u/my-tool\n",
            "pip freeze",
            {"torch": "2.4.0", "numpy": "1.26.4"},
        ),
        ("torch==2.4.0\nnumpy==1.26.4\n", "pip freeze", {"torch": "2.4.0", "numpy": "1.26.4"}),
        (
            "Package       Version\n------------- -------\nFlash_Attn    2.8.3\nsix           1.17.0  /home/u/six\n",
            "pip list",
            {"flash-attn": "2.8.3", "six": "1.17.0"},
        ),
        (
            "$ pip list | grep torch\ntorch 2.4.0+cu121\ntorchvision 0.19.0\n",
            "pip list",
            {"torch": "2.4.0+cu121", "torchvision": "0.19.0"},
        ),
        (
            "pytorch-triton         3.5.0+git7416ffcb\ntorch                  2.10.0.dev20251024+cu130\n",
            "pip list",
            {"pytorch-triton": "3.5.0+git7416ffcb", "torch": "2.10.0.dev20251024+cu130"},
        ),
        (
            (
                "# packages in environment at /opt/conda/envs/x:\n#\n# Name      Version      Build  Channel\n"
                "_libgcc_mutex      0.1      conda_forge    conda-forge\nopenssl      1.1.1w      h7f8727e_0\n"
                "pytorch      2.1.0      py3.10_cuda12.1_0    pytorch\nvllm      0.3.3      pypi_0    pypi\n"
            ),
            "conda list",
            {"torch": "2.1.0", "vllm": "0.3.3"},
        ),
        (
            "$ uv pip list\nUsing Python 3.12.3 environment at: /home/u/p/.venv\ntorch 2.8.0\nvllm 0.11.0\n",
            "uv pip list",
            {"torch": "2.8.0", "vllm": "0.11.0"},
        ),
        (
            (
                "Name: torch\nVersion: 2.4.0+cu121\nSummary: Tensors\n"
                "Location: /opt/x/lib/python3.11/site-packages\n---\nName: vllm\nVersion: 0.6.3\n"
            ),
            "pip show",
            {"torch": "2.4.0+cu121", "vllm": "0.6.3"},
        ),
        (
            "[pip3] nvidia-nccl-cu12==2.29.3\n[conda] Could not collect\n[pip3] numpy    1.26.4\n",
            "collect_env (PyTorch)",
            {"nvidia-nccl-cu12": "2.29.3", "numpy": "1.26.4"},
        ),
    ],
)
def test_package_lists(text: str, kind: str, expected: dict[str, str]) -> None:
    assert versions(text) == expected
    report = parse_report(text)
    assert report.kinds == (kind,)
    assert report.errors == ""


def test_version_from_a_wheel_name() -> None:
    wheel = "flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    text = f"flash_attn @ https://github.com/x/y/releases/download/v2.8.3/{wheel}\ntorch==2.8.0\n"
    assert versions(text)["flash-attn"] == "2.8.3+cu12torch2.8cxx11abiTRUE"


def test_packages_of_conda_and_pip_are_distinguished() -> None:
    stack = parse_report("[conda] mkl    2024.1.0    ha957f24_693\n[conda] numpy    1.26.4    pypi_0    pypi\n").stack
    assert stack.distributions.value
    assert {name: distribution.source for name, distribution in stack.distributions.value.items()} == {
        "mkl": "conda",
        "numpy": "pip",
    }
    assert stack.kind.value == "conda"


@each_case(
    ("text", "expected"),
    [
        ("torch: 2.3.0\nflash-attn: 2.5.7\n", {"torch": "2.3.0", "flash-attn": "2.5.7"}),
        ("- PyTorch version: 2.4.1+cu121\n", {"torch": "2.4.1+cu121"}),
        ("Transformers 4.46.0", {"transformers": "4.46.0"}),
        (
            "vLLM 0.6.3, torch 2.4.0, xformers 0.0.27.post2",
            {"vllm": "0.6.3", "torch": "2.4.0", "xformers": "0.0.27.post2"},
        ),
        (  # the first twelve parts of a line
            f"torch 2.4.0, {', '.join(2 * letter + ' 1.0' for letter in 'abcdefghijk')}, etc.",
            {"torch": "2.4.0"},
        ),
        ("I use torch 2.4.0 and it fails", {"torch": "2.4.0"}),
        ("pip install torch==2.4.0 vllm==0.6.3", {"torch": "2.4.0"}),  # the others may have failed
        ("torch==2.4.0", {"torch": "2.4.0"}),
        ("ray 2 workers", {}),
        ("and torch==2.8.0+cu128 has no wheels with a matching platform tag", {}),
    ],
)
def test_versions_of_known_packages_in_text(text: str, expected: dict[str, str]) -> None:
    assert versions(text) == expected


@each_case(
    ("text", "expected"),
    [
        (
            "vllm 0.6.3 requires torch==2.4.0, but you have torch 2.2.0 which is incompatible.",
            {"vllm": "0.6.3", "torch": "2.2.0"},
        ),
        (
            (
                "huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module, "
                "but found huggingface-hub==1.2.3."
            ),
            {"huggingface-hub": "1.2.3"},
        ),
        (
            "INFO 08-27 14:00:04 llm_engine.py:174] Initializing an LLM engine (v0.5.4) with config: model='x'",
            {"vllm": "0.5.4"},
        ),
        ("INFO 07-10 [api_server.py:1395] vLLM API server version 0.9.2", {"vllm": "0.9.2"}),
        (
            "UserWarning: TRL currently only supports vLLM version `0.10.2`. You have version 0.12.0 installed.",
            {"vllm": "0.12.0"},
        ),
        (
            (
                "Skipping import of cpp extensions due to "
                "incompatible torch version 2.10.0+cu130 for torchao version 0.14.0"
            ),
            {"torch": "2.10.0+cu130", "torchao": "0.14.0"},
        ),
        ("modules compiled using NumPy 1.x cannot be run in\nNumPy 2.1.0 as it may crash.", {"numpy": "2.1.0"}),
        ("    PyTorch 2.6.0+cu124 with CUDA None (you have 2.5.1+cu121)", {"torch": "2.5.1+cu121"}),
    ],
)
def test_versions_in_log_messages(text: str, expected: dict[str, str]) -> None:
    assert versions(text) == expected
    report = parse_report(text)
    assert report.errors == text  # the message is also the symptom
    assert report.kinds == ()


def test_other_facts_in_log_messages() -> None:
    report = parse_report(
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 "
        "is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_90.\n"
        "The NVIDIA driver on your system is too old (found version 12080).\n"
        "The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (12.4).\n"
        '  File "/home/u/miniconda3/envs/x/lib/python3.11/site-packages/vllm/worker/worker.py", line 1\n'
    )
    machine, stack = report.machine, report.stack
    assert machine.gpus.value
    assert (machine.gpus.value[0].name.value, machine.gpus.value[0].compute_capability.value) == (
        "NVIDIA GeForce RTX 5090",
        "12.0",
    )
    assert machine.driver.cuda.value == "12.8"
    assert machine.cuda.nvcc_version.value == "11.8"
    assert stack.torch.value
    assert stack.torch.value.architectures.value == ("sm_50", "sm_60", "sm_90")
    assert stack.torch.value.cuda.value == "12.4"
    assert (stack.python_version.value, stack.kind.value, stack.uses.value) == ("3.11", "conda", ("vllm",))


def test_the_warning_of_newer_torch_names_its_build() -> None:
    report = parse_report(
        "UserWarning: Found GPU0 Quadro P2000 which is of compute capability (CC) 6.1.\n"
        "The following list shows the CCs this version of PyTorch was built for and the hardware CCs it supports:\n"
        "- 7.5 which supports hardware CC >=7.5,<8.0\n"
        "- 8.0 which supports hardware CC >=8.0,<9.0 except {8.7}\n"
        "- 12.0 which supports hardware CC >=12.0,<13.0\n"
        "Your installed torch==2.13.0+cu129 does not include kernels for this GPU. Reinstall it, e.g.:\n"
        "  For CUDA 12.6 use pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cu126\n"
    )
    torch = report.stack.torch.value
    assert torch
    assert (torch.version.value, torch.cuda.value) == ("2.13.0+cu129", "12.9")
    assert torch.architectures.value == ("sm_75", "sm_80", "sm_120")
    assert "gpu-arch-dropped" in {finding.cause for finding in diagnose_report(report)}


def test_version_reported_by_torch_has_precedence_over_package_lists() -> None:
    report = parse_report("torch==2.1.0\nnumpy==1.26.4\nPyTorch version: 2.4.0+cu121\n")
    assert report.stack.torch.value
    assert report.stack.torch.value.version.value == "2.4.0+cu121"


def test_variables_at_the_start_of_a_command() -> None:
    report = parse_report(
        "$ CUDA_VISIBLE_DEVICES=0,1 NCCL_P2P_DISABLE=1 vllm serve m --tensor-parallel-size 2\n"
        "export HF_TOKEN=hf_planted\n"
    )
    assert report.machine.environment.value == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_TOKEN": "(set)",
        "NCCL_P2P_DISABLE": "1",
    }
    assert "vllm serve m" in report.errors
    assert "planted" not in report.errors


def test_a_package_of_the_tables_is_read_in_a_line_of_its_own() -> None:
    tables = {path.stem for path in (FOLDER / "requires").glob("*.toml")}
    conditions = {each.partition(" ")[0] for row in known_breaks() for each in (*row.when, *row.unless)}
    words = {"requests"}  # a result of a benchmark too: read in lists of installers only
    assert not (tables | conditions) - KNOWN_PACKAGES - words
    assert versions("diffusers 0.24.0\nhuggingface-hub 0.30.2\n")["diffusers"] == "0.24.0"
