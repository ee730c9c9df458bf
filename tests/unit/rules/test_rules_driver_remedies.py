"""Remedies for the driver, single GPUs and containers: their exact text for the facts of a machine.

They need root or another GPU, so no test applies them.
"""

from __future__ import annotations

from typing import Any

from support.cases import each_case
from support.report_stack import make_machine

from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.rules import evaluate

H100 = "NVIDIA H100 80GB HBM3"


def found(identifier: str, machine: Machine, stack: Stack | None = None) -> Finding:
    return next(finding for finding in evaluate(machine, stack) if finding.id == identifier)


def remedies(finding: Finding) -> list[tuple[str, ...]]:
    return [remedy.commands for remedy in finding.remedies]


def mismatch(**facts: Any) -> Machine:
    return override(make_machine([H100], driver="575.57.08", source="test", **facts), ["driver.library=575.64.03"])


def test_the_module_is_reloaded_before_a_reboot() -> None:
    finding = found("DRV001", mismatch())
    assert remedies(finding) == [
        (
            "sudo lsof /dev/nvidia*",
            "modinfo -F version nvidia",
            "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
            "sudo modprobe -a nvidia nvidia_uvm",
        ),
        ("modinfo -F version nvidia", "sudo reboot"),
    ]
    assert "575.64.03" in finding.fix


@each_case(
    ("container", "first"),
    [
        ("docker", "docker restart CONTAINER"),
        ("podman", "podman restart CONTAINER"),
        ("kubernetes", "kubectl get pod POD -o jsonpath='{.metadata.ownerReferences}'"),
        ("apptainer", "apptainer exec --nv IMAGE nvidia-smi"),
    ],
)
def test_a_container_is_restarted_as_its_module_is_that_of_the_host(container: str, first: str) -> None:
    commands = remedies(found("DRV001", mismatch(container=container)))
    assert commands[0][:2] == ("ldconfig -p | grep -E 'libcuda|libnvidia-ml'", first)
    assert not any("modprobe" in command or "reboot" in command for remedy in commands for command in remedy)


def old_driver(name: str, *facts: str) -> Machine:
    return override(read_recorded(name), ["driver.version=470.256.02", "system.os=Ubuntu 22.04.3 LTS", *facts])


@each_case(
    ("name", "facts", "package"),
    [
        ("h100x8", (), "nvidia-driver-535-server"),
        ("gh200-480gb", (), "nvidia-driver-535-server-open"),
        ("rtx4090", (), "nvidia-driver-535"),
        ("rtx4090", ("driver.module=open",), "nvidia-driver-535-open"),
    ],
)
def test_the_smallest_sufficient_branch_is_installed(name: str, facts: tuple[str, ...], package: str) -> None:
    commands = remedies(found("DRV006", old_driver(name, *facts)))
    assert commands == [("dpkg -l 'nvidia-driver-*'", f"sudo apt-get install -y {package}", "sudo reboot")]


@each_case(
    ("fact", "commands"),
    [
        ("system.os=Rocky Linux 9.4", ("cat /proc/driver/nvidia/version",)),
        ("system.os=Debian GNU/Linux 12 (bookworm)", ("dpkg -l '*nvidia-driver*'",)),
        ("system.container=docker", ("cat /proc/driver/nvidia/version",)),
        ("system.wsl=5.15", ("nvidia-smi",)),
        (
            "gpus.0.compute_capability=3.7",
            ("nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv",),
        ),
    ],
)
def test_no_package_is_installed_where_its_name_is_not_known(fact: str, commands: tuple[str, ...]) -> None:
    assert remedies(found("DRV006", old_driver("rtx4090", fact))) == [commands]
