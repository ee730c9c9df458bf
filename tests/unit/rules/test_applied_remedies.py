"""Remedies of rules, applied to the environments that the rules report."""

from __future__ import annotations

from typing import Any

import pytest
from support.cases import each_case
from support.remedies import apply, commands_of, failures
from support.report_stack import file_stack, make_machine, make_stack, torch_stack
from test_rules_boundaries import CASES
from test_rules_builds import H100, REPORTS, RTX5090
from test_rules_packages import BROKEN, stack_of

from envdoctor.core.records import Extension, Finding, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.rules import RULES, evaluate
from envdoctor.rules.facts import torch_cuda
from envdoctor.rules.requirements import versions_of


@each_case(
    ("command", "cuda", "expected"),
    [
        # uv keeps an installed version that satisfies the requirement, whatever its build.
        ("uv pip install torch==2.9.1 --torch-backend=cu128", "13.0", {}),
        ("uv pip install torch==2.9.1 --torch-backend=cu128 --reinstall-package torch", "12.8",
         {"torch": "2.9.1+cu128"}),
        ("uv pip install torch==2.8.0 --torch-backend=cu128", "12.8", {"torch": "2.8.0+cu128", "triton": "3.4.0"}),
        ("uv pip install torchvision==0.23.0 --torch-backend=cu128", "12.8",
         {"torchvision": "0.23.0+cu128", "torch": "2.8.0+cu128", "triton": "3.4.0"}),
        ("uv pip install 'numpy<2'", "13.0", {}),
        ("uv pip install 'numpy>=2,<2.3'", "13.0", {"numpy": "2.2.6"}),
        ("uv pip uninstall numpy", "13.0", {"numpy": None}),
    ],
)  # fmt: skip
def test_apply_changes_an_environment_as_uv_does(command: str, cuda: str, expected: dict[str, str | None]) -> None:
    before = file_stack(
        "2.9.1+cu130", {"torch": "2.9.1+cu130", "triton": "3.5.1", "numpy": "1.26.4", "fsspec": "2025.9.0"}
    )
    after = apply(before, *steps(command))
    versions = versions_of(after)
    assert torch_cuda(after) == cuda
    assert {name: versions.get(name) for name in {*versions_of(before), *versions}} == versions_of(before) | expected


@each_case(
    "command",
    [
        "uv pip install torch==2.9.1 --torch-backend=cu118 --reinstall-package torch",
        "uv pip install 'torch>=9'",
        "uv pip install no-such-package",
        "uv pip uninstall vllm",
    ],
)
def test_apply_rejects_what_uv_rejects(command: str) -> None:
    with pytest.raises(AssertionError):
        apply(file_stack("2.9.1+cu130", {"torch": "2.9.1+cu130"}), *steps(command))


# Rules whose remedies must cure the finding; a rule of another module is added with its remedies.
MODULES = (
    "torch_build",
    "torch_driver",
    "companions",
    "extensions",
    "python",
    "obsolete_variables",
    "shared_libraries",
)
SUBJECTS = {
    **{name: (machine, stack) for name, (machine, stack, _) in REPORTS.items()},
    **{f"{number} {case.rule}": case.sees for number, case in enumerate(CASES)},
    **{text: (make_machine(["NVIDIA H100 80GB HBM3"]), stack_of(text)) for text, _, _ in BROKEN},
}


def is_ours(finding: Finding) -> bool:
    return RULES[finding.id].check.__module__.rpartition(".")[2] in MODULES


@each_case("name", SUBJECTS)
def test_every_remedy_cures_its_finding(name: str) -> None:
    machine, stack = SUBJECTS[name]
    problems = [
        text for finding in filter(is_ours, evaluate(machine, stack)) for text in failures(machine, stack, finding)
    ]
    assert problems == []


V100, GTX1080 = "Tesla V100-SXM2-32GB", "NVIDIA GeForce GTX 1080 Ti"


def torch_finding(gpus: list[str], driver: str, version: str, **fields: Any) -> tuple[Machine, Stack, Finding]:
    machine, stack = make_machine(gpus, driver=driver), torch_stack(version, **fields)
    (found,) = [each for each in evaluate(machine, stack) if is_ours(each) and each.status == "error"]
    assert failures(machine, stack, found) == []
    return machine, stack, found


