"""The operating system of a text, and the commands of its remedies for that system.

The tables have commands for Linux. For Windows they are written for PowerShell: double quotation marks are understood
by cmd.exe too. A command without a form for the system is left out, and a remedy that cannot be completed with it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterable, Iterator
from typing import Literal

import msgspec

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import (
    Install,
    Remedy,
    SetVariable,
    Step,
    Uninstall,
    UnsetVariable,
    UserCommand,
    pip_arguments,
)
from envdoctor.knowledge.causes import CauseText, Question

System = Literal["linux", "windows", "mac"]
# Programs that only one of the systems lacks are named there. `find` of Windows is another program.
UNIX_ONLY = frozenset({
    "apt-cache", "apt-get", "apt-mark", "cat", "chmod", "chown", "df", "dmesg", "du", "env", "export", "fi_info",
    "find", "findmnt", "free", "fuser", "g++", "gcc", "grep", "head", "ibstat", "ibv_devinfo", "id", "journalctl",
    "ldconfig", "ldd", "ls", "lsmod", "lsof", "lspci", "mokutil", "module", "mount", "namei", "nm", "nproc", "pgrep",
    "ps", "printenv", "readelf", "readlink", "rocminfo", "sacct", "sbatch", "scontrol", "sha256sum", "sinfo", "srun",
    "ss", "stat", "strings", "sudo", "systemctl", "tail", "test", "timedatectl", "touch", "ulimit", "uname", "dpkg",
    "modinfo", "dkms", "which", "unset", "lscpu", "lsblk", "sed", "date", "dnf", "getenforce", "getent", "hostname",
    "ip", "newgrp", "quota", "sysctl", "tmux", "ubuntu-drivers", "ucx_info", "ompi_info", "uptime", "source",
    "command", "apptainer", "squeue", "scancel", "sacctmgr", "cd", "xcode-select", "rocm-smi", "nc", "ld", "py-spy",
})  # fmt: skip
LINUX_ONLY = frozenset({
    "apt-cache", "apt-get", "apt-mark", "cuobjdump", "dkms", "dpkg", "fabricmanager", "fi_info", "findmnt", "free",
    "ibstat", "ibv_devinfo", "journalctl", "ldconfig", "ldd", "lsmod", "lspci", "modinfo", "mokutil", "nvcc",
    "nvidia-smi", "rocminfo", "ss", "systemctl", "timedatectl", "compute-sanitizer", "lscpu", "lsblk", "dnf",
    "getenforce", "getent", "ip", "ubuntu-drivers", "rocm-smi", "modprobe", "nvidia-ctk", "nvidia-modprobe", "dmesg",
})  # fmt: skip
LACKS: dict[System, frozenset[str]] = {"linux": frozenset(), "windows": UNIX_ONLY, "mac": LINUX_ONLY}
FILTER = lazy_pattern(r"\s*\|\s*(?:grep|head|tail|sort|wc)\b.*$")
PARTS = lazy_pattern(r"\s*;\s*(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)(?=(?:[^']*'[^']*')*[^']*$)")
WHICH = lazy_pattern(r"which(?: -a)? ([\w +.-]{1,60})")
# What a shell of Windows does not understand: variables, substitutions, files of Unix.
UNIX_SHELL = lazy_pattern(r"\$[\w({]|/dev/|/(?:proc|sys|etc|usr|tmp|var|opt)/|~/|<<|^[A-Z0-9_]+=|&&|\|\|")

LINUX_FILE = lazy_pattern(r"/dev/(?!null)|/(?:proc|sys)/|/usr/(?:lib|local/(?:cuda|nvidia))")


def system_of(signals: Container[str]) -> System:
    """The system that a text is from. Linux also if nothing names another one."""
    if "linux-system" in signals or "wsl-seen" in signals:
        return "linux"
    if "windows-system" in signals:
        return "windows"
    return "mac" if "mac-system" in signals else "linux"


def command_on(system: System, line: str) -> str:
    """A command line, or a sentence, for a system; of several commands the first that it has, or nothing."""
    if system == "linux":
        return line
    for part in PARTS.split(line):
        command = FILTER.sub("", part) if system == "windows" else part
        if system == "windows" and (located := WHICH.fullmatch(command)):
            return f"where.exe {located[1]}"
        words = command.removeprefix("sudo ").split() if system == "mac" else command.split()
        if not words or words[0] in LACKS[system] or (system == "mac" and LINUX_FILE.search(command)):
            continue
        if system == "windows":
            command = "" if UNIX_SHELL.search(command) else _with_double_quotes(command)
        if command:
            return command
    return ""


def remedies_on(system: System, remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """The remedies whose steps that change something all have a form for the system."""
    if system == "linux":
        return tuple(remedies)
    return tuple(filter(None, (_remedy_on(system, remedy) for remedy in remedies)))


def questions_on(system: System, questions: Iterable[Question]) -> Iterator[Question]:
    """The questions whose command the system has."""
    for question in questions:
        if command := command_on(system, question.command):
            yield msgspec.structs.replace(question, command=command)


def check_on(system: System, cause: CauseText, check: str) -> str:
    """The command that verifies a cause: the one of a symptom, else that of the cause for the system."""
    own = {"linux": "", "windows": cause.check_windows, "mac": cause.check_mac}[system]
    return command_on(system, check) or own or command_on(system, cause.check)


def _remedy_on(system: System, remedy: Remedy) -> Remedy | None:
    known: list[tuple[Step, str]] = []
    for step, command in zip(remedy.steps, remedy.commands, strict=True):
        written = _step_on(system, step, command)
        if written:
            known.append((step, written))
        elif not isinstance(step, UserCommand):
            return None
    if not known:
        return None
    return Remedy(steps=tuple(step for step, _ in known), commands=tuple(command for _, command in known))


def _step_on(system: System, step: Step, command: str) -> str:
    if isinstance(step, SetVariable) and system == "windows":
        name, _, value = step.assignment.partition("=")
        return "" if UNIX_SHELL.search(value) or "/" in value else _powershell_variable(name, value)
    if isinstance(step, UnsetVariable) and system == "windows":
        return f"Remove-Item Env:{step.name}"
    if isinstance(step, Install | Uninstall) and system == "windows":
        variables = step.variables if isinstance(step, Install) else {}
        words = [_powershell_variable(name, value) + ";" for name, value in variables.items()]
        return " ".join([*words, *map(_quoted, ["uv", *pip_arguments(step)])])
    return command_on(system, command)


def _powershell_variable(name: str, value: str) -> str:
    return f'$env:{name} = "{value.strip(chr(34) + chr(39))}"'


def _with_double_quotes(line: str) -> str:
    """The line with its words in double quotation marks; empty if a word has some of its own."""
    if "'" not in line or re.search(r'"[^"]*\'[^"]*"', line):  # those within double ones remain
        return line if line.count("'") % 2 == 0 and not re.search(r"'[^']*\"[^']*'", line) else ""
    try:
        words = shlex.split(line)
    except ValueError:  # the apostrophe of a sentence
        return line
    return "" if any('"' in word for word in words) else " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+:,./-]+(?:==?[\w.+*!-]+)?", word) else f'"{word}"'
