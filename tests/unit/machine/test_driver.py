"""The driver version without NVML: /proc, /sys and a fake nvidia-smi."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.cases import each_case
from support.text_files import write_files

from envdoctor.core.records import Fact, unreadable
from envdoctor.machine.driver import parse_proc_version, parse_smi_query, read_driver
from envdoctor.machine.gpu import NvmlReading

OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  \n"
    "GCC version:  gcc version 15.3.0 (GCC)\n"
)
PROPRIETARY_MODULE = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)
ARM_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.148.08  Release Build  (dvs-builder@U22)\n"
)

NO_NVML: NvmlReading = NvmlReading(*[unreadable("nvmlInitWithFlags", "NVML error 9: Driver Not Loaded")] * 5)


@pytest.mark.parametrize(
    ("files", "version", "source", "module"),
    [
        (
            {"proc/driver/nvidia/version": ARM_MODULE, "sys/module/nvidia/version": "1.2\n"},
            "570.148.08",
            "/proc/driver/nvidia/version",
            "open",
        ),
        ({"sys/module/nvidia/version": "535.161.07\n"}, "535.161.07", "/sys/module/nvidia/version", None),
        (
            {"proc/driver/nvidia/version": "unknown\n", "sys/module/nvidia/version": "535.161.07\n"},
            "535.161.07",
            "/sys/module/nvidia/version",
            None,
        ),
    ],
)
def test_driver_version_without_nvml(
    tmp_path: Path, files: dict[str, str], version: str, source: str, module: str | None
) -> None:
    write_files(tmp_path, files)
    driver = read_driver(NO_NVML, tmp_path)
    assert driver.version == Fact(value=version, source=source, note="NVML error 9: Driver Not Loaded")
    assert driver.module.value == module


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 550.54.15; echo 550.54.15", Fact(value="550.54.15", source="nvidia-smi")),
        (
            "echo NVIDIA-SMI has failed because it could not reach the driver.; exit 9",
            unreadable(
                "nvidia-smi",
                "{smi} ended with exit code 9: NVIDIA-SMI has failed because it could not reach the driver.",
            ),
        ),
        (
            "echo No devices were found",
            unreadable("nvidia-smi", "{smi} ended with exit code 0: No devices were found"),
        ),
        ("kill -SEGV $$", unreadable("nvidia-smi", "{smi} was killed by SIGSEGV: no output")),
    ],
)
def test_nvidia_smi_is_the_last_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: Fact[str]
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n{script}\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    driver = read_driver(NO_NVML, tmp_path)
    assert driver.version == msgspec.structs.replace(expected, note=expected.note.format(smi=smi))


def test_nvidia_smi_that_is_not_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_bytes(b"\x7fELF of another machine")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    driver = read_driver(NO_NVML, tmp_path)
    assert driver.version == unreadable("nvidia-smi", f"cannot start {smi}: Exec format error")


@each_case(
    ("text", "expected"),
    [
        (OPEN_MODULE, ("580.159.04", "open")),
        (PROPRIETARY_MODULE, ("535.161.07", "proprietary")),
        (ARM_MODULE, ("570.148.08", "open")),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.78  Sun Apr 14 06:35:45", ("550.78", "proprietary")),
        ("", ("", "")),
        ("GCC version:  gcc version 12.3.0", ("", "")),
    ],
)
def test_parse_proc_version(text: str, expected: tuple[str, str]) -> None:
    assert parse_proc_version(text) == expected


@each_case(
    ("text", "expected"),
    [
        ("580.159.04\n", "580.159.04"),
        ("550.78\n550.78\n", "550.78"),
        ("No devices were found\n", ""),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.44\n", ""),
        ("[N/A]\n", ""),
        ("", ""),
    ],
)
def test_parse_smi_query(text: str, expected: str) -> None:
    assert parse_smi_query(text) == expected
