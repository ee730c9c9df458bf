"""Healthy machines have at most a few findings of severity `info`."""

from __future__ import annotations

from support.cases import each_case
from support.report_stack import file_stack, local_machine, make_toolkit, with_memory, with_variables

from envdoctor.rules import evaluate

H200 = "NVIDIA H200"
GIB = 1 << 30

# A healthy GPU server: wheels and a toolkit of another CUDA minor version, its folder on the loader's path, less host
# memory than GPU memory, and no token.
HEALTHY = {
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


@each_case("name", HEALTHY)
def test_healthy_machine_has_at_most_three_remarks(name: str) -> None:
    version, packages = HEALTHY[name]
    stack = file_stack(
        version, {package: RELEASES[version][package] for package in packages.split()} | {"torch": version}
    )
    machine = local_machine(
        [H200],
        cuda=make_toolkit(nvcc="/usr/local/cuda/bin/nvcc", nvcc_version="12.4.131", cuda_home="/usr/local/cuda"),
    )
    machine = with_memory(
        with_variables(machine, LD_LIBRARY_PATH="/usr/local/nvidia/lib64:/usr/local/cuda/lib64"), 128 * GIB
    )
    findings = [finding for finding in evaluate(machine, stack) if finding.id != "PKG007"]  # the list is incomplete
    assert [finding.message for finding in findings if finding.status in ("error", "crashed")] == []
    remarks = [finding.id for finding in findings if finding.status == "info"]
    assert len(remarks) <= 3, remarks
