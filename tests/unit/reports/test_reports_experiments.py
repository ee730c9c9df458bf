"""Facts and causes of texts that describe an experiment: a download, a variable that was tried, instances of MIG."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import versions

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

DOWNLOADS = """\
$ pip3 install torch
Collecting torch
  Downloading torch-{version}-cp312-cp312-{platform}.whl (91.8 MB)
Installing collected packages: sympy, torch
After that torch cannot use the GPU.
"""
INSTANCES = """\
{error}

PyTorch version: 2.6.0+cu124
Is debug build: False
CUDA used to build PyTorch: 12.4
Is CUDA available: True
GPU models and configuration:
GPU 0: NVIDIA A100-SXM4-40GB
MIG 1g.5gb Device 0:
MIG 1g.5gb Device 1:
Nvidia driver version: 550.54.15
"""
HANGS = """\
2x RTX 4090, driver 550.120
both ranks print Init COMPLETE, then the all_reduce hangs
NCCL_P2P_DISABLE=1, same script:
  {result}
"""


def causes(text: str) -> list[str]:
    found = diagnose_report(parse_report(text))
    return [each.cause for each in found if each.status in ("error", "warning")]


@each_case(
    ("version", "platform", "expected"),
    [
        ("2.5.1", "manylinux2014_aarch64", ["torch-cpu-build"]),
        ("2.11.0", "manylinux_2_28_aarch64", []),
        ("2.5.1", "manylinux1_x86_64", []),
    ],
)
def test_the_downloaded_torch_is_the_installed_one(version: str, platform: str, expected: list[str]) -> None:
    text = DOWNLOADS.format(version=version, platform=platform)
    assert versions(parse_report(text))["torch"] == version
    assert causes(text) == expected


def test_a_cpu_wheel_alone_is_no_fault() -> None:
    text = DOWNLOADS.format(version="2.5.1", platform="manylinux2014_aarch64")
    assert causes(text.replace("After that torch cannot use the GPU.", "")) == []


def test_a_second_instance_of_mig_is_no_device() -> None:
    error = "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED, device=1, num_gpus="
    assert causes(INSTANCES.format(error=error))[0] == "mig-or-compute-mode"
    assert causes(INSTANCES.format(error="training is slow")) == []


@each_case(
    ("result", "expected"),
    [
        ("prints the sum at once", ["nccl-p2p-blocked"]),
        ("the same hang, nothing is printed", []),
        ("hangs at once", []),
        ("crashes immediately", []),
        ("never completes", []),
    ],
)
def test_the_result_without_peer_access_decides(result: str, expected: list[str]) -> None:
    report = parse_report(HANGS.format(result=result))
    assert report.machine.environment.value is None
    found = [each.cause for each in diagnose_report(report) if each.status == "error"]
    assert [cause for cause in found if cause == "nccl-p2p-blocked"] == expected


def test_a_remark_after_a_value_keeps_the_setting() -> None:
    report = parse_report("NCCL_P2P_DISABLE=1, set in the job script\nNVIDIA driver 550.120\n")
    assert "NCCL_P2P_DISABLE" in (report.machine.environment.value or {})
