"""What a healthy machine hears: next to nothing."""

from __future__ import annotations

import pytest
from report_stack import files, live, memory, toolkit, variables

from envdoctor.rules import evaluate

H200 = "NVIDIA H200"
GIB = 1 << 30

# What is installed and set on a healthy GPU server: a toolkit of another minor version of CUDA beside wheels, its
# folder on the loader's path, less host memory than GPU memory, and no token.
QUIET = {
    "hf": ("2.8.0+cu128", "transformers trl peft accelerate datasets huggingface-hub numpy triton bitsandbytes"),
    "vllm": ("2.8.0+cu128", "vllm transformers trl peft accelerate huggingface-hub numpy triton xformers"),
    "new": ("2.11.0+cu130", "vllm transformers trl peft liger-kernel huggingface-hub flashinfer-python triton"),
}
RELEASES = {
    "2.8.0+cu128": {
        "transformers": "4.57.1", "trl": "0.23.1", "peft": "0.17.1", "accelerate": "1.11.0", "numpy": "2.2.6",
        "datasets": "4.3.0", "huggingface-hub": "0.36.0", "triton": "3.4.0", "bitsandbytes": "0.48.1",
        "vllm": "0.10.2", "xformers": "0.0.32.post1",
    },
    "2.11.0+cu130": {
        "transformers": "5.17.0", "trl": "1.16.0", "peft": "0.21.0", "liger-kernel": "0.8.5", "triton": "3.6.0",
        "huggingface-hub": "1.5.0", "vllm": "0.26.0", "flashinfer-python": "0.6.12",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_a_healthy_machine_hears_of_three_remarks_at_most(name: str) -> None:
    version, packages = QUIET[name]
    stack = files(version, {package: RELEASES[version][package] for package in packages.split()} | {"torch": version})
    machine = live(
        [H200], cuda=toolkit(nvcc="/usr/local/cuda/bin/nvcc", nvcc_version="12.4.131", cuda_home="/usr/local/cuda")
    )
    machine = memory(variables(machine, LD_LIBRARY_PATH="/usr/local/nvidia/lib64:/usr/local/cuda/lib64"), 128 * GIB)
    said = [finding for finding in evaluate(machine, stack) if finding.id != "PKG007"]  # the list here is not whole
    assert [finding.message for finding in said if finding.status in ("error", "crashed")] == []
    remarks = [finding.id for finding in said if finding.status == "info"]
    assert len(remarks) <= 3, remarks
