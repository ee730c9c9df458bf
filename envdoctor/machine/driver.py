"""The NVIDIA driver: the versions of its kernel module and its user-space library, which must be equal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import run
from envdoctor.core.programs import find_program
from envdoctor.core.records import Driver, Fact, absent, known, unreadable
from envdoctor.machine.gpu import NvmlReading

PROC_VERSION = "proc/driver/nvidia/version"
SYS_VERSION = "sys/module/nvidia/version"
SMI_QUERY = ("--query-gpu=driver_version", "--format=csv,noheader")
SMI_SECONDS = 10.0  # nvidia-smi initialises GPUs without persistence mode

VERSION = r"\d+\.\d+(?:\.\d+)?"


def read_driver(nvml: NvmlReading, root: Path = Path("/")) -> Driver:
    """Read the driver version from NVML, otherwise /proc, /sys or nvidia-smi.

    If NVML does not initialise (such as error 18), `version` is the kernel module's and `library` that of the loaded
    file, which shows a mismatch.
    """
    proc = _read_text(root, PROC_VERSION)
    version, module_kind = parse_proc_version(proc.value or "")
    return Driver(
        version=_read_version(nvml.driver_version, version, root),
        library=_library_version(nvml),
        cuda=nvml.cuda,
        module=known(module_kind, f"/{PROC_VERSION}") if module_kind else _no_module(proc, f"/{PROC_VERSION}"),
    )


def parse_proc_version(text: str) -> tuple[str, str]:
    """Version and kind ("open", "proprietary") of the kernel module; empty if the text has none.

    `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)`
    `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024`
    """
    found = re.search(rf"^NVRM version:.*?(Open )?Kernel Module\b.*?\s({VERSION})\b", text, re.MULTILINE)
    return (found[2], "open" if found[1] else "proprietary") if found else ("", "")


def parse_smi_query(text: str) -> str:
    """The version in the output of `nvidia-smi --query-gpu=driver_version --format=csv,noheader`.

    One line `580.159.04` for each GPU. Without GPUs, `No devices were found` and exit code 0.
    """
    found = re.search(rf"^{VERSION}$", text, re.MULTILINE)
    return found[0] if found else ""


def parse_library_version(path: str) -> str:
    """The version in a library's file name, as in `/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.159.04`."""
    found = re.search(rf"\.so\.({VERSION})$", path)
    return found[1] if found else ""


def _read_version(from_nvml: Fact[str], from_proc: str, root: Path) -> Fact[str]:
    """The version from the first source that has it; the note contains the error of NVML."""
    if from_nvml.value:
        return from_nvml
    if from_proc:
        return known(from_proc, f"/{PROC_VERSION}", from_nvml.note)
    if from_sys := _read_text(root, SYS_VERSION).value:
        return known(from_sys.strip(), f"/{SYS_VERSION}", from_nvml.note)
    return _read_smi_version() or from_nvml


def _read_smi_version() -> Fact[str] | None:
    """The version from nvidia-smi, or its first line of output if it fails; None if it is not installed."""
    path = find_program("nvidia-smi")
    if not path:
        return None
    try:
        result = run([path, *SMI_QUERY], timeout=SMI_SECONDS)
    except EnvdoctorError as error:
        return unreadable("nvidia-smi", error.message)
    version = parse_smi_query(result.output) if result.ok else ""
    if version:
        return known(version, "nvidia-smi")
    first_line = result.output.strip().split("\n")[0]
    return unreadable("nvidia-smi", f"{path} {result.ending}: {first_line or 'no output'}")


def _library_version(nvml: NvmlReading) -> Fact[str]:
    """The version from the file name. NVML may omit the last part ("590.44" for 590.44.01)."""
    file, reported = nvml.library_file, nvml.library_version
    if file.value and (version := parse_library_version(file.value)):
        return known(version, file.value)
    if reported.value:  # "13.580.159.04" starts with the CUDA major version
        return known(reported.value.partition(".")[2], reported.source)
    return reported


def _read_text(root: Path, name: str) -> Fact[str]:
    try:
        return known((root / name).read_text(errors="replace"), f"/{name}")
    except FileNotFoundError:
        return absent(f"/{name}", "no NVIDIA kernel module")
    except OSError as error:
        return unreadable(f"/{name}", str(error.strerror))


def _no_module(fact: Fact[Any], source: str) -> Fact[str]:
    """The fact for a version file that was not read, or that has unknown contents."""
    if fact.value is None:
        return fact
    return unreadable(source, f"unknown contents: {fact.value[:80]!r}")