@each_case(
    ("gpus", "driver", "torch", "packages", "commands"),
    [
        # Only the build changes: uv keeps the versions, so each package is reinstalled.
        ([V100], "580.65.06", "2.9.1+cu130", {"torch": "2.9.1", "torchvision": "0.24.1", "torchaudio": "2.9.1"},
         ("uv pip install torch==2.9.1 torchvision==0.24.1 torchaudio==2.9.1 --torch-backend=cu128 "
         "--reinstall-package torch --reinstall-package torchvision --reinstall-package torchaudio")),
        # The CUDA libraries of the other version have the same files.
        ([V100], "580.65.06", "2.9.1+cu130", {"nvidia-nccl-cu13": "2.27.7", "nvidia-cudnn-cu13": "9.13.0.50"},
         ("uv pip uninstall nvidia-nccl-cu13 nvidia-cudnn-cu13\n"
         "uv pip install torch==2.9.1 --torch-backend=cu128 --reinstall-package torch")),
        # The release changes: torchvision moves with it, and vLLM, which requires one torch.
        ([RTX5090], "570.124.04", "2.6.0+cu126",
         {"torchvision": "0.21.0+cu126", "vllm": "0.8.5", "transformers": "4.51.3"},
         "uv pip install torch==2.7.1 torchvision==0.22.1 vllm==0.10.1.1 transformers==4.55.0 --torch-backend=cu128"),
        # The installed release has the build, which is not the latest of its line.
        ([GTX1080], "570.86.10", "2.9.0+cu128", {"torchvision": "0.24.0"},
         ("uv pip install torch==2.9.0 torchvision==0.24.0 --torch-backend=cu126 --reinstall-package torch "
         "--reinstall-package torchvision")),
        # The CUDA major version stays, for which other packages are compiled.
        ([RTX5090], "580.65.06", "2.9.0+cu126", {"vllm": "0.12.0"},
         "uv pip install torch==2.9.0 --torch-backend=cu128 --reinstall-package torch"),
        # The installed release has native code, which runs with an older driver of the same CUDA major version.
        ([GTX1080], "550.54.14", "2.8.0+cu128", {"torchvision": "0.23.0", "vllm": "0.10.2", "transformers": "4.55.2"},
         ("uv pip install torch==2.8.0 torchvision==0.23.0 --torch-backend=cu126 --reinstall-package torch "
          "--reinstall-package torchvision")),
        # No vLLM for CUDA 12 requires torch 2.11: vLLM moves down, and transformers with it.
        ([H100], "550.54.14", "2.11.0+cu130", {"vllm": "0.21.0", "transformers": "4.57.1"},
         ("uv pip install torch==2.6.0 vllm==0.8.5.post1 transformers==4.51.1 --torch-backend=cu124\n"
          "dpkg -l 'nvidia-driver-*'\nsudo apt-get install -y nvidia-driver-580-server\nsudo reboot")),
        # A driver that is too old for every build with code for the GPU.
        ([RTX5090], "550.54.14", "2.6.0+cu124", {},
         ("dpkg -l 'nvidia-driver-*'\nsudo apt-get install -y nvidia-driver-570-open\nsudo reboot\n"
         "uv pip install torch==2.7.1 --torch-backend=cu128")),
        ([V100], "450.80.02", "2.1.0+cu121", {"torchvision": "0.16.0"},
         ("uv pip install torch==2.1.0 torchvision==0.16.0 --torch-backend=cu118 --reinstall-package torch "
         "--reinstall-package torchvision\ndpkg -l 'nvidia-driver-*'\n"
         "sudo apt-get install -y nvidia-driver-535-server\nsudo reboot")),
    ],
)  # fmt: skip
def test_torch_moves_with_its_companions(
    gpus: list[str], driver: str, torch: str, packages: dict[str, str], commands: str
) -> None:
    *_, found = torch_finding(gpus, driver, torch, packages=packages, available=False)
    assert "\n".join(commands_of(found)) == commands


def test_a_driver_that_is_too_old_for_the_gpu_is_named() -> None:
    *_, found = torch_finding([RTX5090], "550.54.14", "2.6.0+cu124")
    assert found.fix.startswith("Driver 550.54.14 is too old for every build of torch with code for this GPU.")


