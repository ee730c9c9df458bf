"""Remedies for the host: search paths, packages of the distribution, CUDA toolkits, and limits."""

from __future__ import annotations

import re
from collections.abc import Container

from envdoctor.core.records import Fact, Machine
from envdoctor.core.remedies import Remedy, either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.driver_remedies import APPTAINER, DPKG, KUBERNETES, container_of
from envdoctor.rules.facts import on_windows

TOOLKITS_OF_WINDOWS = r'dir "C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"'
DNF = r"(?i)fedora|red hat|rhel|rocky|alma|centos|oracle|amazon"


def set_path(name: str, value: str, removed: Container[str]) -> str:
    """The command that removes directories from a variable with a search path."""
    remaining = ":".join(part for part in value.split(":") if part and part not in removed)
    return shell_command("export {}={}", name, remaining) if remaining else shell_command("unset {}", name)


def install_packages(machine: Machine, apt: str, dnf: str) -> list[str]:
    """The command that installs packages of the distribution; one for apt and one for dnf if it is unknown."""
    system = machine.system.os.value or ""
    lines = {
        shell_command("sudo apt-get install -y {}", apt.split()): DPKG,
        shell_command("sudo dnf install -y {}", dnf.split()): DNF,
    }
    return [line for line, pattern in lines.items() if re.search(pattern, system)] or list(lines)


def install_toolkit(machine: Machine, cuda: str) -> tuple[Remedy, ...]:
    """Install a release of the CUDA toolkit and select it. NVIDIA's packages have the same name for apt and dnf."""
    if on_windows(machine):
        return steps(TOOLKITS_OF_WINDOWS, "nvcc --version")
    package = f"cuda-toolkit-{cuda.replace('.', '-')}"
    select = shell_command("export CUDA_HOME=/usr/local/cuda-{}", cuda)
    return either(*(["ls -d /usr/local/cuda*", line, select] for line in install_packages(machine, package, package)))


def in_container_or_host(machine: Machine, option: str, *commands: str) -> tuple[Remedy, ...]:
    """An option of `docker run` in a container, commands on a host; both if it is unknown where this is."""
    container = container_of(machine)
    if container in KUBERNETES:
        return steps("kubectl get pod POD -o yaml")
    start = f"{'podman' if container == 'podman' else 'docker'} run {option} ..."
    if container and container not in APPTAINER:
        return steps(start)
    return steps(*commands) if machine.system.container.state != "unreadable" else either(start, commands)


def raise_limit(limit: Fact[int], letter: str, name: str, wanted: int, required: int) -> str:
    """The command that raises a soft limit, up to the hard limit; if that is too low, both, which needs root."""
    hard = re.search(r"hard limit (\d+)", limit.note)
    if hard and int(hard[1]) < required:
        return shell_command("sudo prlimit --pid $$ --{}={}", name, wanted)
    return shell_command("ulimit -{} {}", letter, min(wanted, int(hard[1])) if hard else wanted)
