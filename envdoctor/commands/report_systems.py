"""The remedies of lines of a report for its system: their commands are those of Linux."""

from __future__ import annotations

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding, Machine
from envdoctor.core.remedies import Remedy, RootCommand, SetVariable, Step, SystemPackages, UserCommand, either, steps
from envdoctor.rules.facts import on_windows
from envdoctor.rules.host_remedies import TOOLKITS_OF_WINDOWS

OF_LINUX = lazy_pattern(
    r"^(?:[A-Z_]\w*=\S* )*(?:ls|lscpu|lsmod|grep|awk|ldd|ldconfig|cat|journalctl|dpkg|lspci|df|free|ulimit|getconf"
    r"|systemctl|dmesg|mount|find|readelf|strings|which|env|printenv|lsof|fuser|nproc|uname)\b"
    r"|(?<![\w.])/(?:usr|proc|dev|etc|sys|opt)/"
)
FILTER = lazy_pattern(r"\s*\|\s*(?:grep|tail|head|sort|wc)\b.*$")
WINDOWS_HAS_THE_DRIVER = (
    "WSL uses the driver of Windows: install NVIDIA's current driver in Windows and none in WSL, and update WSL, "
    "which ends its sessions."
)


def for_system(finding: Finding, machine: Machine) -> Finding:
    """The finding with remedies that Windows or WSL can run."""
    if machine.system.wsl.value and finding.cause == "driver-not-loaded":
        remedies = either("nvidia-smi", ["wsl --update  # in Windows", "wsl --shutdown  # in Windows"])
        return msgspec.structs.replace(finding, fix=WINDOWS_HAS_THE_DRIVER, remedies=remedies)
    if not on_windows(machine):
        return finding
    if finding.cause == "cuda-home-missing":
        return msgspec.structs.replace(finding, remedies=steps(TOOLKITS_OF_WINDOWS, "nvcc --version"))
    remedies = tuple(remedy for each in finding.remedies for remedy in _on_windows(each))
    return msgspec.structs.replace(finding, remedies=remedies)


def _on_windows(remedy: Remedy) -> tuple[Remedy, ...]:
    """The remedy with the steps that Windows can run; none if there is none."""
    commands = [
        FILTER.sub("", command)
        for step, command in zip(remedy.steps, remedy.commands, strict=True)
        if _runs_on_windows(step, command)
    ]
    return steps(*commands) if commands != list(remedy.commands) else (remedy,)


def _runs_on_windows(step: Step, command: str) -> bool:
    if isinstance(step, SystemPackages | RootCommand):
        return False
    return not isinstance(step, UserCommand | SetVariable) or not OF_LINUX.search(command)