def test_gpus_without_a_common_build() -> None:
    """No build has code for both: one is hidden, in the order of nvidia-smi."""
    *_, found = torch_finding([GTX1080, RTX5090], "570.124.04", "2.6.0+cu126")
    assert commands_of(found) == ("export CUDA_DEVICE_ORDER=PCI_BUS_ID", "export CUDA_VISIBLE_DEVICES=0")


def test_rocm_builds_are_replaced_only_for_nvidia_gpus() -> None:
    rocm = make_stack("2.5.1+rocm6.2", hip="6.2", available=False)
    machines = (make_machine(["AMD Instinct MI300X"]), make_machine(None, nvcc="12.4.131"))
    assert [each for machine in machines for each in evaluate(machine, rocm) if each.id == "TORCH003"] == []
    assert torch_finding([RTX5090], "570.124.04", "2.8.0", available=False)[2].id == "TORCH003"


@each_case(
    ("name", "torch", "packages", "commands"),
    [
        # The version of vLLM stays, or the torch stays; never the newest release of both.
        ("vllm", "2.9.0+cu128", {"vllm": "0.10.2", "torchvision": "0.24.0", "transformers": "4.57.1"},
         [("uv pip install torch==2.8.0 torchvision==0.23.0 --torch-backend=cu128",),
          ("uv pip install vllm==0.13.0 --torch-backend=cu128 --reinstall-package vllm",)]),
        ("vllm", "2.8.0+cu128", {"vllm": "0.10.2", "transformers": "4.57.1"},
         [("uv pip install vllm==0.10.2 --torch-backend=cu128 --reinstall-package vllm",)]),
        ("torchvision", "2.9.1+cu130", {"torchvision": "0.23.0"},
         [("uv pip install torchvision==0.24.1 --torch-backend=cu130 --reinstall-package torchvision",)]),
        ("flash-attn", "2.8.0+cu128", {"flash-attn": "2.8.3"},
         [(("UV_NO_CACHE=1 uv pip install flash-attn==2.8.3 --reinstall-package flash-attn --no-binary flash-attn "
            "--no-build-isolation"),)]),
        # A package that is not from PyPI: PyPI may have another one of this name.
        ("common-ops", "2.8.0+cu128", {"common-ops": "0.0.1"}, [("uv pip show --files common-ops",)]),
        ("apex", "2.8.0+cu128", {"apex": "0.1"}, [("uv pip show --files apex",)]),
    ],
)  # fmt: skip
def test_an_extension_keeps_its_release_or_the_torch(
    name: str, torch: str, packages: dict[str, str], commands: list[tuple[str, ...]]
) -> None:
    file = Extension(path=f"{name}/_C.so", distribution=name, missing_symbols=("_ZN3c105ErrorC2E",))
    machine, stack = make_machine([H100], driver="580.95.05"), file_stack(torch, packages, extensions=(file,))
    (found,) = [each for each in evaluate(machine, stack) if each.id == "EXT001"]
    assert [remedy.commands for remedy in found.remedies] == commands
    assert failures(machine, stack, found) == []


@each_case(
    ("gpus", "driver", "packages", "command"),
    [
        ([H100], "570.133.20", {"trl": "0.23.1"}, "torch==2.14.1 --torch-backend=cu126"),
        ([H100], None, {"trl": "0.23.1"}, "torch==2.15.0 --torch-backend=auto"),
        ([H100], "580.95.05", {"vllm": "0.10.2"}, "torch==2.8.0 --torch-backend=cu128"),
        ([H100], "580.95.05", {"deepspeed": "0.14.0"}, "torch==2.2.2 --torch-backend=cu121"),
        (None, None, {"trl": "0.23.1"}, "torch==2.15.0 --torch-backend=cpu"),
    ],
)
def test_missing_torch_fits_the_other_packages(
    gpus: list[str] | None, driver: str | None, packages: dict[str, str], command: str
) -> None:
    machine, stack = make_machine(gpus, driver=driver), make_stack(None, packages=packages)
    (found,) = [each for each in evaluate(machine, stack) if each.id == "PY001"]
    assert commands_of(found)[-1] == f"uv pip install {command}"
    assert failures(machine, stack, found) == []
