"""Finding on a pasted report of a release alone, whose wheel on PyPI is for a newer CUDA than the driver supports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from envdoctor.commands.report_evidence import finding_of_text
from envdoctor.commands.report_notes import SIGN_OF_FAILURE
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.knowledge.cuda import oldest_driver
from envdoctor.knowledge.releases import required_specifier
from envdoctor.knowledge.torch_builds import torch_releases
from envdoctor.knowledge.versions import local_part, minor_of
from envdoctor.rules.driver_remedies import is_driver_too_old, upgrade_driver
from envdoctor.rules.facts import has_windows_driver, is_from_conda, on_windows, torch_cuda

if TYPE_CHECKING:
    from envdoctor.reports import Report

# CUDA, a GPU or a driver fails. Another failure does not show the build of torch.
CUDA_FAILS = lazy_pattern(
    r"(?i)\b(?:can ?not|can't|not|n't|fail\w*|unable)\b[^.\n]{0,50}\b(?:gpus?|cuda|driver|compatib\w+)\b"
    r"|\bcuda\b[^.\n]{0,30}\b(?:unavailable|not available|false|error|fail\w*)\b"
    r"|\bdriver\b[^.\n]{0,40}\b(?:old|incompatible)\b|is_available\(\)\W{0,4}(?:is |returns )?false"
    r"|(?:cuda|gpu|显卡|驱动)[^\n]{0,12}(?:不可用|用不了|报错|失败|不兼容|过低|太低)"
)


def findings_on_default_driver(report: Report) -> Iterator[Finding]:
    """The driver is too old for the build that PyPI has, and the text is about a failure.

    A release of torch alone names no build: the one for an older CUDA would work, so that the rules are silent.
    """
    machine, (name, cuda) = report.machine, _wheel_of_pypi(report)
    if not cuda or on_windows(machine) or report.stack.cuda_available.value:
        return
    windows = has_windows_driver(machine)
    failed = (CUDA_FAILS if name.startswith("torch") else SIGN_OF_FAILURE).search(report.errors)
    if failed and is_driver_too_old(machine, cuda, windows=windows):
        driver = machine.driver.version.value or f"for CUDA {machine.driver.cuda.value}"
        minimum = ".".join(f"{part:02}" for part in oldest_driver(cuda, windows=windows))
        message = f"driver {driver}; the wheel of {name} on PyPI is for CUDA {cuda} and needs {minimum} or newer"
        yield finding_of_text("driver-too-old", "warning", message, upgrade_driver(machine, minimum)[1])


def _wheel_of_pypi(report: Report) -> tuple[str, str]:
    """The torch, or without one the vLLM, of a report, and the CUDA version of its wheel; both empty if unknown."""
    packages, build = report.stack.distributions.value or {}, report.stack.torch.value
    torch, vllm = packages.get("torch"), packages.get("vllm")
    if torch_cuda(report.stack) or (build and build.cuda.state == "absent") or (torch and is_from_conda(torch)):
        return "", ""
    version = (build.version.value or "") if build else ""
    name = f"torch {version}"
    if not version and vllm and not local_part(vllm.version):
        name = f"vLLM {vllm.version}"
        version = required_specifier("vllm", vllm.version, "torch").removeprefix("==")
    release = torch_releases().get(minor_of(version)) if re.fullmatch(r"[\d.]+", version) else None
    return name, release.pypi if release else ""
